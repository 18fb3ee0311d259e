"""One module for each group of invariants. docs/simulation.md lists the invariants by name."""
