"""Engine 3: partition replicas. Today every partition has one; leaders, followers and the ISR grow from here."""
