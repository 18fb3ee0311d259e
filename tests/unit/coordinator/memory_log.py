"""A partition in memory: appends may fail, and the high watermark moves when the test says so."""

from __future__ import annotations

from collections.abc import AsyncIterator

from strandline.model.errors import ErrorCode, KafkaError
from strandline.records.batch import HEADER, batches, read_header, write_crc
from strandline.runtime.watermark import Watermark


class MemoryLog:
    def __init__(self, *, replicates: bool = True) -> None:
        self.leader_epoch = 3
        self.log_end_offset = 0
        self.high_watermark = Watermark(0)
        self.max_batch_bytes = 1 << 20
        self.replicates = replicates
        """Whether every append is committed at once."""
        self.failure: KafkaError | None = None
        self.appended: list[bytes] = []

    def append(self, batch: bytearray) -> None:
        if self.failure is not None:
            raise self.failure
        if self.high_watermark.lost is not None:
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, "the leadership has ended")
        header = read_header(batch)
        fields = list(HEADER.unpack_from(batch))
        fields[0], fields[2] = self.log_end_offset, self.leader_epoch
        HEADER.pack_into(batch, 0, *fields)
        write_crc(batch)
        self.appended.append(bytes(batch))
        self.log_end_offset += header.last_offset - header.base_offset + 1
        if self.replicates:
            self.commit()

    def commit(self) -> None:
        self.high_watermark.advance(self.log_end_offset)

    def resign(self) -> None:
        self.high_watermark.lose(KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, "another broker leads"))

    async def read_all(self) -> AsyncIterator[memoryview]:
        for batch in self.appended:
            yield memoryview(batch)

    def successor(self) -> MemoryLog:
        """The same partition under its next leader, which has everything that was appended."""
        log = MemoryLog(replicates=self.replicates)
        log.leader_epoch = self.leader_epoch + 1
        log.appended = list(self.appended)
        log.log_end_offset = self.log_end_offset
        log.high_watermark = Watermark(self.high_watermark.value)
        return log

    def headers(self) -> list[tuple[int, int]]:
        """(base offset, number of records) of every batch."""
        return [
            (header.base_offset, header.last_offset - header.base_offset + 1)
            for batch in self.appended
            for _, header in batches(memoryview(batch))
        ]
