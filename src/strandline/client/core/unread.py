"""Finds the oldest unread record of a partition: the first data record at or after a committed offset that is not part
of an aborted transaction. A core; `admin/lag` is its shell.

Up to the last stable offset every transaction is decided, so fetches with `read_committed` skip aborted records there.
After it the outcome is open: a record there counts as unread, and since the last stable offset is the first record of
the oldest open transaction, one more fetch without isolation finds it.
"""

from __future__ import annotations

import msgspec

from strandline.client.core.fetched_records import read_fetched_records
from strandline.model.errors import KafkaError
from strandline.model.ids import TopicPartition
from strandline.protocol.messages.fetch import PartitionData


class Lag(msgspec.Struct, frozen=True):
    """How far a group is behind in one partition."""

    committed: int
    log_end: int
    """The high watermark."""
    oldest_ms: int | None = None
    """Timestamp of the oldest unread record; None if there is none."""
    error: str | None = None
    """Why the log end or the oldest record is not known."""

    @property
    def records(self) -> int:
        return max(0, self.log_end - self.committed)

    @property
    def is_known(self) -> bool:
        """Whether the log end is known; the oldest record may still be unknown."""
        return self.error is None or self.log_end > self.committed

    def age_ms(self, wall_ms: int) -> int:
        """0 without an unread record, and for timestamps in the future."""
        return 0 if self.oldest_ms is None else max(0, wall_ms - self.oldest_ms)


class UnreadSearch:
    def __init__(self, partition: TopicPartition, offset: int, high_watermark: int) -> None:
        """`offset` is not before the log start offset."""
        self.partition = partition
        self.offset = offset
        self.read_committed = True
        self.timestamp_ms: int | None = None
        self._high_watermark = high_watermark
        self._found = False

    @property
    def is_done(self) -> bool:
        return self._found or self.offset >= self._high_watermark

    def on_data(self, data: PartitionData) -> bool:
        """Whether the search has advanced; without progress the fetch has to be repeated with more space."""
        before = self.offset, self.read_committed
        try:
            fetched = read_fetched_records(
                self.partition,
                data,
                self.offset,
                read_committed=self.read_committed,
                check_crcs=False,
                keep_control=False,
            )
        except KafkaError:
            return False
        for record in fetched.records():
            self._found, self.timestamp_ms = True, record.timestamp
            return True
        self.offset = fetched.next_offset
        if self.read_committed and 0 <= data.last_stable_offset <= self.offset:
            self.read_committed = False
        return before != (self.offset, self.read_committed)
