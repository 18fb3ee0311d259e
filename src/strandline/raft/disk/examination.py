"""Whether what the metadata log would lose by being opened is a torn tail, or metadata that was committed.

Called by `opening` before the log is opened, for opening cuts it at the first batch that is not whole. Nothing is
changed here. A node that refuses to start can be helped with a backup; one that starts without its topics takes their
data for strays, and a voter that forgot what it acknowledged may elect a leader that never knew it.

What is known to have been committed: the end of the latest snapshot, the note (see `committed`), and the start of the
latest epoch in `leader-epoch-checkpoint`, which is written when everything before it is on disk. Beyond that, if the
note was kept by whoever wrote last, the rest of the log may be torn in any way: a group of batches was on its way to
the disk. If it was not, only a tail may be torn: whole batches behind the damage may be committed ones.
"""

from __future__ import annotations

from typing import Final

from strandline.log import names
from strandline.log.checkpoints import CorruptCheckpoint, read_epochs
from strandline.log.integrity_check import IntactPrefix, intact_batch_after
from strandline.model.errors import NodeFault
from strandline.raft.disk.committed_offset import COMMITTED_OFFSET, CommittedOffset, read_committed_offset
from strandline.raft.disk.quorum_state import LOST_STATE_ADVICE, read_quorum_state
from strandline.raft.machine.values import SnapshotId
from strandline.runtime.disk import Disk

_WHAT_TO_DO: Final = f"Nothing was changed. {LOST_STATE_ADVICE}"


class MetadataDamaged(NodeFault):
    """CommittedOffset metadata is missing here. A voter cannot do without; who has no vote may fetch it again."""

    def __init__(self, what: str, what_to_do: str = _WHAT_TO_DO) -> None:
        super().__init__(f"{what}. {what_to_do}")
        self.what = what


def refuse_lost_metadata(disk: Disk, path: str, latest: SnapshotId | None, whole: IntactPrefix) -> None:
    """Blocking. Raises MetadataDamaged when committed metadata is missing from log and snapshots together."""
    in_snapshot = 0 if latest is None else latest.end_offset
    end_offset = max(whole.end_offset, in_snapshot)
    note = read_committed_offset(disk, path)
    known, source = _known_committed(disk, path, note, whole)
    if end_offset < known:
        raise MetadataDamaged(
            f"{_where(path, whole)}, but metadata up to offset {known} was committed, as {source} says: "
            f"everything from offset {end_offset} on would be lost"
        )
    if whole.damage is None or _is_of_last_writer(note, disk, path):
        return
    behind = _whatever_follows(disk, whole, end_offset)
    if behind is not None:
        raise MetadataDamaged(f"{_where(path, whole)}, but {behind}: this is no torn end of a log")


def _known_committed(disk: Disk, path: str, note: CommittedOffset | None, whole: IntactPrefix) -> tuple[int, str]:
    """The offset below which everything was committed, and the file that says so."""
    known, source = (0, "") if note is None else (note.offset, f"{path}/{COMMITTED_OFFSET}")
    epochs_path = f"{path}/{names.EPOCH_CHECKPOINT}"
    try:
        epochs = read_epochs(disk, epochs_path)
    except CorruptCheckpoint:
        # Made anew from the batches when the log is opened.
        return known, source
    if epochs:
        # Kafka names an epoch before its first record is on disk, though never before the file to hold it is there.
        start_offset = epochs[-1][1] + (whole.file is None)
        if start_offset > known:
            return start_offset, epochs_path
    return known, source


def _is_of_last_writer(note: CommittedOffset | None, disk: Disk, path: str) -> bool:
    """Whoever keeps the note names each epoch there before quorum-state does."""
    return note is not None and note.epoch >= read_quorum_state(disk, path).epoch


def _whatever_follows(disk: Disk, whole: IntactPrefix, end_offset: int) -> str | None:
    if whole.later_files:
        return f"{whole.later_files[0]} holds later metadata"
    assert whole.file is not None, "damage is in a file"
    offset = intact_batch_after(disk, whole.file, whole.position, end_offset)
    return None if offset is None else f"whole metadata follows it, at offset {offset}"


def _where(path: str, whole: IntactPrefix) -> str:
    if whole.file is None:
        return f"{path} has no .log file"
    if whole.damage is None:
        return f"{whole.file} ends at byte {whole.position}, at offset {whole.end_offset}"
    return f"{whole.file} is damaged at byte {whole.position}, at offset {whole.end_offset} ({whole.damage})"
