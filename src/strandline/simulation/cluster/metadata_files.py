"""The metadata directory of a node, read from its volume without its process: log, quorum-state, snapshots."""

from __future__ import annotations

import json

import msgspec

from strandline.model.ids import METADATA_TOPIC
from strandline.protocol.messages.control_records import VotersRecord
from strandline.raft.disk.batches import read_batches
from strandline.raft.disk.committed_offset import COMMITTED_OFFSET
from strandline.raft.disk.quorum_state import QUORUM_STATE
from strandline.raft.disk.snapshots import parse_snapshot_name
from strandline.raft.machine.values import SnapshotId
from strandline.raft.machine.voters import VoterSet
from strandline.simulation.cluster.log_files import Batch, LogFiles, Segment
from strandline.simulation.volume import FileNode, Node
from strandline.simulation.world import Machine

METADATA_DIRECTORY = f"/data/{METADATA_TOPIC}-0"
_SNAPSHOT = ".checkpoint"


class QuorumStateFile(msgspec.Struct, frozen=True):
    """The content of a quorum-state file."""

    epoch: int
    leader_id: int
    voted_id: int
    voted_directory_id: str


class MetadataFiles(LogFiles):
    def __init__(self, machine: Machine, path: str = METADATA_DIRECTORY) -> None:
        super().__init__(machine, path)
        self._voters: dict[int, tuple[list[Batch], VoterSet | None]] = {}
        """The control batches read of each segment, and the last voter set among them."""

    def quorum_state(self, *, cached: bool = False) -> QuorumStateFile | None:
        """The quorum-state that is durable, or `cached`; None if there is none."""
        directory = self.directory()
        entries = {} if directory is None else directory.entries if cached else directory.durable
        file = entries.get(QUORUM_STATE)
        if not isinstance(file, FileNode) or (not cached and file.certain_size() < file.size):
            return None
        try:
            data = json.loads(file.read(0, file.size))
        except ValueError:
            return None
        return QuorumStateFile(data["leaderEpoch"], data["leaderId"], data["votedId"], data.get("votedDirectoryId", ""))

    def end(self) -> tuple[int, int]:
        """(Epoch of the last record, end offset): what voters compare."""
        last = self.last_batch()
        if last is not None:
            return last.epoch, last.next_offset
        snapshot = max(self.snapshots(), default=None)
        return (0, 0) if snapshot is None else (snapshot.epoch, snapshot.end_offset)

    def last_voters(self) -> VoterSet | None:
        """The last voter set in the log, committed or not; None if the log has none."""
        for segment in reversed(self.segments()):
            segment.read()
            controls, voters = self._voters.get(segment.file.number, ([], None))
            if controls != segment.controls:
                controls, voters = list(segment.controls), _last_voters(segment)
                self._voters[segment.file.number] = (controls, voters)
            if voters is not None:
                return voters
        return None

    def durable_snapshot(self) -> SnapshotId | None:
        """The latest snapshot that survives any power loss."""
        directory = self.directory()
        found = {} if directory is None else _snapshots_of(directory.durable)
        return max((each for each, file in found.items() if file.certain_size() == file.size), default=None)

    def durable_log_end(self) -> int:
        """Including what a durable snapshot covers."""
        snapshot = self.durable_snapshot()
        return max(super().durable_log_end(), 0 if snapshot is None else snapshot.end_offset)

    def committed_offset_file(self) -> int:
        """The committed offset that the file beside the log states now."""
        directory = self.directory()
        file = None if directory is None else directory.entries.get(COMMITTED_OFFSET)
        if not isinstance(file, FileNode):
            return 0
        try:
            return int(json.loads(file.read(0, file.size))["committedOffset"])
        except ValueError:
            return 0  # torn: the node ignores it as well

    def snapshots(self) -> dict[SnapshotId, FileNode]:
        """Completed snapshots, except the one that holds only the initial voters."""
        directory = self.directory()
        found = {} if directory is None else _snapshots_of(directory.entries)
        return {each: file for each, file in found.items() if not each.is_bootstrap}


def _last_voters(segment: Segment) -> VoterSet | None:
    for batch in reversed(segment.controls):
        (read,) = read_batches(segment.file.read(batch.position, batch.size), "a control batch")
        for record in reversed(read.records):
            if isinstance(record, VotersRecord):
                return VoterSet.of_record(record)
    return None


def _snapshots_of(entries: dict[str, Node]) -> dict[SnapshotId, FileNode]:
    found = {}
    for name, file in entries.items():
        if name.endswith(_SNAPSHOT):
            snapshot_id = parse_snapshot_name(name)
            if snapshot_id is not None and isinstance(file, FileNode):
                found[snapshot_id] = file
    return found
