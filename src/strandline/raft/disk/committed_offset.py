"""How far the metadata log is committed, noted beside it (`committed-offset`).

It serves two ends. A node that starts may replay its own log that far before it hears from anybody. And a loss shows:
the log alone cannot tell, for one sync writes many batches, so after a power loss whole batches may follow a torn one,
just as they do when a byte has rotted in the middle. Kafka has no such file and passes over names it does not know.

Invariant: the note never says more than was both committed and synced here before. It is synced itself when an epoch
begins and when the log is closed; in between it is only written, in place and within one sector. A power loss may leave
an older note, which is as true as the last; a killed process leaves the last.

It names the epoch it was written in, and it does so before `quorum-state` names that epoch: a quorum-state of a later
epoch shows that somebody who keeps no note wrote since.
"""

from __future__ import annotations

import json
import logging
from typing import Final

import msgspec

from strandline.runtime.disk import Disk, File

COMMITTED_OFFSET: Final = "committed-offset"
# Always the same size: writing in place never has to cut.
_SIZE_BYTES: Final = 128

logger = logging.getLogger(__name__)


class CommittedOffset(msgspec.Struct, frozen=True):
    epoch: int
    offset: int
    """The first offset not known to be committed."""


def read_committed_offset(disk: Disk, directory: str) -> CommittedOffset | None:
    """Blocking. None when there is no note, or none that makes sense: the log itself may well be whole."""
    path = f"{directory}/{COMMITTED_OFFSET}"
    if not disk.exists(path):
        return None
    try:
        data = json.loads(disk.read(path))
        epoch, offset = data["leaderEpoch"], data["committedOffset"]
        if type(epoch) is not int or type(offset) is not int:
            raise ValueError(f"{epoch!r} and {offset!r} are not whole numbers")
        return CommittedOffset(epoch, offset)
    except (ValueError, KeyError, TypeError) as error:
        logger.warning("%s cannot be read and is passed over: %r", path, error)
        return None


class CommittedOffsetFile:
    """The file, for as long as the log is open. Written on the event loop, to the page cache; syncing blocks.

    The entry of a new file is synced with the directory, by whoever writes `quorum-state` there.
    """

    def __init__(self, disk: Disk, directory: str) -> None:
        self._disk = disk
        self._path = f"{directory}/{COMMITTED_OFFSET}"
        self._file: File | None = None
        self._epoch_synced = True
        self.committed = read_committed_offset(disk, directory) or CommittedOffset(-1, 0)

    def begin_epoch(self, epoch: int) -> None:
        self._write(CommittedOffset(epoch, self.committed.offset))
        self._epoch_synced = False

    def rise(self, offset: int) -> None:
        if offset > self.committed.offset:
            self._write(CommittedOffset(self.committed.epoch, offset))

    def sync_epoch(self) -> None:
        """Blocking. Nothing to do unless an epoch began since the last time."""
        if not self._epoch_synced:
            self.sync()

    def sync(self) -> None:
        """Blocking."""
        if self._file is not None:
            self._file.sync()
            self._epoch_synced = True

    def close(self) -> None:
        if self._file is not None:
            self._file.close()

    def _write(self, committed: CommittedOffset) -> None:
        if self._file is None:
            self._file = self._disk.open(self._path, create=True)
        self._file.write_at(0, _encode(committed))
        self.committed = committed


def _encode(committed: CommittedOffset) -> bytes:
    text = json.dumps({"leaderEpoch": committed.epoch, "committedOffset": committed.offset, "data_version": 0})
    return text.encode().ljust(_SIZE_BYTES - 1) + b"\n"
