"""Opening the metadata log: which snapshots are usable, what of the log is whole, and how the two fit together.

Called by `storage`. The log is always opened as after a crash, read from the beginning and cut at the first batch
that is not whole, unless that would cut off what was committed (see `examination`): then nothing is changed, and the
node does not start. A damaged snapshot is done without when an older one and the log have all that was in it.
"""

from __future__ import annotations

import logging
from typing import Final

import msgspec

from strandline.log import names
from strandline.log.checkpoints import topic_id_bytes
from strandline.log.integrity_check import IntactPrefix, intact_prefix
from strandline.log.partition_log import PartitionLog
from strandline.log.settings import LogSettings
from strandline.model.config_keys.broker import config_field
from strandline.model.ids import METADATA_PARTITION, METADATA_TOPIC_ID
from strandline.raft.disk.committed_offset import read_committed_offset
from strandline.raft.disk.examination import MetadataDamaged, refuse_lost_metadata
from strandline.raft.disk.quorum_state import read_quorum_state
from strandline.raft.disk.snapshots import (
    DamagedSnapshot,
    Snapshot,
    list_snapshots,
    read_snapshot,
    remove_unfinished_snapshots,
)
from strandline.raft.machine.values import SnapshotId
from strandline.runtime.disk import Disk, make_durable_directory

_DAMAGED: Final = ".damaged"

logger = logging.getLogger(__name__)


class StorageSettings(msgspec.Struct, frozen=True):
    segment_bytes: int = config_field("metadata.log.segment.bytes")
    segment_ms: int = config_field("metadata.log.segment.ms")
    retention_bytes: int = config_field("metadata.max.retention.bytes")
    retention_ms: int = config_field("metadata.max.retention.ms")


def open_log(
    disk: Disk, path: str, settings: StorageSettings, wall_ms: int
) -> tuple[PartitionLog, list[SnapshotId], Snapshot | None]:
    """Blocking. The log, the usable snapshots (oldest first), and the latest of them."""
    make_durable_directory(disk, path)
    state = read_quorum_state(disk, path)
    whole = intact_prefix(disk, path)
    snapshots, damaged, latest = _usable_snapshots(disk, path, whole)
    refuse_lost_metadata(disk, path, snapshots[-1] if snapshots else None, whole)
    for snapshot in damaged:
        disk.rename(f"{path}/{snapshot.file_name}", f"{path}/{snapshot.file_name}{_DAMAGED}")
    remove_unfinished_snapshots(disk, path)
    log = PartitionLog.open(
        disk,
        path,
        METADATA_PARTITION,
        LogSettings(
            segment_bytes=settings.segment_bytes,
            segment_ms=settings.segment_ms,
            retention_ms=-1,
            retention_bytes=-1,
        ),
        recovery_point=0,
        clean=False,
        wall_ms=wall_ms,
    )
    _sync_what_is_there(disk, path, log)
    note = read_committed_offset(disk, path)
    named = max(state.epoch, 0 if note is None else note.epoch)
    if state.epoch > 0 and log.epochs.latest > named + 1:
        # A batch's epoch is outside of its checksum. A leader writes in the epoch that the note, and then quorum-state,
        # is about to name; lives of a sole voter that end in between are told apart by the note (see `storage`).
        raise MetadataDamaged(
            f"{path} is damaged: its last records claim to be of epoch {log.epochs.latest}, but quorum-state knows of "
            f"epoch {state.epoch}",
            "Restore the metadata directory from a backup or from a copy, and start again",
        )
    snapshots = _fit_together(disk, path, log, snapshots)
    _name_topic(disk, path)
    return log, snapshots, latest


def _name_topic(disk: Disk, path: str) -> None:
    """For Apache Kafka, which looks for it. Not synced: a power loss costs no more than writing it again."""
    name, content = f"{path}/partition.metadata", topic_id_bytes(METADATA_TOPIC_ID)
    if disk.exists(name) and disk.read(name) == content:
        return
    file = disk.open(name + ".tmp", create=True)
    try:
        file.truncate(0)
        file.write_at(0, content)
    finally:
        file.close()
    disk.rename(name + ".tmp", name)


def _sync_what_is_there(disk: Disk, path: str, log: PartitionLog) -> None:
    """Blocking. Whatever a crash left in the cache is on disk before it is built upon.

    Where the note reaches, that is so already, files and their names: after most stops that is all of the log, and a
    start is three syncs faster.
    """
    note = read_committed_offset(disk, path)
    if note is not None and note.offset >= log.log_end_offset:
        log.assume_flushed()
    elif log.size_bytes > 0:
        log.flush_after_crash()


def _usable_snapshots(
    disk: Disk, path: str, whole: IntactPrefix
) -> tuple[list[SnapshotId], list[SnapshotId], Snapshot | None]:
    """(usable, damaged, the latest of the usable ones)."""
    snapshots = [snapshot for snapshot in list_snapshots(disk, path) if not snapshot.is_bootstrap]
    damaged: list[SnapshotId] = []
    while snapshots:
        try:
            return snapshots, damaged, read_snapshot(disk, f"{path}/{snapshots[-1].file_name}")
        except DamagedSnapshot as damage:
            newest = snapshots.pop()
            damaged.append(newest)
            reaches_back_to = snapshots[-1].end_offset if snapshots else 0
            if whole.end_offset < newest.end_offset or _start_offset(disk, path) > reaches_back_to:
                raise MetadataDamaged(
                    f"{damage}, and the log and older snapshots do not have all that was in it",
                    "Nothing was changed. Restore the file from a backup or from a copy and start again; or let this "
                    f"voter leave the quorum, start it without {path}, and let it join again",
                ) from damage
            logger.warning("%s: doing without it, the log and older snapshots have all that was in it", damage)
    return [], damaged, None


def _start_offset(disk: Disk, path: str) -> int:
    files = (names.parse_segment_file(name) for name in disk.list(path))
    return min((file.base_offset for file in files if file and file.suffix == names.LOG and not file.extra), default=0)


def _fit_together(disk: Disk, path: str, log: PartitionLog, snapshots: list[SnapshotId]) -> list[SnapshotId]:
    """The log reaches from the end of the oldest snapshot at least to the end of the latest; the snapshots kept."""
    if not snapshots:
        if log.log_start_offset > 0:
            raise MetadataDamaged(
                f"{path} begins at offset {log.log_start_offset}, but the snapshot of what came before is missing",
                "Restore a .checkpoint file that ends there or later",
            )
        return snapshots
    latest = snapshots[-1]
    if log.log_end_offset < latest.end_offset or _contradicts(log, latest):
        truncation = log.begin_full_truncation(latest.end_offset)
        truncation.run()
        for segment in truncation.apply():
            segment.remove()
        log.assume_flushed()
    elif log.log_start_offset > latest.end_offset:
        raise MetadataDamaged(
            f"{path} begins at offset {log.log_start_offset}, after the end of its latest snapshot "
            f"({latest.end_offset}): metadata in between is missing"
        )
    if log.log_end_offset == latest.end_offset and log.log_start_offset == latest.end_offset:
        log.epochs.assign(latest.epoch, latest.end_offset)
    log.advance_high_watermark(latest.end_offset)
    surplus = [snapshot for snapshot in snapshots if snapshot.end_offset < log.log_start_offset]
    for snapshot in surplus:
        disk.remove(f"{path}/{snapshot.file_name}")
    snapshots = snapshots[len(surplus) :]
    if log.log_start_offset > 0:
        log.delete_records_before(snapshots[0].end_offset)
    return snapshots


def _contradicts(log: PartitionLog, latest: SnapshotId) -> bool:
    """Whether another epoch wrote the last record that is in the snapshot: the power went between taking over a
    snapshot of the leader and giving up the log that had gone another way."""
    last = latest.end_offset - 1
    return log.log_start_offset <= last and log.epochs.epoch_for(last) != latest.epoch
