"""Administrative requests, one module per subject: topics, configs, the quorum, reassignments, offsets."""
