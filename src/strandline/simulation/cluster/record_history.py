"""What was written to partitions, what was promised of it, and what was read: do they agree?

Every value is sent once, to a known partition, so a record that is found is known for what it is. Checked as it
happens: an offset never holds two values (inconsistent-offsets), no value is there twice (duplicate) or was never sent
(unsent), and what a client has been told of the end of a log, or has read of it, does not go back (I-11). At the end,
over everything that is there: no acknowledged record is missing (lost-write), and each partition has the records of its
only producer in the order in which they were sent (reversed), if that one had one batch under way at a time: a broker
that does not know a producer takes whatever sequence comes first, as Kafka's do, so of several the first may be refused
and the second taken.
"""

from __future__ import annotations

from strandline.model.ids import TopicPartition
from strandline.simulation.cluster.violation import Violation


class Records:
    def __init__(self, *, one_at_a_time: bool = True) -> None:
        self._in_order = one_at_a_time
        self._sent: dict[bytes, tuple[TopicPartition, int]] = {}
        """Where to, and as which."""
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
        """`offset` is -1 when nobody remembers it."""
        self._acked[value] = offset
        if offset >= 0:
            self._found(partition, offset, value, "is acknowledged")

    def read(self, partition: TopicPartition, offset: int, value: bytes) -> None:
        if value not in self._sent or self._sent[value][0] != partition:
            raise Violation("unsent", f"{value!r} is read at {partition}, offset {offset}, and nobody sent it there")
        self._found(partition, offset, value, "is read")

    def _found(self, partition: TopicPartition, offset: int, value: bytes, how: str) -> None:
        first = self._at.setdefault((partition, offset), value)
        if first != value:
            why = f"{value!r} {how} at {partition}, offset {offset}, which was that of {first!r}"
            raise Violation("inconsistent-offsets", why)
        where = self._offsets.setdefault(value, offset)
        if where != offset:
            raise Violation("duplicate", f"{value!r} {how} at {partition}, offset {offset}, and is at {where} already")

    def end_seen(self, client: str, partition: TopicPartition, offset: int) -> None:
        """A client was told that the log, as far as it is shown, ends here."""
        before = self._ends.get((client, partition), 0)
        if offset < before:
            raise Violation("I-11", f"{client} is told that {partition} ends at {offset}, and it ended at {before}")
        self._ends[client, partition] = offset

    def check(self, partition: TopicPartition, found: list[tuple[int, bytes]]) -> None:
        """All that is in a partition, from its beginning."""
        for offset, value in found:
            self.read(partition, offset, value)
        values = {value for _, value in found}
        for value, offset in self._acked.items():
            if self._sent[value][0] == partition and value not in values:
                raise Violation(
                    "lost-write", f"{value!r} was acknowledged at {partition}, offset {offset}, and is gone"
                )
        for (place, offset), value in self._at.items():
            if place == partition and value not in values:
                raise Violation("I-11", f"{value!r} was read at {partition}, offset {offset}, and is gone")
        numbers = [self._sent[value][1] for _, value in sorted(found)]
        if self._in_order and not self.failed and numbers != sorted(numbers):
            raise Violation("reversed", f"{partition} has records in another order than they were sent in")
