"""A whole cluster on virtual time: drawn from a seed, hurt by faults, watched by checkers, healed, expected to settle.

`run.run_plan` runs one seed; `simulation/command.py` is the command line. A scenario of one's own begins at
`cluster.Cluster` (docs/simulation.md).
"""
