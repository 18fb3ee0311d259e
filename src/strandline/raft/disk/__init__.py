"""What a replica of the quorum keeps on disk. The map is in the package above."""
