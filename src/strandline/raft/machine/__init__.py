"""The raft machine: it decides, without IO. The map of its modules is in `raft/__init__.py`."""
