"""Starting and stopping nodes as processes: `strandline up`, users' tests and the chaos tests share `Cluster`."""
