"""Room 2 of the quorum: what a replica keeps. The map is in the package above."""
