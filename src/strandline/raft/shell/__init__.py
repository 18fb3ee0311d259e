"""The shell around the raft machine. The map of its modules is in `raft/__init__.py`."""
