"""Room 3 of the quorum: what a replica does. The map is in the package above."""
