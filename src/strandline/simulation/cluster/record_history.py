"""Records that were sent, acknowledged and read by clients, checked against each other.

Every value is sent once, to a known partition, so each record read can be identified. Checked during the run: an offset
never holds two values (inconsistent-offsets), no value is read at two offsets (duplicate) or without having been sent
(unsent), and the log end shown to a client never decreases (I-11). Checked at the end over all records: no acknowledged
record is missing (lost-write), no record that was read is missing (I-11), and each partition has the records of its
only producer in the order in which they were sent (reversed), if the producer had one batch in flight at a time: a
broker without state for a producer accepts any first sequence, as Kafka does, so of several batches in flight the first
may be rejected and the second accepted.
"""

from __future__ import annotations

from strandline.model.ids import TopicPartition
from strandline.simulation.cluster.violation import Violation


class RecordHistory:
    def __init__(self, *, one_at_a_time: bool = True) -> None:
        self._in_order = one_at_a_time
        self._sent: dict[bytes, tuple[TopicPartition, int]] = {}
        """(Partition, sequence number) of each value."""
        self._acked: dict[bytes, int] = {}
        self._at: dict[tuple[TopicPartition, int], bytes] = {}
        self._offsets: dict[bytes, int] = {}
        self._ends: dict[tuple[str, TopicPartition], int] = {}
        self.failed = 0

    @property
    def acknowledged(self) -> int:
        return len(self._acked)

    def sent(self, partition: TopicPartition, value: bytes) -> None:
        self._sent[value] = (partition, len(self._sent))

    def acked(self, partition: TopicPartition, offset: int, value: bytes) -> None:
        """`offset` is -1 if the broker no longer knew it (a duplicate)."""
        self._acked[value] = offset
        if offset >= 0:
            self._found(partition, offset, value, "is acknowledged")

    def read(self, partition: TopicPartition, offset: int, value: bytes) -> None:
        if value not in self._sent or self._sent[value][0] != partition:
            raise Violation("unsent", f"{value!r} is read at {partition}, offset {offset}, and was not sent there")
        self._found(partition, offset, value, "is read")

    def _found(self, partition: TopicPartition, offset: int, value: bytes, how: str) -> None:
        first = self._at.setdefault((partition, offset), value)
        if first != value:
            why = f"{value!r} {how} at {partition}, offset {offset}, which held {first!r} before"
            raise Violation("inconsistent-offsets", why)
        where = self._offsets.setdefault(value, offset)
        if where != offset:
            raise Violation("duplicate", f"{value!r} {how} at {partition}, offset {offset}, and is at {where} already")

    def end_seen(self, client: str, partition: TopicPartition, offset: int) -> None:
        """A response showed the client this end of the log (its high watermark)."""
        before = self._ends.get((client, partition), 0)
        if offset < before:
            raise Violation("I-11", f"{client} shows that {partition} ends at {offset}, and it ended at {before}")
        self._ends[client, partition] = offset

    def check(self, partition: TopicPartition, found: list[tuple[int, bytes]]) -> None:
        """`found`: all records of the partition, from its start."""
        for offset, value in found:
            self.read(partition, offset, value)
        values = {value for _, value in found}
        for value, offset in self._acked.items():
            if self._sent[value][0] == partition and value not in values:
                raise Violation(
                    "lost-write", f"{value!r} was acknowledged at {partition}, offset {offset}, and is missing"
                )
        for (place, offset), value in self._at.items():
            if place == partition and value not in values:
                raise Violation("I-11", f"{value!r} was read at {partition}, offset {offset}, and is missing")
        numbers = [self._sent[value][1] for _, value in sorted(found)]
        if self._in_order and not self.failed and numbers != sorted(numbers):
            raise Violation("reversed", f"the records of {partition} are not in the order in which they were sent")
