"""Decodes fetched bytes to records and tracks the fetch position of each partition. A core.

A position is the next fetch offset. It advances past whole batches, also past those without visible records (control
batches, batches emptied by compaction, aborted transactions): otherwise they would be fetched again and again.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator

import msgspec

from strandline.model.errors import ErrorCode, KafkaError
from strandline.model.ids import TopicPartition
from strandline.protocol.messages.fetch import PartitionData
from strandline.records.batch import (
    BatchHeader,
    ControlType,
    CorruptBatch,
    Record,
    batches,
    control_record_type,
    crc_ok,
    decode_batch,
)


class FetchedBatch(msgspec.Struct, frozen=True):
    header: BatchHeader
    records: list[Record]


class FetchedPartition(msgspec.Struct, frozen=True):
    """The records of one partition in one response; `next_offset` is the fetch position after them."""

    partition: TopicPartition
    batches: list[FetchedBatch]
    next_offset: int
    high_watermark: int
    last_stable_offset: int
    log_start_offset: int

    def records(self) -> Iterator[Record]:
        for batch in self.batches:
            yield from batch.records


class FetchPosition(msgspec.Struct):
    """One assigned partition."""

    offset: int
    high_watermark: int = -1
    last_stable_offset: int = -1
    log_start_offset: int = -1
    buffered: bool = False
    not_before_ms: int = 0
    failed_attempts: int = 0
    """Consecutive retriable errors; `last_error` is the latest."""
    last_error: KafkaError | None = None
    error: KafkaError | None = None

    def on_served(self) -> None:
        self.failed_attempts, self.last_error = 0, None


def read_fetched_records(
    partition: TopicPartition,
    data: PartitionData,
    offset: int,
    *,
    read_committed: bool,
    check_crcs: bool,
    keep_control: bool,
) -> FetchedPartition:
    """The visible batches from `offset` on, up to the first damaged one.

    Raises KafkaError(CORRUPT_MESSAGE) only if there is no intact batch before the damage.
    """
    aborted = _AbortedTransactions(data) if read_committed else None
    visible: list[FetchedBatch] = []
    next_offset = offset
    buffer = data.records if isinstance(data.records, (bytes, bytearray, memoryview)) else b""
    try:
        for position, header in batches(buffer):
            if header.last_offset < offset:
                continue
            if check_crcs and not crc_ok(buffer, position, header.size_bytes):
                raise CorruptBatch(f"the checksum of the batch at offset {header.base_offset} is wrong")
            hidden = aborted.hides(header, buffer, position) if aborted is not None else False
            if not hidden and (keep_control or not header.is_control):
                records = decode_batch(buffer, position)
                if header.base_offset < offset:
                    records = [record for record in records if record.offset >= offset]
                if records:
                    visible.append(FetchedBatch(header, records))
            next_offset = header.next_offset
    except CorruptBatch as error:
        if next_offset == offset:
            raise KafkaError(ErrorCode.CORRUPT_MESSAGE, f"{partition} from offset {offset}: {error}") from error
    return FetchedPartition(
        partition, visible, next_offset, data.high_watermark, data.last_stable_offset, data.log_start_offset
    )


class _AbortedTransactions:
    """Finds the batches of aborted transactions in a fetch response."""

    def __init__(self, data: PartitionData) -> None:
        self._upcoming = [(each.first_offset, each.producer_id) for each in data.aborted_transactions or []]
        heapq.heapify(self._upcoming)
        self._open: dict[int, None] = {}

    def hides(self, header: BatchHeader, buffer: bytes | bytearray | memoryview, position: int) -> bool:
        while self._upcoming and self._upcoming[0][0] <= header.last_offset:
            self._open[heapq.heappop(self._upcoming)[1]] = None
        if header.is_control:
            records = decode_batch(buffer, position)
            if records and control_record_type(records[0].key) == ControlType.ABORT:
                self._open.pop(header.producer_id, None)
            return False
        return header.is_transactional and header.producer_id in self._open
