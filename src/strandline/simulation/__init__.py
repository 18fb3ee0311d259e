"""Whole nodes and clusters on virtual time, from one seed, in one process.

Start at `world.Simulation`; docs/simulation.md describes what is modelled and which faults can be injected.
"""
