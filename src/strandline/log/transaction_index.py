"""`.txnindex`: the aborted transactions of a segment, 34-byte entries, one per ABORT marker, in order of markers.

Owned by one segment; read through `PartitionLog.aborted_transactions`. The file exists only where a transaction was
aborted; a segment keeps its entries as a tuple that is replaced, never changed in place.
"""

from __future__ import annotations

import os
import struct
from typing import NamedTuple

from strandline.runtime.disk import Disk

ENTRY = struct.Struct(">hqqqq")
ENTRY_SIZE = ENTRY.size
_VERSION = 0


class AbortedTransaction(NamedTuple):
    producer_id: int
    first_offset: int
    last_offset: int
    """The offset of the marker."""
    last_stable_offset: int
    """The last stable offset after the end of this transaction: lookups may stop at it."""


def append(disk: Disk, path: str, count: int, aborted: AbortedTransaction) -> None:
    """Adds an entry after the first `count`."""
    file = disk.open(path, create=True)
    try:
        file.write_at(count * ENTRY_SIZE, ENTRY.pack(_VERSION, *aborted))
    finally:
        file.close()


def load(disk: Disk, path: str, base_offset: int, end_offset: int) -> tuple[tuple[AbortedTransaction, ...], bool]:
    """Blocking. The entries, and whether all of them are plausible for a segment with these bounds."""
    if not disk.exists(path):
        return (), True
    data = disk.read(path)
    entries = sane_prefix(data, base_offset, end_offset)
    return entries, len(entries) * ENTRY_SIZE == len(data)


def rewrite(disk: Disk, path: str, entries: tuple[AbortedTransaction, ...]) -> None:
    """Blocking. Makes the file hold exactly these entries, synced; without entries there is no file."""
    if entries:
        file = disk.open(path, create=True)
        try:
            file.truncate(0)
            file.write_at(0, b"".join(ENTRY.pack(_VERSION, *entry) for entry in entries))
            file.sync()
        finally:
            file.close()
    elif disk.exists(path):
        disk.remove(path)
        disk.sync_dir(os.path.dirname(path))


def sane_prefix(data: bytes, base_offset: int, end_offset: int) -> tuple[AbortedTransaction, ...]:
    entries: list[AbortedTransaction] = []
    last_offset = base_offset - 1
    for version, *fields in ENTRY.iter_unpack(data[: len(data) - len(data) % ENTRY_SIZE]):
        entry = AbortedTransaction(*fields)
        ordered = 0 <= entry.first_offset < entry.last_offset and last_offset < entry.last_offset < end_offset
        if version != _VERSION or not ordered or not 0 <= entry.last_stable_offset <= entry.last_offset + 1:
            break
        last_offset = entry.last_offset
        entries.append(entry)
    return tuple(entries)
