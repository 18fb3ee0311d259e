"""Whether a log directory can be written, only read, or not trusted at all; shared by all logs in it.

Every OSError that a log meets ends in `explain`, which decides what it means for the directory and gives the KafkaError
to answer with:

- no space, over quota, read-only file system: READ_ONLY. Appends are refused, reads go on, and every later append tries
  again, so that freed space heals the directory by itself;
- anything else on a read, write or sync (EIO above all): OFFLINE, for good, until the node is restarted. A failed sync
  is never tried again: the kernel may have dropped the very pages it could not write, and would report success.

Threads: any thread may report; the fields are single references and only ever get worse, except READ_ONLY -> ONLINE.
"""

from __future__ import annotations

import errno
import logging
from enum import Enum

from strandline.model.errors import ErrorCode, KafkaError

logger = logging.getLogger(__name__)

_NOT_WRITABLE = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EACCES, errno.EPERM, errno.EBADF})


class Condition(Enum):
    ONLINE = "online"
    READ_ONLY = "read-only"
    OFFLINE = "offline"


def is_write_refused(error: OSError) -> bool:
    """Whether the disk only refuses to be written, and what is on it can still be read."""
    return error.errno in _NOT_WRITABLE


class DirectoryHealth:
    __slots__ = ("condition", "path", "reason")

    def __init__(self, path: str) -> None:
        self.path = path
        self.condition = Condition.ONLINE
        self.reason = ""

    @classmethod
    def gone(cls, path: str, why: str) -> DirectoryHealth:
        """For a log that was taken away: whoever still holds it fails, and nothing else does."""
        health = cls(path)
        health.condition, health.reason = Condition.OFFLINE, why
        return health

    @property
    def is_online(self) -> bool:
        """Readable, if not writable."""
        return self.condition is not Condition.OFFLINE

    def check_readable(self) -> None:
        if self.condition is Condition.OFFLINE:
            raise self._error()

    def explain(self, error: OSError, doing: str, *, syncing: bool = False) -> KafkaError:
        """What this error did to the directory, as the answer to whoever asked for the operation."""
        reason = f"{doing} failed: {error}"
        if self.condition is not Condition.OFFLINE:
            if is_write_refused(error) and not syncing:
                if self.condition is Condition.ONLINE:
                    logger.error("Log directory %s refuses writes until they succeed again: %s", self.path, reason)
                self.condition, self.reason = Condition.READ_ONLY, reason
            else:
                self.fail(reason)
        return self._error()

    def fail(self, reason: str) -> None:
        if self.condition is not Condition.OFFLINE:
            logger.critical("Log directory %s is offline: %s", self.path, reason)
            self.condition, self.reason = Condition.OFFLINE, reason

    def wrote(self) -> None:
        """A write went through although the last one did not."""
        if self.condition is Condition.READ_ONLY:
            logger.warning("Log directory %s takes writes again", self.path)
            self.condition, self.reason = Condition.ONLINE, ""

    def _error(self) -> KafkaError:
        return KafkaError(
            ErrorCode.KAFKA_STORAGE_ERROR, f"log directory {self.path} is {self.condition.value}: {self.reason}"
        )
