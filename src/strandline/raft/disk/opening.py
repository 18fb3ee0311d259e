"""Opening the metadata log: which snapshots are usable, which part of the log is intact, how the two fit together.

Called by `storage`. The log is always opened as after a crash: scanned from its start and truncated at the first batch
that is not intact, unless that would lose committed records (`refuse_lost_metadata`): then nothing is changed, and the
node does not start. A node that refuses to start can be helped with a backup; one that starts without its topics treats
their data as stray, and a voter that lost what it acknowledged may elect a leader that lacks it.

Known to be committed: the end of the latest snapshot; the committed offset (`committed_offset`); and the start of the
latest epoch in `leader-epoch-checkpoint`, which is written when everything before it is on disk. Beyond that, if the
last writer kept the committed-offset file, the log may be torn in any way: a group of batches was being written. If it
did not, only the tail may be torn: intact batches after the damage may be committed ones.

A damaged snapshot is set aside when an older one and the log together have everything that was in it.
"""

from __future__ import annotations

import logging
from typing import Final

import msgspec

from strandline.log import names
from strandline.log.checkpoints import CorruptCheckpoint, read_epochs, topic_id_bytes
from strandline.log.integrity_check import IntactPrefix, intact_batch_after, intact_prefix
from strandline.log.partition_log import PartitionLog
from strandline.log.settings import LogSettings
from strandline.model.config_keys.broker import config_field
from strandline.model.errors import NodeFault
from strandline.model.ids import METADATA_PARTITION, METADATA_TOPIC_ID
from strandline.raft.disk.committed_offset import COMMITTED_OFFSET, CommittedOffset, read_committed_offset
from strandline.raft.disk.quorum_state import LOST_STATE_ADVICE, read_quorum_state
from strandline.raft.disk.snapshots import (
    DamagedSnapshot,
    Snapshot,
    list_snapshots,
    read_snapshot,
    remove_unfinished_snapshots,
)
from strandline.raft.machine.values import SnapshotId
from strandline.runtime.disk import Disk, make_durable_directory

_ADVICE: Final = f"Nothing was changed. {LOST_STATE_ADVICE}"
_DAMAGED_SUFFIX: Final = ".damaged"

logger = logging.getLogger(__name__)


class StorageSettings(msgspec.Struct, frozen=True):
    segment_bytes: int = config_field("metadata.log.segment.bytes")
    segment_ms: int = config_field("metadata.log.segment.ms")
    retention_bytes: int = config_field("metadata.max.retention.bytes")
    retention_ms: int = config_field("metadata.max.retention.ms")


class MetadataDamaged(NodeFault):
    """Committed metadata is missing. A voter cannot start without it; an observer may fetch it again."""

    def __init__(self, what: str, advice: str = _ADVICE) -> None:
        super().__init__(f"{what}. {advice}")
        self.what = what


def open_log(
    disk: Disk, path: str, settings: StorageSettings, wall_ms: int
) -> tuple[PartitionLog, list[SnapshotId], Snapshot | None]:
    """Blocking. The log, the usable snapshots (oldest first), and the content of the latest."""
    make_durable_directory(disk, path)
    state = read_quorum_state(disk, path)
    intact = intact_prefix(disk, path)
    snapshots, damaged, latest = _usable_snapshots(disk, path, intact)
    refuse_lost_metadata(disk, path, snapshots[-1] if snapshots else None, intact)
    for snapshot in damaged:
        disk.rename(f"{path}/{snapshot.file_name}", f"{path}/{snapshot.file_name}{_DAMAGED_SUFFIX}")
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
    _sync_log(disk, path, log)
    recorded = read_committed_offset(disk, path)
    known_epoch = max(state.epoch, 0 if recorded is None else recorded.epoch)
    if state.epoch > 0 and log.epochs.latest > known_epoch + 1:
        # A batch's epoch is not covered by its checksum. A leader may write in an epoch before the committed-offset
        # file and then quorum-state name it, so one epoch more is possible. `storage` records the epoch at each start:
        # a sole voter that is killed at this point again and again never gets further ahead.
        raise MetadataDamaged(
            f"{path} is damaged: its last records claim to be of epoch {log.epochs.latest}, but quorum-state has "
            f"epoch {state.epoch}",
            "Restore the metadata directory from a backup or from a copy, and start again",
        )
    snapshots = _reconcile(disk, path, log, snapshots)
    _write_topic_id(disk, path)
    return log, snapshots, latest


def _write_topic_id(disk: Disk, path: str) -> None:
    """Apache Kafka expects it. Not synced: after a power loss it is written again."""
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


def _sync_log(disk: Disk, path: str, log: PartitionLog) -> None:
    """Blocking. Syncs what a crash left in the page cache before anything depends on it.

    Up to the recorded committed offset, files and directory entries are synced already: after most stops that is all
    of the log, and the start is three syncs faster.
    """
    recorded = read_committed_offset(disk, path)
    if recorded is not None and recorded.offset >= log.log_end_offset:
        log.assume_flushed()
    elif log.size_bytes > 0:
        log.flush_after_crash()


def _usable_snapshots(
    disk: Disk, path: str, intact: IntactPrefix
) -> tuple[list[SnapshotId], list[SnapshotId], Snapshot | None]:
    """(usable, damaged, the content of the latest usable one)."""
    snapshots = [snapshot for snapshot in list_snapshots(disk, path) if not snapshot.is_bootstrap]
    damaged: list[SnapshotId] = []
    while snapshots:
        try:
            return snapshots, damaged, read_snapshot(disk, f"{path}/{snapshots[-1].file_name}")
        except DamagedSnapshot as damage:
            newest = snapshots.pop()
            damaged.append(newest)
            reaches_back_to = snapshots[-1].end_offset if snapshots else 0
            if intact.end_offset < newest.end_offset or _start_offset(disk, path) > reaches_back_to:
                raise MetadataDamaged(
                    f"{damage}, and the log and older snapshots do not have everything that was in it",
                    "Nothing was changed. Restore the file from a backup or from a copy and restart; or remove this "
                    f"voter from the quorum, start it without {path}, and add it again",
                ) from damage
            logger.warning("%s: doing without it, the log and older snapshots have everything that was in it", damage)
    return [], damaged, None


def _start_offset(disk: Disk, path: str) -> int:
    files = (names.parse_segment_file(name) for name in disk.list(path))
    return min((file.base_offset for file in files if file and file.suffix == names.LOG and not file.extra), default=0)


def _reconcile(disk: Disk, path: str, log: PartitionLog, snapshots: list[SnapshotId]) -> list[SnapshotId]:
    """Makes the log reach from the end of the oldest snapshot at least to the end of the latest. Returns the snapshots
    that are kept."""
    if not snapshots:
        if log.log_start_offset > 0:
            raise MetadataDamaged(
                f"{path} starts at offset {log.log_start_offset}, but the snapshot of the records before it is missing",
                "Restore a .checkpoint file that ends there or later",
            )
        return snapshots
    latest = snapshots[-1]
    if log.log_end_offset < latest.end_offset or _diverges(log, latest):
        truncation = log.begin_full_truncation(latest.end_offset)
        truncation.run()
        for segment in truncation.apply():
            segment.remove()
        log.assume_flushed()
    elif log.log_start_offset > latest.end_offset:
        raise MetadataDamaged(
            f"{path} starts at offset {log.log_start_offset}, after the end of its latest snapshot "
            f"({latest.end_offset}): the metadata in between is missing"
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


def _diverges(log: PartitionLog, latest: SnapshotId) -> bool:
    """Whether the log has another epoch at the snapshot's last record: the power was lost after a snapshot of the
    leader got its name and before the diverging log was truncated."""
    last = latest.end_offset - 1
    return log.log_start_offset <= last and log.epochs.epoch_for(last) != latest.epoch


def refuse_lost_metadata(disk: Disk, path: str, latest: SnapshotId | None, intact: IntactPrefix) -> None:
    """Blocking. Raises MetadataDamaged when committed metadata is missing from log and snapshots together."""
    in_snapshot = 0 if latest is None else latest.end_offset
    end_offset = max(intact.end_offset, in_snapshot)
    recorded = read_committed_offset(disk, path)
    known, source = _known_committed(disk, path, recorded, intact)
    if end_offset < known:
        raise MetadataDamaged(
            f"{_where(path, intact)}, but metadata up to offset {known} was committed, as {source} says: "
            f"everything from offset {end_offset} on would be lost"
        )
    if intact.damage is None or _is_of_last_writer(recorded, disk, path):
        return
    later = _later_metadata(disk, intact, end_offset)
    if later is not None:
        raise MetadataDamaged(f"{_where(path, intact)}, but {later}: this is not a torn tail")


def _known_committed(disk: Disk, path: str, recorded: CommittedOffset | None, intact: IntactPrefix) -> tuple[int, str]:
    """The offset below which everything was committed, and the file that says so."""
    known, source = (0, "") if recorded is None else (recorded.offset, f"{path}/{COMMITTED_OFFSET}")
    epochs_path = f"{path}/{names.EPOCH_CHECKPOINT}"
    try:
        epochs = read_epochs(disk, epochs_path)
    except CorruptCheckpoint:
        # It is rebuilt from the batches when the log is opened.
        return known, source
    if epochs:
        # Kafka may write an epoch before its first record is on disk, but not before the segment file exists.
        start_offset = epochs[-1][1] + (intact.file is None)
        if start_offset > known:
            return start_offset, epochs_path
    return known, source


def _is_of_last_writer(recorded: CommittedOffset | None, disk: Disk, path: str) -> bool:
    """A writer of the committed-offset file names each epoch there before quorum-state does."""
    return recorded is not None and recorded.epoch >= read_quorum_state(disk, path).epoch


def _later_metadata(disk: Disk, intact: IntactPrefix, end_offset: int) -> str | None:
    if intact.later_files:
        return f"{intact.later_files[0]} holds later metadata"
    assert intact.file is not None, "damage is in a file"
    offset = intact_batch_after(disk, intact.file, intact.position, end_offset)
    return None if offset is None else f"intact metadata follows it, at offset {offset}"


def _where(path: str, intact: IntactPrefix) -> str:
    if intact.file is None:
        return f"{path} has no .log file"
    if intact.damage is None:
        return f"{intact.file} ends at byte {intact.position}, at offset {intact.end_offset}"
    return f"{intact.file} is damaged at byte {intact.position}, at offset {intact.end_offset} ({intact.damage})"
