"""A power loss at every disk operation: of one log by itself, and of a whole node with its client.

Each of the two has a *story* (what is done, what was promised when) that runs once with its disk operations kept, and a
*check* that opens what a power loss at one of them leaves and holds it against the promises. `python -m
strandline.simulation.power_loss` runs them.
"""
