"""A whole node, and later a whole cluster, on virtual time from one seed, in one process.

`world.Simulation` is where to start; docs/simulation.md tells what is modelled and what may go wrong on purpose.
"""
