"""The page cache, filled before anything is measured, as it is on every machine that has been used for a while.

A virtual machine gets its memory from its host page by page, whenever a page is touched that was never used or has been
free for some time. That was seen to cost up to three seconds of system time for a gigabyte written, more than the whole
of a produce, with single writes that took a quarter of a second; and it hits whichever server happens to write there.
What is taken from a full cache is cheap.
"""

from __future__ import annotations

from pathlib import Path

_PIECE = 1024 * 1024


def fill_page_cache(directory: Path) -> int:
    """Reads a file of holes, as large as the free memory, which stays in `directory`: how many bytes. None where the
    system does not tell how many are free."""
    try:
        told = Path("/proc/meminfo").read_text()
    except OSError:
        return 0
    size = 1024 * next(int(line.split()[1]) for line in told.splitlines() if line.startswith("MemFree:"))
    holes = directory / "holes"
    with holes.open("wb") as file:
        file.truncate(size)
    buffer = bytearray(_PIECE)
    with holes.open("rb", buffering=0) as file:
        while file.readinto(buffer):
            pass
    return size
