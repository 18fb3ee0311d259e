"""A whole cluster on virtual time: drawn from a seed, run with faults and invariant checkers, healed, and checked to
recover.

`run.run_plan` runs one seed; `simulation/command.py` is the command line. Users' own scenarios start at
`cluster.Cluster` (docs/simulation.md).
"""
