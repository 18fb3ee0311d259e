"""A mark beside the metadata directory: this node has had a vote, or followed those who do.

Made after the first `quorum-state`, which lies inside that directory. Whoever finds the mark and no such file has lost
the directory since, and its memory with it: as a voter it might elect a leader that lacks what it once acknowledged.
Kafka takes no notice of the file.
"""

from __future__ import annotations

from typing import Final

from strandline.runtime.disk import Disk, write_atomically

MARK: Final = "quorum-begun"


def had_quorum_state(disk: Disk, metadata_directory: str) -> bool:
    """Blocking."""
    return disk.exists(f"{metadata_directory}/{MARK}")


def mark(disk: Disk, metadata_directory: str) -> None:
    """Blocking; synced when it returns."""
    if not had_quorum_state(disk, metadata_directory):
        write_atomically(disk, f"{metadata_directory}/{MARK}", b"a replica of the metadata began its life here\n")
