"""The log of one partition: what replication, raft and the coordinators use.

It owns the log start offset and the high watermark and puts the other parts together: `local_log` (segments and log
end), `epochs`, `producers` with `producer_snapshots`, `appending` and `flushing`. `reading`, `timestamp_lookup`,
`retention` and `truncation` work on the parts, and `recovery` builds them. Invariants:

- batches are contiguous in offset order; `log_start_offset <= high_watermark <= log_end_offset`;
- everything below `flushed_offset` is on disk and need not be read after a crash;
- bytes are served only after this process has verified the checksum of their batch.

Threads: the event loop owns the state. Methods marked *blocking* are to be offloaded; while one runs, the loop may
continue to append and read. They capture what they need at their start (segments are append-only, offsets are single
assignments) and publish with single assignments; where more has to change, they return a step whose `apply` the loop
calls. Only one blocking *changing* step (truncation, retention, compaction) of a log may be under way at a time;
flushes and reads may run beside it.
"""

from __future__ import annotations

from collections.abc import Callable

from strandline.log import reading, recovery, retention, timestamp_lookup
from strandline.log.appending import AppendableLog
from strandline.log.cold_reads import ColdRead
from strandline.log.directory_health import DirectoryHealth
from strandline.log.epochs import EpochCache
from strandline.log.flushing import LogFlusher
from strandline.log.local_log import Replacement
from strandline.log.names import DELETED
from strandline.log.producer_snapshots import ProducerSnapshots
from strandline.log.producers import ProducerStates
from strandline.log.reading import CorruptRecords, Read
from strandline.log.segment import Segment
from strandline.log.settings import LogSettings
from strandline.log.timestamp_lookup import FoundOffset
from strandline.log.transaction_index import AbortedTransaction
from strandline.log.truncation import BeforeTruncation, FullTruncation, LogParts, Truncated, Truncation
from strandline.model.errors import ErrorCode, KafkaError
from strandline.model.ids import TopicPartition
from strandline.runtime.disk import Disk


class PartitionLog(AppendableLog):
    __slots__ = (
        "_before_truncation",
        "_flusher",
        "_high_watermark",
        "_is_served_elsewhere",
        "_log_start_offset",
        "_lost_up_to",
    )

    def __init__(
        self,
        recovered: recovery.Recovered,
        *,
        flushed_offset: int,
        entries_synced: int,
        is_directory_synced: bool,
        before_truncation: BeforeTruncation | None,
    ) -> None:
        local = recovered.local
        snapshots = ProducerSnapshots(local, recovered.producers, recovered.snapshot_offset)
        super().__init__(local, recovered.epochs, recovered.producers, snapshots)
        self._flusher = LogFlusher(
            local,
            recovered.epochs,
            snapshots,
            flushed_offset=flushed_offset,
            entries_synced=entries_synced,
            is_directory_synced=is_directory_synced,
        )
        self._before_truncation = before_truncation
        self._log_start_offset = self._high_watermark = recovered.log_start_offset
        self._lost_up_to = recovered.lost_up_to
        self._is_served_elsewhere: Callable[[], bool] | None = None

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
        is_new_directory: bool = False,
        wall_ms: int,
        health: DirectoryHealth | None = None,
        before_truncation: BeforeTruncation | None = None,
    ) -> PartitionLog:
        """Blocking. The log in this directory, recovered as far as needed; a new one when there is none.

        `is_new_directory`: the caller has created the directory just now and not synced its entry."""
        recovered = recovery.recover(
            disk,
            path,
            topic_partition,
            settings,
            health or DirectoryHealth(path),
            recovery_point=recovery_point,
            log_start_offset=log_start_offset,
            clean=clean,
            wall_ms=wall_ms,
        )
        local = recovered.local
        # After a crash, files that the killed process created exist, but perhaps not yet on disk.
        is_known = clean or recovered.is_new
        log = cls(
            recovered,
            flushed_offset=local.end_offset if clean else min(recovery_point, local.end_offset),
            entries_synced=local.entries_changed if is_known else -1,
            is_directory_synced=is_known and not (is_new_directory or recovered.is_new_directory),
            before_truncation=before_truncation,
        )
        if local.end_offset - log.flushed_offset >= settings.flush_messages:
            # Where an append counts only once it is on disk, so do the records found after a crash.
            log.flush_after_crash()
        for segment in local.segments:
            segment.release()
        if settings.preallocate and local.active.size == 0:
            local.active.preallocate(settings.segment_bytes)
        return log

    def __repr__(self) -> str:
        return f"PartitionLog({self.topic_partition}, {self._log_start_offset}..{self._local.end_offset})"

    @property
    def topic_partition(self) -> TopicPartition:
        return self._local.topic_partition

    @property
    def path(self) -> str:
        return self._local.path

    @property
    def settings(self) -> LogSettings:
        return self._local.settings

    @property
    def health(self) -> DirectoryHealth:
        return self._local.health

    @property
    def segments(self) -> list[Segment]:
        """The segments, oldest first; the last one takes appends. For the modules of `log`, which must not change the
        list."""
        return self._local.segments

    @property
    def size_bytes(self) -> int:
        return self._local.size_bytes

    @property
    def log_start_offset(self) -> int:
        return self._log_start_offset

    @property
    def log_end_offset(self) -> int:
        return self._local.end_offset

    @property
    def high_watermark(self) -> int:
        return self._high_watermark

    @property
    def last_stable_offset(self) -> int:
        unstable = self._producers.first_unstable_offset
        return self._high_watermark if unstable is None else min(self._high_watermark, unstable)

    @property
    def flushed_offset(self) -> int:
        return self._flusher.flushed_offset

    @property
    def generation(self) -> int:
        """Counts truncations."""
        return self._local.generation

    @property
    def truncating_to(self) -> int | None:
        """Where the log will end when the truncation that is under way is done; None when there is none."""
        return self._local.truncating_to

    @property
    def epochs(self) -> EpochCache:
        return self._epochs

    @property
    def producers(self) -> ProducerStates:
        return self._producers

    @property
    def lost_up_to(self) -> int:
        """The log once had committed records below this offset."""
        return self._lost_up_to

    @property
    def lacks_records(self) -> bool:
        """Whether the log ends before records that it once had."""
        return self._local.end_offset < self._lost_up_to

    @property
    def damaged_at(self) -> int | None:
        """The smallest offset within the log whose records are known to be corrupt."""
        damage = self._local.damage
        return damage.offset if damage is not None and damage.offset >= self._log_start_offset else None

    @property
    def is_intact(self) -> bool:
        """Whether no record is known to be lost or corrupt."""
        return not self.lacks_records and self.damaged_at is None

    def require_up_to(self, offset: int) -> None:
        """The log once had committed records below `offset`: until it has them again, it lacks records."""
        self._lost_up_to = max(self._lost_up_to, offset)

    def accept_loss(self) -> None:
        """What the log lacks is not missing any more: the replica is in sync, or nothing in sync has more."""
        self._lost_up_to = 0

    def on_corruption(self, is_served_elsewhere: Callable[[], bool]) -> None:
        """Sets what a read of corrupt records calls: whether another replica will serve them soon."""
        self._is_served_elsewhere = is_served_elsewhere

    def update_settings(self, settings: LogSettings) -> None:
        self._local.update_settings(settings)

    def read(
        self, offset: int, *, max_bytes: int, before_offset: int | None = None, at_least_one: bool = True
    ) -> Read | ColdRead:
        """Batches from the one that holds `offset`, none with an offset at or above `before_offset` (the log end by
        default). A `ColdRead` when it takes disk work: offload its `load`, then read again. `at_least_one`: the first
        batch is returned whole even if it is larger than `max_bytes`. Raises KafkaError: OFFSET_OUT_OF_RANGE outside of
        [log_start_offset, log_end_offset]; for corrupt records CORRUPT_MESSAGE, or KAFKA_STORAGE_ERROR if another
        replica will serve them soon."""
        local = self._local
        end_offset = local.end_offset
        if not self._log_start_offset <= offset <= end_offset:
            raise KafkaError(
                ErrorCode.OFFSET_OUT_OF_RANGE,
                f"offset {offset} of {local.topic_partition} is not within {self._log_start_offset}..{end_offset}",
            )
        local.health.check_readable()
        upper = end_offset if before_offset is None or before_offset > end_offset else before_offset
        if local.truncating_to is not None:
            upper = min(upper, local.truncating_to)
        if offset >= upper:
            return Read(None, upper)
        local.mark_used()
        try:
            return reading.read(local, self._epochs, offset, upper, max_bytes, at_least_one)
        except CorruptRecords as error:
            if self._is_served_elsewhere is None or not self._is_served_elsewhere():
                raise
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, error.why) from None

    def bytes_between(self, offset: int, upper: int) -> int:
        """About how many bytes the batches of [offset, upper) take; never touches the disk."""
        return reading.bytes_between(self._local, offset, upper)

    def aborted_transactions(self, start: int, upper: int) -> list[AbortedTransaction] | ColdRead:
        """The aborted transactions in [start, upper), ordered by marker; a `ColdRead` when an index must be read."""
        return reading.aborted_transactions(self._local, start, upper)

    def offset_for_timestamp(self, timestamp: int, upper: int | None = None) -> FoundOffset | None:
        """Blocking. The first record with this timestamp or a later one, below `upper`."""
        bounds = self._log_start_offset, self._local.end_offset if upper is None else upper
        return timestamp_lookup.offset_for_timestamp(self._local, timestamp, bounds)

    def max_timestamp_offset(self, upper: int | None = None) -> FoundOffset | None:
        """Blocking. The first record with the largest timestamp; None in an empty log."""
        bounds = self._log_start_offset, self._local.end_offset if upper is None else upper
        return timestamp_lookup.max_timestamp_offset(self._local, bounds)

    def largest_timestamp(self, segment: Segment) -> int:
        """Blocking. For compaction: the largest timestamp of a segment; -1 when none of its batches has one."""
        return timestamp_lookup.largest_timestamp(self._local, segment)

    def advance_high_watermark(self, offset: int) -> int:
        """Raises the high watermark, at most to the log end; returns it as it is now."""
        if offset > self._local.end_offset:
            offset = self._local.end_offset
        if offset > self._high_watermark:
            self._high_watermark = offset
            self._producers.on_high_watermark(offset)
        return self._high_watermark

    def delete_records_before(self, offset: int) -> int:
        """Raises the log start to `offset`, which is at most the high watermark; returns it as it is now. Segments that
        end below it are removed by the next retention pass."""
        if not 0 <= offset <= self._high_watermark:
            raise KafkaError(
                ErrorCode.OFFSET_OUT_OF_RANGE,
                f"{offset} is not within 0..{self._high_watermark}, the high watermark of {self.topic_partition}",
            )
        self._raise_log_start(offset)
        return self._log_start_offset

    def _raise_log_start(self, offset: int) -> None:
        if offset > self._log_start_offset:
            self._log_start_offset = offset
            self._epochs.truncate_from_start(offset)
            # The high watermark from an older checkpoint may be below the log start.
            self._high_watermark = max(self._high_watermark, offset)

    def expired_segments(self, wall_ms: int) -> int:
        """Blocking. How many of the oldest segments retention would delete now, to pass to `delete_oldest_segments`."""
        return retention.expired_segments(self._local, self._log_start_offset, self._high_watermark, wall_ms)

    def delete_oldest_segments(self, count: int, wall_ms: int) -> list[Segment]:
        """Removes the oldest `count` segments from the log and renames their files to `.deleted`; the caller removes
        them (`Segment.remove`, blocking) after file.delete.delay.ms."""
        local = self._local
        if count == 0:
            return []
        if count >= len(local.segments):
            self.roll(wall_ms)
            count = min(count, len(local.segments) - 1)
        deleted = local.remove_oldest(count)
        self._raise_log_start(local.segments[0].base_offset)
        for segment in deleted:
            try:
                segment.rename_files(DELETED)
                self._snapshots.discard(segment.base_offset)
            except OSError as error:
                raise local.health.report_error(error, f"deleting {segment!r}") from error
        return deleted

    def replace_segments(self, replacement: Replacement) -> list[Segment]:
        """On the event loop: puts a compacted segment in the place of those it was made from. Returns the old segments,
        renamed to `.deleted`, for the caller to remove after file.delete.delay.ms; if they are no longer all in the
        log, the new segment is returned for removal instead.

        Whenever a crash happens, opening the log finds either the old segments or the new one complete (see
        `crash_cleanup`): the new files keep `.swap` until the old ones are renamed to `.deleted`."""
        local = self._local
        old, new = replacement.old, replacement.new
        at = local.index_of_run(old)
        if at is None:
            return [new]
        try:
            for segment in old:
                segment.rename_files(DELETED)
            new.rename_files("")
            for segment in old[1:]:
                self._snapshots.discard(segment.base_offset)
        except OSError as error:
            raise local.health.report_error(error, f"replacing segments of {local.path}") from error
        local.replace(at, old, new)
        return list(old)

    def begin_truncation(self, offset: int) -> Truncation:
        """A step that removes everything from `offset` on: offload its `run`, then call its `apply` on the loop."""
        return Truncation(self._parts(), offset, self._log_start_offset)

    def begin_full_truncation(self, offset: int) -> FullTruncation:
        """Begins, like `begin_truncation`, a step that removes everything; the log then starts at `offset`."""
        return FullTruncation(self._parts(), offset, self._log_start_offset)

    def _parts(self) -> LogParts:
        return LogParts(
            self._local,
            self._epochs,
            self._producers,
            self._snapshots,
            self._flusher,
            self._before_truncation,
            self._install,
        )

    def _install(self, truncated: Truncated) -> None:
        end_offset, log_start_offset = truncated.end_offset, truncated.log_start_offset
        self._flusher.before_truncate(end_offset)
        self._local.truncate(truncated.segments, end_offset)
        self._epochs.install(truncated.epochs)
        self._producers.adopt(truncated.producers)
        self._snapshots.on_truncated(end_offset, is_full=log_start_offset is not None)
        self._high_watermark = min(self._high_watermark, end_offset)
        if log_start_offset is not None:
            self._log_start_offset = self._high_watermark = log_start_offset
        self._producers.on_high_watermark(self._high_watermark)

    def flush(self, *, sealed_only: bool = False) -> int:
        """Blocking. Everything appended before the call is on disk after it, and `flushed_offset` says so; with
        `sealed_only` the active segment is left out. Raises KafkaError when the directory fails."""
        return self._flusher.flush(sealed_only=sealed_only)

    def flush_needed(self, now_ms: int) -> bool:
        """Whether flush.messages or flush.ms require a flush now, or a sealed segment is not flushed."""
        return self._flusher.is_due(now_ms)

    def flush_after_crash(self) -> None:
        """Blocking, before the log is used. Everything in it is on disk afterwards, whatever the page cache says."""
        self._flusher.flush_after_crash()

    def assume_flushed(self) -> None:
        """The caller knows that all of the log, and its directory entries, are on disk."""
        self._flusher.assume_flushed()

    def checkpoint(self) -> int:
        """Blocking. Writes what recovery would otherwise have to read from the log (leader epochs); returns the offset
        that may now be recorded as its recovery point."""
        return self._flusher.checkpoint()

    def release_if_idle(self) -> None:
        """Closes, on the loop, files and drops caches if the log was not used since the last call."""
        self._local.release_if_idle()

    def close(self) -> None:
        """Blocking. Flushes everything, writes what makes the next opening cheap, and closes all files."""
        self._flusher.close()

    def abandon(self, why: str) -> None:
        """Blocking. The partition is being removed from its directory: closes all files without writing. Reads and
        flushes that are still under way fail, and do not take the log directory offline for missing files."""
        with self._flusher.lock:
            self._local.abandon(why)
