"""Starts and stops nodes as processes: `strandline up`, users' tests and the chaos tests share `Cluster`."""
