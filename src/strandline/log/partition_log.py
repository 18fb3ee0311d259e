"""The log of one partition: the face that replication, raft and the coordinators see.

State lives here; each conversation has its module: `appending`, `reading`, `timestamp_lookup`, `flushing`, `retention`,
`truncation`, and `recovery` for opening. Invariants:

- batches are contiguous in offset order; `log_start_offset <= high_watermark <= log_end_offset`;
- `flushed_offset` is never above what is truly on disk; what is below it needs no look after a crash;
- a byte is served only after its batch's checksum was seen to be good in this process.

Threads: the event loop owns the state. Methods marked *blocking* are to be offloaded; while one runs the loop may go on
appending and reading. They take what they need at their start (segments are append-only, offsets are single
assignments) and publish with single assignments; where more has to change, they hand back a step whose `apply` the
loop calls. Only one blocking *changing* step (truncation, retirement, cleaning) of a log may be under way at a time;
flushing and reading may run beside it.
"""

from __future__ import annotations

import threading
from bisect import bisect_right
from collections.abc import Callable

from strandline.log import appending, flushing, reading, recovery, retention, timestamp_lookup, truncation
from strandline.log.appending import Appended
from strandline.log.cold_reads import ColdRead
from strandline.log.epochs import EpochCache
from strandline.log.health import DirectoryHealth
from strandline.log.producer_snapshots import Captured
from strandline.log.producers import ProducerStates
from strandline.log.reading import Read
from strandline.log.segment import Segment
from strandline.log.settings import LogSettings
from strandline.log.timestamp_lookup import FoundOffset
from strandline.log.transaction_index import AbortedTransaction
from strandline.log.validation import LATEST_PRODUCE_VERSION, Origin
from strandline.model.ids import TopicPartition
from strandline.runtime.disk import Buffer, Disk

__all__ = ["Appended", "ColdRead", "FoundOffset", "Origin", "PartitionLog", "Read"]

# Held for an instant when a flush that ran in a thread publishes its result while the loop may be truncating.
_PUBLISHING = threading.Lock()


class PartitionLog:
    __slots__ = (
        "active",
        "before_truncation",
        "captured_at_bytes",
        "captured_producers",
        "damage",
        "disk",
        "entries_changed",
        "entries_synced",
        "epochs",
        "flush_deadline_ms",
        "flushed_offset",
        "generation",
        "health",
        "high_watermark",
        "is_directory_synced",
        "log_end_offset",
        "log_start_offset",
        "lost_up_to",
        "on_damage",
        "path",
        "producers",
        "segments",
        "settings",
        "size_bytes",
        "snapshot_offset",
        "topic_partition",
        "touched",
        "truncating_to",
        "writing",
    )

    def __init__(
        self,
        disk: Disk,
        path: str,
        topic_partition: TopicPartition,
        settings: LogSettings,
        health: DirectoryHealth,
        segments: list[Segment],
    ) -> None:
        self.disk = disk
        self.path = path
        self.topic_partition = topic_partition
        self.settings = settings
        self.health = health
        self.segments = segments
        self.active = segments[-1]
        self.size_bytes = sum(segment.size for segment in segments)
        self.log_start_offset = segments[0].base_offset
        self.log_end_offset = segments[-1].base_offset
        self.flushed_offset = 0
        self.high_watermark = 0
        # Committed records below this offset were here once: a log that ends before it has lost some.
        self.lost_up_to = 0
        # The least offset that is known to be damaged within the log, and why.
        self.damage: tuple[int, str] | None = None
        # Asked by a read that met damage: whether somebody else will serve these records soon.
        self.on_damage: Callable[[], bool] | None = None
        self.epochs = EpochCache()
        self.producers = ProducerStates()
        # Producers as they were when segments were sealed, by offset, until a flush has written them down.
        self.captured_producers: dict[int, list[Captured]] = {}
        # Size of the active segment when that was last done.
        self.captured_at_bytes = 0
        # The newest producer snapshot on disk; -1: none is known.
        self.snapshot_offset = -1
        # Counts changes of the directory's entries (by the loop), and up to which count they are synced (by flushes).
        self.entries_changed = 0
        self.entries_synced = 0
        # Whether the entry of the directory itself is synced.
        self.is_directory_synced = True
        # While the log is being cut: no checkpoint may promise anything above.
        self.truncating_to: int | None = None
        # Called (blocking) before the log is cut, with the end offset and, if it changes, the log start: whoever keeps
        # checkpoints about this log must lower them first.
        self.before_truncation: Callable[[TopicPartition, int, int | None], None] | None = None
        # Counts truncations, so that a flush that began before one does not publish what it found.
        self.generation = 0
        # Held by whichever thread flushes, checkpoints or closes: two at once would write the same files.
        self.writing = threading.RLock()
        self.flush_deadline_ms: int | None = None
        # Whether anybody used the log since `release_if_idle` last looked; None once it is at rest.
        self.touched: bool | None = True

    @classmethod
    def open(
        cls,
        disk: Disk,
        path: str,
        topic_partition: TopicPartition,
        settings: LogSettings,
        *,
        recovery_point: int = 0,
        log_start_offset: int | None = None,
        clean: bool = False,
        wall_ms: int,
        health: DirectoryHealth | None = None,
    ) -> PartitionLog:
        """Blocking. The log in this directory, recovered as far as needed; a new one when there is none."""
        listed = recovery.list_segments(disk, path, log_start_offset or 0, wall_ms)
        log = cls(disk, path, topic_partition, settings, health or DirectoryHealth(path), listed.segments)
        recovery.recover(
            log,
            listed,
            recovery_point=recovery_point,
            log_start_offset=log_start_offset,
            clean=clean,
            wall_ms=wall_ms,
        )
        if settings.preallocate and log.active.size == 0:
            log.active.reserve(settings.segment_bytes)
        return log

    def __repr__(self) -> str:
        return f"PartitionLog({self.topic_partition}, {self.log_start_offset}..{self.log_end_offset})"

    def append_as_leader(
        self,
        records: memoryview,
        *,
        leader_epoch: int,
        wall_ms: int,
        now_ms: int = 0,
        api_version: int = LATEST_PRODUCE_VERSION,
        origin: Origin = Origin.CLIENT,
    ) -> Appended:
        """Validate one batch, give it its offsets and write it. Raises InvalidRecords or KafkaError; then nothing was
        written."""
        return appending.append_as_leader(
            self, records, leader_epoch=leader_epoch, wall_ms=wall_ms, api_version=api_version, origin=origin
        )

    # As `append_as_leader`, for a batch that was validated elsewhere. Every produce comes by here: no call in between.
    append_validated = appending.append_validated

    def append_as_follower(self, batches: Buffer, *, wall_ms: int = 0) -> Appended:
        """Whole batches with their offsets and leader epochs: a follower's and raft's append. Checksums are checked; a
        batch cut off at the end is left out."""
        return appending.append_as_follower(self, memoryview(batches), wall_ms)

    def roll(self, wall_ms: int = 0) -> None:
        """Begin a new segment, unless the active one is empty."""
        appending.roll_now(self, wall_ms)

    def read(
        self, offset: int, *, max_bytes: int, before_offset: int | None = None, at_least_one: bool = True
    ) -> Read | ColdRead:
        """Batches from the one that holds `offset`, none with an offset at or above `before_offset` (the log end by
        default). `ColdRead` when it takes disk work: offload `load`, then read again. `at_least_one`: the first
        batch is
        given whole even if it is larger than `max_bytes`. Raises KafkaError(OFFSET_OUT_OF_RANGE) outside of
        [log_start_offset, log_end_offset], CORRUPT_MESSAGE at damage."""
        return reading.read(self, offset, max_bytes, before_offset, at_least_one)

    def bytes_between(self, offset: int, upper: int) -> int:
        """About how many bytes the batches of [offset, upper) take; never touches the disk."""
        return reading.bytes_between(self, offset, upper)

    def offset_for_timestamp(self, timestamp: int, upper: int | None = None) -> FoundOffset | None:
        """Blocking. The first record with this timestamp or a later one, below `upper`."""
        return timestamp_lookup.offset_for_timestamp(self, timestamp, self.log_end_offset if upper is None else upper)

    def max_timestamp_offset(self, upper: int | None = None) -> FoundOffset | None:
        """Blocking. The first record with the largest timestamp, None in an empty log."""
        return timestamp_lookup.max_timestamp_offset(self, self.log_end_offset if upper is None else upper)

    def aborted_transactions(self, start: int, upper: int) -> list[AbortedTransaction] | ColdRead:
        """Those that touch [start, upper), by marker; `ColdRead` when an index must be read first."""
        return timestamp_lookup.aborted_transactions(self, start, upper)

    @property
    def last_stable_offset(self) -> int:
        unstable = self.producers.first_unstable_offset
        return self.high_watermark if unstable is None else min(self.high_watermark, unstable)

    @property
    def damaged_at(self) -> int | None:
        """Where records of this log are known to be damaged, if they have not been dropped since."""
        damage = self.damage
        return damage[0] if damage is not None and damage[0] >= self.log_start_offset else None

    @property
    def is_intact(self) -> bool:
        """Whether nothing is known to be missing that was here once."""
        return self.log_end_offset >= self.lost_up_to and self.damaged_at is None

    def advance_high_watermark(self, offset: int) -> int:
        """Moves up only, never above the log end; the high watermark as it is now."""
        if offset > self.log_end_offset:
            offset = self.log_end_offset
        if offset > self.high_watermark:
            self.high_watermark = offset
            self.producers.on_high_watermark(offset)
        return self.high_watermark

    def delete_records_before(self, offset: int) -> int:
        """Move the log start up to `offset`, which is at most the high watermark; the log start as it is now. Segments
        that end below it go with the next retention step."""
        return retention.delete_records_before(self, offset)

    def expired_segments(self, wall_ms: int) -> int:
        """Blocking. How many of the oldest segments retention would delete now; hand it to `retire`."""
        return retention.expired_segments(self, wall_ms)

    def retire(self, count: int, wall_ms: int) -> list[Segment]:
        """Take the oldest `count` segments out of the log and mark their files `.deleted`; the caller removes them
        (`Segment.remove`, blocking) after file.delete.delay.ms."""
        return retention.retire(self, count, wall_ms)

    def retire_segments(self, wall_ms: int) -> list[Segment]:
        """Blocking: `expired_segments` and `retire` in one, for callers that own the log."""
        return self.retire(self.expired_segments(wall_ms), wall_ms)

    def begin_truncation(self, offset: int) -> truncation.Truncation:
        """A step that drops everything from `offset` on: offload its `run`, then call its `apply` on the loop."""
        return truncation.Truncation(self, offset)

    def truncate_to(self, offset: int) -> None:
        """Blocking: the whole truncation, for callers that own the log. Nothing happens at or above the log end."""
        step = truncation.Truncation(self, offset)
        step.run()
        for segment in step.apply():
            segment.remove()

    def begin_full_truncation(self, offset: int) -> truncation.FullTruncation:
        """As `begin_truncation`: drops everything and begins again at `offset`."""
        return truncation.FullTruncation(self, offset)

    def restart_at(self, offset: int) -> None:
        """Blocking: drop everything and begin again at `offset`."""
        step = truncation.FullTruncation(self, offset)
        step.run()
        for segment in step.apply():
            segment.remove()

    def flush(self, *, sealed_only: bool = False) -> int:
        """Blocking. Everything appended before the call is on disk after it, and `flushed_offset` says so; with
        `sealed_only` the active segment is left alone. Raises KafkaError when the directory fails."""
        with self.writing:
            return flushing.flush(self, sealed_only)

    def flush_needed(self, now_ms: int) -> bool:
        """Whether flush.messages or flush.ms ask for a flush now, or a sealed segment waits for one."""
        return flushing.flush_needed(self, now_ms)

    def unflushed_bytes(self) -> int:
        """How much a crash would leave to be read again, at most."""
        return sum(segment.size - max(0, segment.synced_size) for segment in self.segments)

    def publish_flushed(self, offset: int, generation: int) -> None:
        """From the thread that flushed: all below `offset` is on disk, unless the log was truncated meanwhile."""
        with _PUBLISHING:
            if generation == self.generation and offset > self.flushed_offset:
                self.flushed_offset = offset

    def publish_file(self, temporary: str, path: str, generation: int) -> None:
        """As `publish_flushed`, for a file that tells of the log as it was; without effect if the log was truncated."""
        with _PUBLISHING:
            if generation == self.generation:
                self.disk.rename(temporary, path)

    def publish_damage(self, offset: int, why: str, generation: int) -> None:
        """As `publish_flushed`, for damage: a thread that read while the log was truncated has seen nothing."""
        with _PUBLISHING:
            known = self.damage
            if generation == self.generation and self.truncating_to is None and (known is None or offset < known[0]):
                self.damage = offset, why

    def cut_flushed(self, offset: int) -> None:
        """The log was truncated: whatever a flush under way finds, it is not about this log any more."""
        with _PUBLISHING:
            self.generation += 1
            self.flushed_offset = min(self.flushed_offset, offset)
            if self.damage is not None and self.damage[0] >= offset:
                self.damage = None

    def checkpoint(self) -> int:
        """Blocking. Write down what recovery would else have to learn by reading (epochs, producers), and return the
        offset that may now stand in the recovery-point checkpoint."""
        with self.writing:
            return flushing.checkpoint(self)

    def release_if_idle(self) -> None:
        """Put down files and caches when nobody used the log since the last call. On the loop; cheap."""
        if self.touched:
            self.touched = False
        elif self.touched is not None:
            self.touched = None
            for segment in self.segments:
                segment.rest()

    def close(self, *, flush: bool = True) -> None:
        """Blocking. Everything flushed and written down so that opening it again is cheap; then nothing is held."""
        with self.writing:
            flushing.close(self, flush)

    def has_lost(self, segment: Segment) -> bool:
        """Whether a segment that a thread was handed has left the log meanwhile, or is about to."""
        if self.truncating_to is not None and segment.base_offset >= self.truncating_to:
            return True
        return all(known is not segment for known in self.segments)

    def segment_index(self, offset: int) -> int:
        """Which segment holds `offset`: the last one that begins at or below it."""
        return max(0, bisect_right(self.segments, offset, key=_base_of) - 1)

    def end_of(self, index: int) -> int:
        """The offset where a segment ends: the next one's base, or the log end."""
        segments = self.segments
        return segments[index + 1].base_offset if index + 1 < len(segments) else self.log_end_offset


def _base_of(segment: Segment) -> int:
    return segment.base_offset
