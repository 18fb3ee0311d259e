"""What a replica of the quorum keeps on disk. The map of its modules is in `raft/__init__.py`."""
