"""The raft machine: it decides, without IO. The map is in the package above."""
