"""The segments of one log on the local disk: which there are, where the last one ends, when the next one starts.

Owned by one PartitionLog, as Kafka's UnifiedLog owns a LocalLog. It knows nothing of producers, leader epochs and
watermarks. The modules that read, flush, truncate and recover a log work on it; only its own methods change it.

Invariants: the segments are contiguous and in offset order, there is at least one, and only the last takes appends.
`segments` is replaced, never changed in place, because threads iterate over it.

Threads: the event loop owns the fields. A thread captures `generation` with what it works on; every truncation
increments it, so results of work that began before a truncation can be told apart and are ignored.
"""

from __future__ import annotations

import zlib
from bisect import bisect_right

import msgspec

from strandline.log.directory_health import Condition, DirectoryHealth
from strandline.log.segment import MAX_SPAN, NO_TIMESTAMP, Segment
from strandline.log.settings import LogSettings
from strandline.model.ids import TopicPartition
from strandline.runtime.disk import Buffer, Disk

_ONLINE = Condition.ONLINE  # looked up once: a member of an enum costs as much as a call


class Damage(msgspec.Struct, frozen=True):
    """The smallest offset at which records of the log are known to be corrupt, found in this generation of the log."""

    generation: int
    offset: int
    why: str


class Replacement(msgspec.Struct, frozen=True):
    """Compaction's result: these adjacent segments are to be replaced by the new one, whose files end in `.swap`."""

    old: tuple[Segment, ...]
    new: Segment


class LocalLog:
    __slots__ = (
        "_damage",
        "_is_used",
        "active",
        "disk",
        "end_offset",
        "entries_changed",
        "generation",
        "health",
        "path",
        "segments",
        "settings",
        "size_bytes",
        "topic_partition",
        "truncating_to",
    )

    def __init__(
        self,
        disk: Disk,
        path: str,
        topic_partition: TopicPartition,
        settings: LogSettings,
        health: DirectoryHealth,
        segments: list[Segment],
        end_offset: int,
    ) -> None:
        self.disk = disk
        self.path = path
        self.topic_partition = topic_partition
        self.settings = settings
        self.health = health
        self.segments = segments
        self.active = segments[-1]
        self.size_bytes = sum(segment.size for segment in segments)
        self.end_offset = end_offset
        self.generation = 0
        """Counts truncations."""
        self.truncating_to: int | None = None
        """The end of a truncation under way: no read serves, and no checkpoint records, an offset above it."""
        self.entries_changed = 0
        """Counts changes of the directory's entries; a flush remembers which count it has synced."""
        self._damage: Damage | None = None
        self._is_used: bool | None = True
        """Whether the log was read or written since the last `release_if_idle`; None once its files are closed."""

    def segment_index(self, offset: int) -> int:
        """The index of the segment that holds `offset`: the last one that starts at or below it."""
        return segment_index(self.segments, offset)

    def end_of(self, segment: Segment) -> int:
        """The offset where a segment ends: the base offset of the next one, or the log end."""
        segments = self.segments
        following = segment_index(segments, segment.base_offset) + 1
        return segments[following].base_offset if following < len(segments) else self.end_offset

    def has_lost(self, segment: Segment) -> bool:
        """Whether a segment that a thread works on has been removed from the log meanwhile, or is being removed."""
        if self.truncating_to is not None and segment.base_offset >= self.truncating_to:
            return True
        return all(known is not segment for known in self.segments)

    def must_roll(self, last_offset: int, timestamp: int, size: int, wall_ms: int) -> bool:
        """Whether a batch of this size, last offset and largest timestamp must go to a new segment."""
        active = self.active
        settings = self.settings
        if active.size + size > settings.segment_bytes or last_offset - active.base_offset > MAX_SPAN:
            return active.size > 0 or last_offset - active.base_offset > MAX_SPAN
        if active.size == 0:
            return False
        since = active.first_timestamp
        if since == NO_TIMESTAMP:
            since, timestamp = active.created_ms, wall_ms
        age_ms = timestamp - since
        return (
            age_ms > settings.roll_ms - settings.segment_jitter_ms and age_ms > self._jittered_roll_ms()
        ) or active.is_index_full(settings.segment_index_bytes)

    def _jittered_roll_ms(self) -> int:
        """segment.ms less a part of segment.jitter.ms that is drawn from the segment's name, so that runs repeat."""
        settings = self.settings
        jitter_ms = min(settings.segment_jitter_ms, settings.roll_ms)
        if jitter_ms <= 0:
            return settings.roll_ms
        return settings.roll_ms - zlib.crc32(f"{self.topic_partition}/{self.active.base_offset}".encode()) % jitter_ms

    def roll(self, base_offset: int, wall_ms: int) -> bool:
        """Seal the active segment and start a new one. False when the old one was empty: it is removed, because its
        name would claim offsets that the log does not have."""
        old = self.active
        try:
            old.seal()
            segment = Segment.create(self.disk, self.path, base_offset, wall_ms)
            if self.settings.preallocate:
                segment.preallocate(self.settings.segment_bytes)
        except OSError as error:
            raise self.health.report_error(error, f"creating segment {base_offset} of {self.path}") from error
        sealed = self.segments
        is_sealed = old.size > 0
        if not is_sealed:
            sealed = sealed[:-1]
            old.remove()
        self.segments = [*sealed, segment]
        self.active = segment
        self.entries_changed += 1
        return is_sealed

    def write(self, data: Buffer) -> int:
        """Writes batches to the active segment; returns the position they start at. A failed write leaves the file as
        it was."""
        segment = self.active
        try:
            position = segment.write(data)
        except OSError as error:
            raise self.health.report_error(error, f"appending to {segment!r}") from error
        self.size_bytes += len(data)
        self._is_used = True
        if self.health.condition is not _ONLINE:
            self.health.on_write_succeeded()
        return position

    def extend(self, base_offset: int, last_offset: int, timestamp: int, position: int, size: int) -> bool:
        """A batch was written at `position`: the log ends after it. Whether it got an index entry."""
        indexed = self.active.on_append(
            base_offset, last_offset, timestamp, position, size, self.settings.index_interval_bytes
        )
        self.end_offset = last_offset + 1
        return indexed

    def update_settings(self, settings: LogSettings) -> None:
        self.settings = settings

    def abandon(self, why: str) -> None:
        """Blocking. The files are being removed: from now on every operation fails, for this log alone."""
        self.health = DirectoryHealth.removed(self.path, why)
        for segment in self.segments:
            segment.release()

    def mark_used(self) -> None:
        self._is_used = True

    def release_if_idle(self) -> None:
        if self._is_used:
            self._is_used = False
        elif self._is_used is not None:
            self._is_used = None
            for segment in self.segments:
                segment.release()

    def remove_oldest(self, count: int) -> list[Segment]:
        removed, self.segments = self.segments[:count], self.segments[count:]
        self.size_bytes -= sum(segment.size for segment in removed)
        return removed

    def index_of_run(self, run: tuple[Segment, ...]) -> int | None:
        """Where these adjacent segments are in the log; None unless all are, and sealed."""
        segments = self.segments
        at = next((index for index, segment in enumerate(segments) if segment is run[0]), -1)
        if at < 0 or tuple(segments[at : at + len(run)]) != run or run[-1] is self.active:
            return None
        return at

    def replace(self, at: int, old: tuple[Segment, ...], new: Segment) -> None:
        self.segments = [*self.segments[:at], new, *self.segments[at + len(old) :]]
        self.size_bytes += new.size - sum(segment.size for segment in old)
        self.entries_changed += 1

    def begin_truncation(self, offset: int) -> None:
        self.truncating_to = offset

    def end_truncation(self) -> None:
        """Ends a truncation that removed only leader epochs: the segments are as they were."""
        self.truncating_to = None

    def truncate(self, segments: list[Segment], end_offset: int) -> None:
        """The files were truncated: these segments remain, the last of them already shortened."""
        damage = self.damage
        # First: from here on, results of threads that began before are ignored.
        self.generation += 1
        self._damage = None
        if damage is not None and damage.offset < end_offset:
            self._damage = Damage(self.generation, damage.offset, damage.why)
        self.segments = segments
        self.active = segments[-1]
        self.end_offset = end_offset
        self.size_bytes = sum(segment.size for segment in segments)
        self.entries_changed += 1
        self.truncating_to = None

    @property
    def damage(self) -> Damage | None:
        damage = self._damage
        return damage if damage is not None and damage.generation == self.generation else None

    def report_damage(self, offset: int, why: str, generation: int) -> None:
        """Any thread. Ignored if the log was truncated since the thread captured `generation`; two threads at once may
        lose one report, which the next read of those records repeats."""
        known = self.damage
        if generation == self.generation and self.truncating_to is None and (known is None or offset < known.offset):
            self._damage = Damage(generation, offset, why)


def segment_index(segments: list[Segment], offset: int) -> int:
    """The index of the segment that holds `offset`: the last one that starts at or below it."""
    return max(0, bisect_right(segments, offset, key=_base_offset_of) - 1)


def _base_offset_of(segment: Segment) -> int:
    return segment.base_offset
