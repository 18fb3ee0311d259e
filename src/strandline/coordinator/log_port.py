"""What a shard asks of the partition it owns, for the length of one partition leadership."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Protocol

from strandline.runtime.watermark import Watermark


class CoordinatorLog(Protocol):
    @property
    def leader_epoch(self) -> int:
        """Of this leadership; the coordinator epoch in transaction markers."""
        ...

    @property
    def log_end_offset(self) -> int:
        """Offset of the next record. The shard is the only writer, so it predicts the offsets of its records."""
        ...

    @property
    def high_watermark(self) -> Watermark:
        """Belongs to this leadership and is lost with it."""
        ...

    @property
    def max_batch_bytes(self) -> int:
        """`max.message.bytes` of the topic."""
        ...

    def append(self, batch: bytearray) -> None:
        """At the end of the log, as the leader of this epoch, in the name of the coordinator. Raises KafkaError."""
        ...

    def read_all(self) -> AsyncIterator[memoryview]:
        """Whole batches from the log start to the log end, several per buffer. Reads wait off the event loop."""
        ...
