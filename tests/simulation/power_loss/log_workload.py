"""The workload of one partition log: appends, flushes, rolls, deletions, truncations, reopenings; and its promises.

A `LogWorkload` drives a PartitionLog on a simulated disk as replication and the log store do (checkpoints are written
as the store writes them) and notes after each step what a power loss from then on may lose. Several lineages can be
possible at once: until a truncation is flushed, the truncated end may reappear.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import NamedTuple

import msgspec

from strandline.log import checkpoints
from strandline.log.partition_log import PartitionLog
from strandline.log.settings import LogSettings
from strandline.log.validation import validate
from strandline.model.ids import TopicPartition
from strandline.records.batch import Record, encode_batch, read_header
from strandline.simulation.disk import SimDisk
from strandline.simulation.journal import Journal
from strandline.simulation.volume import Volume
from unit.log.logs import truncate, truncate_fully

PARTITION = TopicPartition("orders", 0)
DATA = "/data"
PATH = "/data/orders-0"
RECOVERY_POINTS = f"{DATA}/{checkpoints.RECOVERY_POINTS}"
LOG_STARTS = f"{DATA}/{checkpoints.LOG_STARTS}"
CLEAN_SHUTDOWN = f"{DATA}/{checkpoints.CLEAN_SHUTDOWN}"

# So small that rolls and index entries, rare in a large log, happen all the time.
SETTINGS = LogSettings(segment_bytes=4000, index_interval_bytes=300, segment_index_bytes=120, retention_ms=-1)


class Batch(NamedTuple):
    base_offset: int
    next_offset: int
    data: bytes


class Promise(msgspec.Struct, frozen=True):
    """What is guaranteed from disk operation `operation` on, until the next promise."""

    operation: int
    doing: str
    durable_end: int
    log_start: int
    highest_log_start: int
    lineages: tuple[tuple[Batch, ...], ...]
    """The log must be a prefix of one of these; the last is its current content."""


def open_log(disk: SimDisk, wall_ms: int) -> PartitionLog:
    """As the store does at startup: reads the checkpoints and removes the clean shutdown file."""
    clean = checkpoints.read_clean_shutdown(disk, CLEAN_SHUTDOWN) is not None
    if clean:
        disk.remove(CLEAN_SHUTDOWN)
        disk.sync_dir(DATA)
    recovery_points = checkpoints.read_offsets(disk, RECOVERY_POINTS)
    log_starts = checkpoints.read_offsets(disk, LOG_STARTS)

    def before_truncation(partition: TopicPartition, end_offset: int, log_start_offset: int | None) -> None:
        if checkpoints.read_offsets(disk, RECOVERY_POINTS).get(partition, 0) > end_offset:
            checkpoints.write_offsets(disk, RECOVERY_POINTS, {partition: end_offset})
        if log_start_offset is not None:
            checkpoints.write_offsets(disk, LOG_STARTS, {partition: log_start_offset})

    log = PartitionLog.open(
        disk,
        PATH,
        PARTITION,
        SETTINGS,
        recovery_point=recovery_points.get(PARTITION, 0),
        log_start_offset=log_starts.get(PARTITION),
        clean=clean,
        wall_ms=wall_ms,
        before_truncation=before_truncation,
    )
    log.advance_high_watermark(log.log_end_offset)
    return log


class LogWorkload:
    def __init__(self, seed: int, *, flush_every_append: bool) -> None:
        self.random = Random(f"{seed}/log story")  # tests name seeds: another string would give other runs
        self.flush_every_append = flush_every_append
        self.journal = Journal()
        self.start = Volume()
        self.disk = SimDisk(self.start, now_ms=self._wall_ms, journal=self.journal)
        self.promises: list[Promise] = []
        self.wall = 1_800_000_000_000
        self.leader_epoch = 0
        self.highest_log_start = 0
        self.batches: tuple[Batch, ...] = ()
        self.abandoned: tuple[tuple[Batch, ...], ...] = ()
        self.sequences: dict[int, int] = {}
        self.disk.make_dirs(DATA)
        self.disk.sync_dir("/")
        self.log = open_log(self.disk, self.wall)
        self._promise("opened")

    def run(self, steps: int) -> None:
        actions: tuple[tuple[int, Callable[[], None]], ...] = (
            (60, self._append),
            (10, self._flush),
            (4, self._roll),
            (5, self._checkpoint),
            (4, self._delete_records),
            (4, self._retire),
            (3, self._truncate),
            (1, self._restart),
            (2, self._close_and_open),
            (2, self._crash_and_open),
        )
        weights = [weight for weight, _ in actions]
        for _ in range(steps):
            self.wall += self.random.randint(0, 50)
            action = self.random.choices(actions, weights)[0][1]
            action()
            self._promise(action.__name__.lstrip("_"))

    def _promise(self, doing: str) -> None:
        self.highest_log_start = max(self.highest_log_start, self.log.log_start_offset)
        self.promises.append(
            Promise(
                self.disk.operations,
                doing,
                self.log.flushed_offset,
                self.log.log_start_offset,
                self.highest_log_start,
                (*self.abandoned, self.batches),
            )
        )

    def _wall_ms(self) -> int:
        return self.wall

    def _append(self) -> None:
        if self.random.random() < 0.05:
            self.leader_epoch += self.random.randint(1, 3)
        count = self.random.randint(1, 5)
        size = self.random.choice((1, 20, 100, 700))
        records = [
            Record(-1, self.wall - self.random.randint(0, 20), None, self.random.randbytes(size), ())
            for _ in range(count)
        ]
        producer = self.random.choice((-1, 1, 2, 3))
        sequence = self.sequences.get(producer, 0) if producer >= 0 else -1
        epoch = 0 if producer >= 0 else -1
        batch = encode_batch(records, producer_id=producer, producer_epoch=epoch, base_sequence=sequence)
        validated = validate(memoryview(batch), self.log.settings, wall_ms=self.wall)
        appended = self.log.append_as_leader(validated, leader_epoch=self.leader_epoch, wall_ms=self.wall)
        assert not appended.duplicate
        if producer >= 0:
            self.sequences[producer] = sequence + count
        self.batches = (*self.batches, Batch(appended.base_offset, appended.last_offset + 1, bytes(batch)))
        self.log.advance_high_watermark(self.log.log_end_offset)
        if self.flush_every_append:
            self._flush()

    def _flush(self) -> None:
        self.log.flush()
        self.abandoned = ()

    def _roll(self) -> None:
        self.log.roll(self.wall)

    def _checkpoint(self) -> None:
        self.log.flush(sealed_only=self.random.random() < 0.5)
        checkpoints.write_offsets(self.disk, RECOVERY_POINTS, {PARTITION: self.log.checkpoint()})
        checkpoints.write_offsets(self.disk, LOG_STARTS, {PARTITION: self.log.log_start_offset})

    def _delete_records(self) -> None:
        self.log.delete_records_before(self.random.randint(self.log.log_start_offset, self.log.high_watermark))

    def _retire(self) -> None:
        for segment in self.log.delete_oldest_segments(self.log.expired_segments(self.wall), self.wall):
            segment.remove()

    def _truncate(self) -> None:
        # At a batch boundary: leader epochs, which determine truncation, start nowhere else.
        ends = [batch.base_offset for batch in self.batches if batch.base_offset >= self.log.log_start_offset]
        truncate(self.log, self.random.choice([*ends, self.log.log_end_offset]))
        self._truncated([batch for batch in self.batches if batch.next_offset <= self.log.log_end_offset])
        self.leader_epoch += 1

    def _restart(self) -> None:
        truncate_fully(self.log, self.log.log_end_offset + self.random.randint(0, 100))
        self._truncated([])
        self.leader_epoch += 1

    def _truncated(self, remaining: list[Batch]) -> None:
        self.abandoned = (*self.abandoned, self.batches)
        self.batches = tuple(remaining)
        self.sequences = {}
        for batch in remaining:
            header = read_header(batch.data)
            if header.producer_id >= 0:
                self.sequences[header.producer_id] = header.base_sequence + header.record_count

    def _close_and_open(self) -> None:
        self.log.close()
        checkpoints.write_offsets(self.disk, RECOVERY_POINTS, {PARTITION: self.log.flushed_offset})
        checkpoints.write_offsets(self.disk, LOG_STARTS, {PARTITION: self.log.log_start_offset})
        checkpoints.write_clean_shutdown(self.disk, CLEAN_SHUTDOWN, 1)
        self.abandoned = ()
        self._promise("closed")
        self.log = open_log(self.disk, self.wall)

    def _crash_and_open(self) -> None:
        """The process is killed, the page cache stays."""
        self._promise("killed")
        self.log = open_log(self.disk, self.wall)
