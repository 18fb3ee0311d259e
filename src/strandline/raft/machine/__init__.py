"""Room 1 of the quorum: what a replica decides. The map is in the package above."""
