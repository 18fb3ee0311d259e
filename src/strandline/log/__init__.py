"""The logs of a node: the log of one partition, its files, and the log directories."""
