"""The shell around the raft machine. The map is in the package above."""
