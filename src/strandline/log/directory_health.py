"""Whether a log directory can be written, only read, or not used at all; shared by all logs in it.

Every OSError of a log operation is passed to `report_error`, which decides what it means for the directory and returns
the KafkaError for the client:

- no space, over quota, read-only file system: READ_ONLY. Appends are rejected, reads continue, and every later append
  tries the disk again, so a directory whose space was freed comes back online by itself;
- anything else on a read, write or sync (EIO above all): OFFLINE until the node is restarted. A failed sync is never
  retried: the kernel may have dropped the very pages it could not write, and would report success.

Threads: any thread may report. The fields are single references; the condition only gets worse, except READ_ONLY ->
ONLINE.
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
    """Whether the disk cannot be written for now, while what is on it can still be read."""
    return error.errno in _NOT_WRITABLE


class DirectoryHealth:
    __slots__ = ("condition", "path", "reason")

    def __init__(self, path: str) -> None:
        self.path = path
        self.condition = Condition.ONLINE
        self.reason = ""

    @classmethod
    def removed(cls, path: str, why: str) -> DirectoryHealth:
        """The health of a log that was removed: operations on it fail, and its directory stays online."""
        health = cls(path)
        health.condition, health.reason = Condition.OFFLINE, why
        return health

    @property
    def is_online(self) -> bool:
        """Readable, though perhaps not writable."""
        return self.condition is not Condition.OFFLINE

    def check_readable(self) -> None:
        if self.condition is Condition.OFFLINE:
            raise self._error()

    def report_error(self, error: OSError, doing: str, *, syncing: bool = False) -> KafkaError:
        """Records what this error means for the directory; returns the KafkaError to raise for the failed operation."""
        reason = f"{doing} failed: {error}"
        if self.condition is not Condition.OFFLINE:
            if is_write_refused(error) and not syncing:
                if self.condition is Condition.ONLINE:
                    logger.error("Log directory %s is read-only until a write succeeds: %s", self.path, reason)
                self.condition, self.reason = Condition.READ_ONLY, reason
            else:
                self.fail(reason)
        return self._error()

    def fail(self, reason: str) -> None:
        if self.condition is not Condition.OFFLINE:
            logger.critical("Log directory %s is offline: %s", self.path, reason)
            self.condition, self.reason = Condition.OFFLINE, reason

    def on_write_succeeded(self) -> None:
        if self.condition is Condition.READ_ONLY:
            logger.warning("Log directory %s is writable again", self.path)
            self.condition, self.reason = Condition.ONLINE, ""

    def _error(self) -> KafkaError:
        return KafkaError(
            ErrorCode.KAFKA_STORAGE_ERROR, f"log directory {self.path} is {self.condition.value}: {self.reason}"
        )
