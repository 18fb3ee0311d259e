"""How far the metadata log is committed, in a file beside it (`committed-offset`).

It has two uses. A node that starts can replay its own log that far before it has contact with a leader. And it reveals
lost records: the log alone cannot, because one sync writes many batches, so that after a power loss intact batches may
follow a torn one, just as they do after corruption in the middle. Kafka has no such file and ignores unknown names.

Invariant: the file never names more than was both committed and synced here before. It is synced when an epoch begins
and when the log is closed; in between it is only written, in place and within one sector. A power loss may leave an
older offset, which is still true; a killed process leaves the latest.

It names the epoch it was written in, and does so before `quorum-state` names that epoch: a quorum-state of a later
epoch shows that Kafka, which does not write this file, has written to the log since.
"""

from __future__ import annotations

import json
import logging
from typing import Final

import msgspec

from strandline.runtime.disk import Disk, File

COMMITTED_OFFSET: Final = "committed-offset"
# Always the same size, so that writing in place never truncates.
_SIZE_BYTES: Final = 128

logger = logging.getLogger(__name__)


class CommittedOffset(msgspec.Struct, frozen=True):
    epoch: int
    offset: int
    """The first offset not known to be committed."""


def read_committed_offset(disk: Disk, directory: str) -> CommittedOffset | None:
    """Blocking. The recorded offset; None when there is no file, or it cannot be read: the log itself may be intact."""
    path = f"{directory}/{COMMITTED_OFFSET}"
    if not disk.exists(path):
        return None
    try:
        data = json.loads(disk.read(path))
        epoch, offset = data["leaderEpoch"], data["committedOffset"]
        if type(epoch) is not int or type(offset) is not int:
            raise ValueError(f"{epoch!r} and {offset!r} are not integers")
        return CommittedOffset(epoch, offset)
    except (ValueError, KeyError, TypeError) as error:
        logger.warning("%s cannot be read and is ignored: %r", path, error)
        return None


class CommittedOffsetFile:
    """The file, while the log is open. Written on the event loop, to the page cache; syncing blocks.

    The directory entry of a new file is synced when `quorum-state` is next written.
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

    def advance(self, offset: int) -> None:
        if offset > self.committed.offset:
            self._write(CommittedOffset(self.committed.epoch, offset))

    def sync_epoch(self) -> None:
        """Blocking. Syncs only if an epoch has begun since the last sync."""
        if not self._epoch_synced:
            self.sync()

    def sync(self) -> None:
        """Blocking. Syncs the file."""
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
