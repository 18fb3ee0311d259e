"""Finds the metadata files of a node and reads them without changing them, for `cli/metadata`.

The node may be running: its log grows, is truncated at either end, and its last batch may be incomplete. So nothing is
locked, nothing is opened for writing, and an incomplete batch is the end. Strandline stores the committed offset of the
log; records behind it are not shown.
"""

from __future__ import annotations

import os
from collections.abc import Iterator

import msgspec

from strandline.cli.errors import CommandFailed
from strandline.cli.log_dump import MAX_BATCH_BYTES
from strandline.model.errors import NodeFault
from strandline.model.ids import METADATA_TOPIC
from strandline.raft.disk.committed_offset import read_committed_offset
from strandline.raft.disk.quorum_state import read_quorum_state
from strandline.raft.disk.snapshots import list_snapshots, parse_snapshot_name
from strandline.raft.machine.values import SnapshotId
from strandline.records.batch import HEADER_SIZE, BatchHeader, CorruptBatch, crc_ok, read_header
from strandline.runtime.disk import SystemDisk

PARTITION = f"{METADATA_TOPIC}-0"


class MetadataFiles(msgspec.Struct, frozen=True):
    """A metadata partition directory, or one snapshot in it."""

    directory: str
    snapshot_only: SnapshotId | None = None

    @property
    def disk(self) -> SystemDisk:
        return SystemDisk()

    def snapshots(self) -> list[SnapshotId]:
        """Oldest first, without bootstrap snapshots, which hold only the first voters."""
        if self.snapshot_only is not None:
            return [self.snapshot_only]
        return [each for each in list_snapshots(self.disk, self.directory) if not each.is_bootstrap]

    def path_of(self, snapshot: SnapshotId) -> str:
        return os.path.join(self.directory, snapshot.file_name)

    def segments(self) -> list[int]:
        """Base offsets, in order."""
        if self.snapshot_only is not None:
            return []
        names = os.listdir(self.directory)
        return sorted(int(name[:20]) for name in names if name.endswith(".log") and name[:20].isdigit())

    def committed(self) -> int | None:
        """The first offset that is not known to be committed; None if the node does not store it."""
        stored = read_committed_offset(self.disk, self.directory)
        if stored is None:
            return None
        try:
            # If Apache Kafka has run here since, the quorum has a later epoch than the stored offset.
            is_current = stored.epoch >= read_quorum_state(self.disk, self.directory).epoch
        except NodeFault:
            is_current = True
        return stored.offset if is_current else None

    def batches(self, start: int, end: int | None = None) -> Iterator[tuple[BatchHeader, bytes]]:
        """Complete batches with any offset from `start` up to (not including) `end`."""
        bases = self.segments()
        first = max((index for index, base in enumerate(bases) if base <= start), default=0)
        for base in bases[first:]:
            if end is not None and base >= end:
                return
            for header, batch in _segment(os.path.join(self.directory, f"{base:020d}.log"), start):
                if end is not None and header.base_offset >= end:
                    return
                yield header, batch

    def end_offset(self) -> int:
        """The end of the log or of the latest snapshot, whichever is higher."""
        bases = self.segments()
        end = max([0, *(each.end_offset for each in self.snapshots())])
        for header, _ in self.batches(bases[-1]) if bases else ():
            end = max(end, header.next_offset)
        return end


def _segment(path: str, start: int) -> Iterator[tuple[BatchHeader, bytes]]:
    try:
        with open(path, "rb") as file:
            while len(head := file.read(HEADER_SIZE)) == HEADER_SIZE:
                header = read_header(head)
                size = header.size_bytes - HEADER_SIZE
                if not 0 <= size <= MAX_BATCH_BYTES:
                    return
                if header.next_offset <= start:
                    file.seek(size, os.SEEK_CUR)
                    continue
                batch = head + file.read(size)
                if len(batch) < header.size_bytes or not crc_ok(batch, 0, len(batch)):
                    return
                yield header, batch
    except (FileNotFoundError, CorruptBatch):
        # The segment was deleted after a new snapshot, or its last batch is incomplete.
        return


def find_metadata(path: str, node_id: int | None = None) -> MetadataFiles:
    """`path`: a directory of `strandline up`, a log directory, a metadata partition, or a file in one."""
    path = os.path.abspath(path)
    if os.path.isfile(path):
        return _of_file(path)
    if not os.path.isdir(path):
        raise CommandFailed(f"{path}: no such file or directory; give the directory of the metadata with --data")
    if os.path.exists(os.path.join(path, "cluster.json")):
        return _of_cluster(path, node_id)
    if node_id is not None:
        raise CommandFailed(f"--node chooses among the nodes of a cluster.json, and {path} has none")
    return _of_directory(path)


def _of_file(path: str) -> MetadataFiles:
    name = os.path.basename(path)
    if name.endswith(".properties"):
        return _of_directory(_log_directory(path))
    snapshot = parse_snapshot_name(name)
    if snapshot is None and not name.endswith(".log"):
        raise CommandFailed(
            f"{path} is not a metadata file: give a .log or .checkpoint in a {PARTITION} directory, or the directory"
        )
    return MetadataFiles(os.path.dirname(path), snapshot)


def _of_directory(path: str) -> MetadataFiles:
    partition = os.path.join(path, PARTITION)
    if os.path.isdir(partition):
        return MetadataFiles(partition)
    names = os.listdir(path)
    if any((name.endswith(".log") and name[:20].isdigit()) or parse_snapshot_name(name) for name in names):
        return MetadataFiles(path)
    raise CommandFailed(f"{path} holds no metadata: there is no {PARTITION} in it. Has its node been started?")


def _of_cluster(directory: str, node_id: int | None) -> MetadataFiles:
    """The node with this id, or the one with the highest offset."""
    from strandline.launch.cluster_state import StateUnreadable, read_state

    try:
        state = read_state(directory)
    except StateUnreadable as error:
        raise CommandFailed(str(error)) from error
    nodes = state.nodes if state is not None else []
    chosen = [node for node in nodes if node_id in (None, node.id)]
    if nodes and not chosen:
        raise CommandFailed(
            f"there is no node {node_id} in {directory}: the nodes are {', '.join(str(n.id) for n in nodes)}"
        )
    found = []
    for node in chosen:
        properties = node.properties if os.path.exists(node.properties) else None
        partition = os.path.join(_log_directory(properties) if properties else node.data, PARTITION)
        if os.path.isdir(partition):
            found.append(MetadataFiles(partition))
    if not found:
        raise CommandFailed(f"no node of {directory} has any metadata yet: have they been started?")
    return found[0] if len(found) == 1 else max(found, key=lambda files: files.committed() or files.end_offset())


def _log_directory(properties: str) -> str:
    from strandline.node.config import Config, InvalidConfig

    try:
        return Config.load(properties).metadata_log_dir
    except InvalidConfig as error:
        raise CommandFailed(str(error)) from error
