"""Snapshot files of the metadata: `<end offset, 20 digits>-<epoch, 10 digits>.checkpoint`.

The end offset is the first one *not* contained, the epoch that of the last contained record. Inside: record batches
with offsets from 0; a header, control records of the quorum, the records that rebuild the image, a footer. A file
without its footer is not a snapshot. While written here or fetched from the leader it is named `.part`; it gets its
final name when it is synced.

`storage` lists, writes and reads them. Formatting writes two special ones: `bootstrap.checkpoint` (which the first
active controller appends to an empty log) and 0-0 (the first voters of a dynamic quorum; KIP-853).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Final

from strandline.model.errors import NodeFault
from strandline.protocol.messages.control_records import (
    KRaftVersionRecord,
    SnapshotFooterRecord,
    SnapshotHeaderRecord,
    VotersRecord,
)
from strandline.protocol.types import Message
from strandline.raft.disk.batches import (
    checked_batches,
    control_records,
    data_slices,
    encode_control_batch,
    encode_data_batch,
)
from strandline.raft.machine.values import ControlRecord, SnapshotId
from strandline.raft.machine.voters import VoterSet
from strandline.records.batch import batches
from strandline.runtime.disk import Buffer, Disk, File, make_durable_directory

BOOTSTRAP_CHECKPOINT: Final = "bootstrap.checkpoint"
_NAME: Final = re.compile(r"(\d{20})-(\d{10})\.checkpoint")
_PART: Final = ".part"


def parse_snapshot_name(name: str) -> SnapshotId | None:
    match = _NAME.fullmatch(name)
    return SnapshotId(int(match[1]), int(match[2])) if match else None


def list_snapshots(disk: Disk, directory: str) -> list[SnapshotId]:
    """Oldest first."""
    return sorted(found for name in disk.list(directory) if (found := parse_snapshot_name(name)) is not None)


def remove_unfinished_snapshots(disk: Disk, directory: str) -> None:
    for name in disk.list(directory):
        if name.endswith((".checkpoint" + _PART, ".checkpoint.deleted")):
            disk.remove(f"{directory}/{name}")


class DamagedSnapshot(NodeFault):
    """The file is not a whole snapshot. An older one and the log may have everything that was in it."""


class UnwrittenSnapshot(Exception):
    """The disk is full. What was written of the snapshot has been removed."""


class Snapshot:
    """A whole snapshot in memory; its records are decoded on iteration."""

    __slots__ = ("_data", "kraft_version", "path", "voters")

    def __init__(self, path: str, data: bytes, kraft_version: int, voters: VoterSet | None) -> None:
        self.path = path
        self._data = data
        self.kraft_version = kraft_version
        self.voters = voters
        """None while the voters are configured (kraft.version 0)."""

    def slices(self) -> Iterator[list[Message]]:
        """The records that rebuild the image, a few hundred at a time."""
        for position, header in batches(self._data):
            if not header.is_control:
                yield from data_slices(self._data, position, header, self.path)

    def records(self) -> Iterator[Message]:
        for slice_ in self.slices():
            yield from slice_


def read_snapshot(disk: Disk, path: str) -> Snapshot:
    """Blocking. Reads a snapshot; DamagedSnapshot unless it is whole: a truncated one would silently lose topics."""
    data = disk.read(path)
    control: list[ControlRecord] = []
    end = 0
    try:
        for position, header in checked_batches(data, path):
            end = position + header.size_bytes
            if header.is_control:
                control.extend(record for _, record in control_records(data, position, header, path))
    except NodeFault as damage:
        raise DamagedSnapshot(f"{damage}: this is not a whole snapshot") from damage
    if not control or not isinstance(control[0], SnapshotHeaderRecord):
        raise DamagedSnapshot(f"{path} does not start with a snapshot header")
    if not isinstance(control[-1], SnapshotFooterRecord) or end != len(data):
        raise DamagedSnapshot(f"{path} is truncated: it has no footer at its end")
    kraft_version, voters = 0, None
    for record in control:
        if isinstance(record, KRaftVersionRecord):
            kraft_version = record.kraft_version
        elif isinstance(record, VotersRecord):
            voters = VoterSet.of_record(record)
    return Snapshot(path, data, kraft_version, voters)


class SnapshotReceiver:
    """A snapshot that is fetched from the leader in chunks, which need not end with a batch."""

    def __init__(self, disk: Disk, path: str) -> None:
        self._disk = disk
        self._path = path
        self._file: File = disk.open(path + _PART, create=True)
        self._file.truncate(0)

    def write(self, position: int, data: Buffer) -> None:
        """Writes a chunk to the page cache."""
        self._file.write_at(position, data)

    def finish(self) -> Snapshot:
        """Blocking. Syncs the file and reads it back before it gets its final name. Raises DamagedSnapshot."""
        self._file.sync()
        self._file.close()
        snapshot = read_snapshot(self._disk, self._path + _PART)
        self._disk.rename(self._path + _PART, self._path)
        self._disk.sync_dir(self._path.rpartition("/")[0])
        snapshot.path = self._path
        return snapshot

    def discard(self) -> None:
        with suppress(OSError):
            self._file.close()
            self._disk.remove(self._path + _PART)


class SnapshotWriter:
    """Writes one file: `append` as often as needed, then `finish` (which syncs: offload it) or `discard`."""

    def __init__(self, disk: Disk, path: str, *, epoch: int, metadata_version: int) -> None:
        self._disk = disk
        self._path = path
        self._epoch = epoch
        self._metadata_version = metadata_version
        self._file: File = disk.open(path + _PART, create=True)
        self._file.truncate(0)
        self._offset = 0
        self.size_bytes = 0

    def begin(
        self, *, last_timestamp: int, wall_ms: int, kraft_version: int = 0, voters: VoterSet | None = None
    ) -> None:
        records: list[ControlRecord] = [SnapshotHeaderRecord(version=0, last_contained_log_timestamp=last_timestamp)]
        if kraft_version > 0:
            records.append(KRaftVersionRecord(version=0, kraft_version=kraft_version))
            if voters is not None:
                records.append(voters.record())
        self._write_control(records, wall_ms)

    def append(self, records: Sequence[Message], wall_ms: int) -> None:
        batch = encode_data_batch(
            records,
            base_offset=self._offset,
            epoch=self._epoch,
            timestamp=wall_ms,
            metadata_version=self._metadata_version,
        )
        self._write(batch, len(records))

    def finish(self, wall_ms: int) -> None:
        """Blocking. Makes the snapshot durable under its final name."""
        self._write_control([SnapshotFooterRecord(version=0)], wall_ms)
        self._file.sync()
        self._file.close()
        self._disk.rename(self._path + _PART, self._path)
        self._disk.sync_dir(self._path.rpartition("/")[0])

    def discard(self) -> None:
        """Removes the file after a failure; what cannot be removed now is removed at the next start."""
        with suppress(OSError):
            self._file.close()
            self._disk.remove(self._path + _PART)

    def _write_control(self, records: Sequence[ControlRecord], wall_ms: int) -> None:
        batch = encode_control_batch(records, base_offset=self._offset, epoch=self._epoch, timestamp=wall_ms)
        self._write(batch, len(records))

    def _write(self, batch: bytearray, count: int) -> None:
        self._file.write_at(self.size_bytes, batch)
        self.size_bytes += len(batch)
        self._offset += count


def write_bootstrap_checkpoint(
    disk: Disk, directory: str, records: Sequence[Message], *, metadata_version: int, wall_ms: int
) -> None:
    """What formatting leaves for the first active controller: feature levels and SCRAM credentials."""
    writer = SnapshotWriter(disk, f"{directory}/{BOOTSTRAP_CHECKPOINT}", epoch=0, metadata_version=metadata_version)
    writer.begin(last_timestamp=0, wall_ms=wall_ms)
    writer.append(records, wall_ms)
    writer.finish(wall_ms)


def read_bootstrap_checkpoint(disk: Disk, directory: str) -> list[Message] | None:
    """The records of bootstrap.checkpoint; None when the directory has none (formatted as a broker, or before 3.3)."""
    path = f"{directory}/{BOOTSTRAP_CHECKPOINT}"
    return list(read_snapshot(disk, path).records()) if disk.exists(path) else None


def write_first_voters(disk: Disk, directory: str, voters: VoterSet, *, wall_ms: int) -> None:
    """The 0-0 snapshot in the directory of the metadata partition, which is created: kraft.version 1, first voters."""
    make_durable_directory(disk, directory)
    path = f"{directory}/{SnapshotId(0, 0).file_name}"
    writer = SnapshotWriter(disk, path, epoch=0, metadata_version=0)
    writer.begin(last_timestamp=wall_ms, wall_ms=wall_ms, kraft_version=1, voters=voters)
    writer.finish(wall_ms)
