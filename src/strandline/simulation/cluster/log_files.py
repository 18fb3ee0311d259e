"""The log of a partition, read from the volume of its machine without its process: as cached, and as durable.

*Durable* is what survives any power loss: names whose directory was synced, and bytes that were synced after they were
written. Files mostly grow, so each is parsed incrementally.
"""

from __future__ import annotations

from bisect import bisect_right
from typing import NamedTuple

from strandline.records.batch import CONTROL, HEADER, HEADER_SIZE, LOG_OVERHEAD
from strandline.simulation.volume import DirectoryNode, FileNode, Node
from strandline.simulation.world import Machine

_SEGMENT = ".log"


class Batch(NamedTuple):
    """Two batches with equal first four fields hold the same records."""

    base_offset: int
    next_offset: int
    epoch: int
    checksum: int
    position: int
    size: int

    @property
    def identity(self) -> tuple[int, int, int, int]:
        return self[:4]


class Segment:
    """One segment file, parsed as far as it has been written."""

    def __init__(self, file: FileNode) -> None:
        self.file = file
        self.batches: list[Batch] = []
        self.controls: list[Batch] = []
        """The control batches among them."""
        self._rewrites = file.rewrites
        self._position = 0

    def read(self) -> list[Batch]:
        file = self.file
        if file.rewrites != self._rewrites:
            self.batches, self.controls, self._position, self._rewrites = [], [], 0, file.rewrites
        while file.size >= self._position + HEADER_SIZE:
            header = HEADER.unpack(file.read(self._position, HEADER_SIZE))
            base, length, epoch, _, checksum, attributes, last_delta, *_ = header
            size = length + LOG_OVERHEAD
            if length <= 0 or self._position + size > file.size:
                break
            self.batches.append(Batch(base, base + last_delta + 1, epoch, checksum, self._position, size))
            if attributes & CONTROL:
                self.controls.append(self.batches[-1])
            self._position += size
        return self.batches

    def durable_batches(self) -> list[Batch]:
        """The batches that survive any power loss that keeps the file's name."""
        batches, certain_size = self.read(), self.file.certain_size()
        count = bisect_right(batches, certain_size, key=lambda batch: batch.position + batch.size)
        return batches[:count]


class LogFiles:
    def __init__(self, machine: Machine, path: str) -> None:
        self._machine = machine
        self._path = path
        self._known: dict[int, Segment] = {}

    def batches(self, since: int = 0) -> list[Batch]:
        """The log as its process reads it: the contiguous batches up to its end, at least those that end after
        `since`."""
        found: list[Segment] = []
        for segment in reversed(self.segments()):
            batches = segment.read()
            if found and batches and batches[-1].next_offset != found[-1].batches[0].base_offset:
                break  # the log was truncated fully and restarted at a snapshot; older segments await their removal
            if batches:
                found.append(segment)
                if batches[0].base_offset <= since:
                    break
        return [batch for segment in reversed(found) for batch in segment.batches]

    def last_batch(self) -> Batch | None:
        for segment in reversed(self.segments()):
            batches = segment.read()
            if batches:
                return batches[-1]
        return None

    def content(self, batch: Batch) -> bytes:
        """The bytes of a batch that `batches` has just returned."""
        for segment in reversed(self.segments()):
            if segment.batches and segment.batches[0].base_offset <= batch.base_offset:
                return segment.file.read(batch.position, batch.size)
        raise LookupError(f"no such batch: {batch}")

    def durable_segments(self) -> list[Segment]:
        """The segments whose names survive any power loss, oldest first."""
        directory = self.directory()
        return [] if directory is None else self._segments_of(directory.durable)

    def durable_log_end(self) -> int:
        """End offset of the log that survives any power loss."""
        # The last segment may still be empty.
        ends = [
            batch.next_offset for segment in self.durable_segments()[-2:] for batch in segment.durable_batches()[-1:]
        ]
        return max(ends, default=0)

    def directory(self) -> DirectoryNode | None:
        found = self._machine.volume.find(self._path)
        return found if isinstance(found, DirectoryNode) else None

    def segments(self) -> list[Segment]:
        """The segments as the process sees them, oldest first."""
        directory = self.directory()
        return [] if directory is None else self._segments_of(directory.entries)

    def _segments_of(self, entries: dict[str, Node]) -> list[Segment]:
        found = []
        for name in sorted(name for name in entries if name.endswith(_SEGMENT)):
            file = entries[name]
            assert isinstance(file, FileNode)
            segment = self._known.get(file.number)
            if segment is None or segment.file is not file:
                segment = self._known[file.number] = Segment(file)
            found.append(segment)
        return found
