"""How far the metadata log was committed, noted beside it (`committed-offset`), so that a loss shows at the next start.

The log alone cannot tell: one sync commits many batches, so after a power loss whole batches may follow a torn one,
just as they do when a byte has rotted in the middle. Kafka has no such file and passes over names it does not know.

Invariant: the note never says more than was synced before. It is synced itself when an epoch begins and when the log is
closed; in between it is only written, in place and within one sector. A power loss may leave an older note, which is
as true as the last; a killed process leaves the last.

It names the epoch of its writer: a quorum-state of another epoch shows that somebody who keeps no note wrote since.
"""

from __future__ import annotations

import json
import logging
from dataclasses import dataclass
from typing import Final

from strandline.runtime.disk import Disk, File, write_atomically

COMMITTED_OFFSET: Final = "committed-offset"
# Always the same size: writing in place never has to cut.
_SIZE_BYTES: Final = 128

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Committed:
    epoch: int
    offset: int
    """The first offset not known to be committed."""


def read_committed(disk: Disk, directory: str) -> Committed | None:
    """Blocking. None when there is no note, or none that makes sense: the log itself may well be whole."""
    path = f"{directory}/{COMMITTED_OFFSET}"
    if not disk.exists(path):
        return None
    try:
        data = json.loads(disk.read(path))
        epoch, offset = data["leaderEpoch"], data["committedOffset"]
        if type(epoch) is not int or type(offset) is not int:
            raise ValueError(f"{epoch!r} and {offset!r} are not whole numbers")
        return Committed(epoch, offset)
    except (ValueError, KeyError, TypeError) as error:
        logger.warning("%s cannot be read and is passed over: %r", path, error)
        return None


class CommittedNote:
    """The note of one epoch, from its first record on. All of it blocks."""

    def __init__(self, disk: Disk, directory: str, committed: Committed) -> None:
        path = f"{directory}/{COMMITTED_OFFSET}"
        write_atomically(disk, path, _encode(committed))
        self._file: File = disk.open(path)
        self._committed = committed

    def rise(self, offset: int) -> None:
        """To the page cache only."""
        if offset > self._committed.offset:
            self._committed = Committed(self._committed.epoch, offset)
            self._file.write_at(0, _encode(self._committed))

    def sync(self) -> None:
        self._file.sync()

    def close(self) -> None:
        self._file.close()


def _encode(committed: Committed) -> bytes:
    text = json.dumps({"leaderEpoch": committed.epoch, "committedOffset": committed.offset, "data_version": 0})
    return text.encode().ljust(_SIZE_BYTES - 1) + b"\n"
