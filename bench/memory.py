"""Memory that nobody has used yet, used once before anything is measured.

A virtual machine gets its memory from its host page by page, when each page is touched for the first time. That was
seen to cost up to three seconds of system time for a gigabyte of page cache, more than the whole of a produce, with
writes that stall for a tenth of a second; and it hits whichever server happens to be the first to write there.
"""

from __future__ import annotations

import mmap
from pathlib import Path

_SHARE = 0.9  # of what is free: the rest of the machine goes on meanwhile


def touch_free_memory() -> int:
    """How many bytes were touched, and given back; none where the system does not tell how many are free."""
    try:
        told = Path("/proc/meminfo").read_text()
    except OSError:
        return 0
    free_kb = next((int(line.split()[1]) for line in told.splitlines() if line.startswith("MemFree:")), 0)
    size = int(free_kb * 1024 * _SHARE)
    with mmap.mmap(-1, max(size, mmap.PAGESIZE)) as memory:
        for page in range(0, size, mmap.PAGESIZE):
            memory[page] = 1
    return size
