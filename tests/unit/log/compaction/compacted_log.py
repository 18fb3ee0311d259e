"""A log to be compacted in tests: appends, rolls, whole cleaner passes, and reads of everything in it."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

from strandline.log.compaction.cleanable import Cleanable, cleanable
from strandline.log.compaction.cleaner import Cleaning
from strandline.log.partition_log import PartitionLog
from strandline.log.settings import LogSettings
from strandline.log.validation import Origin
from strandline.model.ids import TopicPartition
from strandline.records.batch import (
    BatchHeader,
    Codec,
    ControlType,
    Record,
    batches,
    control_record_type,
    crc_ok,
    decode_batch,
    encode_batch,
    end_transaction_marker,
)
from strandline.runtime.disk import Disk
from strandline.simulation.disk import SimDisk
from strandline.simulation.volume import Volume
from unit.log.logs import append_as_leader

NOW = 1_700_000_000_000
DAY = 86_400_000
SETTINGS = LogSettings(cleanup_compact=True, cleanup_delete=False, segment_bytes=1 << 20, min_cleanable_dirty_ratio=0.0)
PARTITION = TopicPartition("t", 0)


def text(data: bytes | None) -> str | None:
    return None if data is None else data.decode()


class CompactedLog:
    def __init__(self, settings: LogSettings = SETTINGS, disk: Disk | None = None) -> None:
        self.path = "/data/t-0"
        self.disk = disk or SimDisk(Volume())
        self.disk.make_dirs("/data")
        self.disk.sync_dir("/")
        self.settings = settings
        self.now = NOW
        self.checkpoint: int | None = None
        self.log = self.open()

    def open(self) -> PartitionLog:
        log = PartitionLog.open(self.disk, self.path, PARTITION, self.settings, wall_ms=self.now)
        log.advance_high_watermark(log.log_end_offset)
        return log

    def reopen(self, *, clean: bool = True) -> None:
        if clean:
            self.log.close()
        self.log = self.open()

    def put(self, *pairs: tuple[str | None, str | None], codec: Codec = Codec.NONE, **producer: Any) -> int:
        """One batch of (key, value) pairs; the offset of its first record."""
        records = [
            Record(-1, self.now + n, None if key is None else key.encode(), None if value is None else value.encode())
            for n, (key, value) in enumerate(pairs)
        ]
        return self.append(encode_batch(records, codec=codec, **producer))

    def append(self, batch: bytearray, origin: Origin = Origin.COORDINATOR) -> int:
        appended = append_as_leader(self.log, batch, leader_epoch=3, wall_ms=self.now, origin=origin)
        self.log.advance_high_watermark(self.log.log_end_offset)
        return appended.base_offset

    def end_transaction(self, producer_id: int, *, commit: bool, epoch: int = 0) -> int:
        marker = end_transaction_marker(
            commit=commit, producer_id=producer_id, producer_epoch=epoch, coordinator_epoch=1, timestamp=self.now
        )
        return self.append(marker)

    def roll(self) -> None:
        self.log.roll(self.now)

    def look(self) -> Cleanable:
        return cleanable(self.log, self.checkpoint, self.now)

    def clean(self, *, dedupe_buffer_bytes: int = 1 << 20) -> Cleaning:
        """A whole pass, as `replication/compaction_scheduler` does it."""
        found = self.look()
        cleaning = Cleaning(
            self.log, found, wall_ms=self.now, random=random.Random(5), dedupe_buffer_bytes=dedupe_buffer_bytes
        )
        while not cleaning.done:
            replacement = cleaning.step()
            if replacement is not None:
                for segment in self.log.replace_segments(replacement):
                    segment.remove()
        self.checkpoint = cleaning.end_offset
        return cleaning

    def batches(self) -> Iterator[tuple[BatchHeader, list[Record]]]:
        for segment in self.log.segments:
            data = self.disk.read(segment.path(".log"))
            assert len(data) == segment.size
            for position, header in batches(data):
                assert crc_ok(data, position, header.size_bytes)
                yield header, decode_batch(data, position)

    def headers(self) -> list[BatchHeader]:
        return [header for header, _ in self.batches()]

    def records(self) -> list[Record]:
        return [record for header, records in self.batches() if not header.is_control for record in records]

    def contents(self) -> list[tuple[int, str | None, str | None]]:
        return [(record.offset, text(record.key), text(record.value)) for record in self.records()]

    def markers(self) -> list[tuple[int, ControlType]]:
        return [
            (records[0].offset, ControlType(control_record_type(records[0].key)))
            for header, records in self.batches()
            if header.is_control and records
        ]
