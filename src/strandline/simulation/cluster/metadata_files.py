"""The metadata directory of a node, read from its volume without its process: what is cached, and what is certain.

Checkers compare with this what nodes say and do. *Certain* is what any power loss leaves: names whose directory was
synced, bytes that were synced since they were written. Files only grow, as a rule: each is read once, bit by bit.
"""

from __future__ import annotations

import json
from bisect import bisect_right
from typing import NamedTuple

from strandline.model.ids import METADATA_TOPIC
from strandline.protocol.messages.control_records import VotersRecord
from strandline.raft.disk.batches import read_batches
from strandline.raft.disk.committed import COMMITTED_OFFSET
from strandline.raft.disk.quorum_state import QUORUM_STATE
from strandline.raft.disk.snapshots import parse_snapshot_name
from strandline.raft.machine.values import SnapshotId
from strandline.raft.machine.voters import VoterSet
from strandline.records.batch import CONTROL, HEADER, HEADER_SIZE, LOG_OVERHEAD
from strandline.simulation.volume import DirectoryNode, FileNode, Node
from strandline.simulation.world import Machine

METADATA_DIRECTORY = f"/data/{METADATA_TOPIC}-0"
_SEGMENT = ".log"
_SNAPSHOT = ".checkpoint"


class Batch(NamedTuple):
    """Two batches with the same first four fields hold the same records."""

    base_offset: int
    next_offset: int
    epoch: int
    checksum: int
    position: int
    size: int

    @property
    def identity(self) -> tuple[int, int, int, int]:
        return self[:4]


class Voted(NamedTuple):
    """What a quorum-state file says."""

    epoch: int
    leader_id: int
    voted_id: int
    voted_directory_id: str


class Segment:
    """One file of the log, parsed as far as it has been written."""

    def __init__(self, file: FileNode) -> None:
        self.file = file
        self.batches: list[Batch] = []
        self.voters: VoterSet | None = None
        """Of the last VotersRecord in it."""
        self._rewrites = file.rewrites
        self._position = 0

    def read(self) -> list[Batch]:
        file = self.file
        if file.rewrites != self._rewrites:
            self.batches, self._position, self._rewrites = [], 0, file.rewrites
            self.voters = None
        while file.size >= self._position + HEADER_SIZE:
            header = HEADER.unpack(file.read(self._position, HEADER_SIZE))
            base, length, epoch, _, checksum, attributes, last_delta, *_ = header
            size = length + LOG_OVERHEAD
            if length <= 0 or self._position + size > file.size:
                break
            self.batches.append(Batch(base, base + last_delta + 1, epoch, checksum, self._position, size))
            if attributes & CONTROL:
                self._note_voters(file.read(self._position, size))
            self._position += size
        return self.batches

    def _note_voters(self, content: bytes) -> None:
        for batch in read_batches(content, "a control batch"):
            for record in batch.records:
                if isinstance(record, VotersRecord):
                    self.voters = VoterSet.of_record(record)

    def certain(self) -> list[Batch]:
        """Those that any power loss leaves, if it leaves the file's name."""
        batches, certain_size = self.read(), self.file.certain_size()
        count = bisect_right(batches, certain_size, key=lambda batch: batch.position + batch.size)
        return batches[:count]


class MetadataFiles:
    def __init__(self, machine: Machine, path: str = METADATA_DIRECTORY) -> None:
        self._machine = machine
        self._path = path
        self._known: dict[int, Segment] = {}

    def quorum_state(self, *, cached: bool = False) -> Voted | None:
        """As it is certain to be found, or as it is found now; None when there is none."""
        directory = self._directory()
        entries = {} if directory is None else directory.entries if cached else directory.durable
        file = entries.get(QUORUM_STATE)
        if not isinstance(file, FileNode) or (not cached and file.certain_size() < file.size):
            return None
        try:
            data = json.loads(file.read(0, file.size))
        except ValueError:
            return None
        return Voted(data["leaderEpoch"], data["leaderId"], data["votedId"], data.get("votedDirectoryId", ""))

    def batches(self, since: int = 0) -> list[Batch]:
        """The log as its process reads it: what follows on without a gap up to its end. Those that reach over `since`
        and later ones, at least."""
        found: list[Segment] = []
        for segment in reversed(self._segments()):
            batches = segment.read()
            if found and batches and batches[-1].next_offset != found[-1].batches[0].base_offset:
                break  # the log has begun anew at a snapshot; what came before it waits to be removed
            if batches:
                found.append(segment)
                if batches[0].base_offset <= since:
                    break
        return [batch for segment in reversed(found) for batch in segment.batches]

    def end(self) -> tuple[int, int]:
        """(epoch of the last record, offset of the next): how far a log goes, as those compare it who vote."""
        for segment in reversed(self._segments()):
            batches = segment.read()
            if batches:
                return batches[-1].epoch, batches[-1].next_offset
        snapshot = max(self.snapshots(), default=None)
        return (0, 0) if snapshot is None else (snapshot.epoch, snapshot.end_offset)

    def last_voters(self) -> VoterSet | None:
        """As the log says at its end, committed or not; None where it says nothing about voters."""
        for segment in reversed(self._segments()):
            segment.read()
            if segment.voters is not None:
                return segment.voters
        return None

    def content(self, batch: Batch) -> bytes:
        """The bytes of a batch that `batches` named just now."""
        for segment in reversed(self._segments()):
            if segment.batches and segment.batches[0].base_offset <= batch.base_offset:
                return segment.file.read(batch.position, batch.size)
        raise LookupError(f"no such batch: {batch}")

    def certain_segments(self) -> list[Segment]:
        """Those whose names any power loss leaves, oldest first."""
        directory = self._directory()
        return [] if directory is None else self._segments_of(directory.durable)

    def certain_snapshot(self) -> SnapshotId | None:
        """The latest that any power loss leaves."""
        directory = self._directory()
        found = {} if directory is None else _snapshots_of(directory.durable)
        return max((each for each, file in found.items() if file.certain_size() == file.size), default=None)

    def certain_end(self) -> int:
        """Where the log ends that any power loss leaves."""
        snapshot = self.certain_snapshot()
        # The last segment may be empty still.
        ends = [batch.next_offset for segment in self.certain_segments()[-2:] for batch in segment.certain()[-1:]]
        return max([0 if snapshot is None else snapshot.end_offset, *ends])

    def committed_note(self) -> int:
        """How far the log is committed, as the note beside it says now."""
        directory = self._directory()
        file = None if directory is None else directory.entries.get(COMMITTED_OFFSET)
        if not isinstance(file, FileNode):
            return 0
        try:
            return int(json.loads(file.read(0, file.size))["committedOffset"])
        except ValueError:
            return 0  # torn, and passed over by whoever reads it

    def snapshots(self) -> dict[SnapshotId, FileNode]:
        """Under their final names, without the one that only names the first voters."""
        directory = self._directory()
        found = {} if directory is None else _snapshots_of(directory.entries)
        return {each: file for each, file in found.items() if not each.is_first_voters}

    def _directory(self) -> DirectoryNode | None:
        found = self._machine.volume.find(self._path)
        return found if isinstance(found, DirectoryNode) else None

    def _segments(self) -> list[Segment]:
        directory = self._directory()
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


def _snapshots_of(entries: dict[str, Node]) -> dict[SnapshotId, FileNode]:
    found = {}
    for name, file in entries.items():
        if name.endswith(_SNAPSHOT):
            snapshot_id = parse_snapshot_name(name)
            if snapshot_id is not None and isinstance(file, FileNode):
                found[snapshot_id] = file
    return found
