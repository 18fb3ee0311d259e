"""Compaction: rewrite a log so that only the newest record of each key remains.

A `Cleaning` is one pass over one log. It is constructed on the event loop, where it captures what it needs of the log,
and `replication/compaction_scheduler` calls `step` repeatedly in a thread; a step takes some ten milliseconds, so that
the caller can throttle it, or abandon it between two steps when the log must be truncated. A pass first reads the dirty
part of the log into an offset map, as far as the map's budget allows, and then rewrites all segments up to there, in
groups that fit one segment each.

What is kept (Kafka's rules):

- a record whose key was not seen at a larger offset, and every record above what the map accounts for;
- of those, a record without a value (tombstone) until its batch's delete horizon has passed; the first pass over it
  sets the horizon, delete.retention.ms ahead;
- a transaction marker until all batches of its transaction are removed, and then until its own delete horizon;
- the last batch of every producer in the producer state, and the last batch of the cleanable part, if need be as empty
  batches.

Records without a key and aborted records are removed. A group is written to `.cleaned` files, synced, and renamed to
`.swap`: from then on it is finished, and after a crash it replaces the old segments when the log is opened. `step`
returns it as a `Replacement`, for `PartitionLog.replace_segments` on the event loop. Every batch's checksum is verified
when it is read, so that damage is never written again with a valid one: it ends the pass with `Uncleanable`.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from random import Random

import msgspec

from strandline.log import names, transaction_index
from strandline.log.compaction.batch_filter import BatchFilter, LastRecord, Uncleanable, read_chunks
from strandline.log.compaction.cleanable import Cleanable
from strandline.log.compaction.offset_map import KeyHash, OffsetMap
from strandline.log.compaction.transactions import CleanerTransactions
from strandline.log.local_log import Replacement
from strandline.log.partition_log import PartitionLog
from strandline.log.segment import MAX_SPAN, Segment
from strandline.log.transaction_index import AbortedTransaction
from strandline.records.batch import CorruptBatch

DEDUPE_BUFFER_BYTES = 128 << 20

__all__ = ["Cleaning", "CleaningStats", "Uncleanable"]


class CleaningStats(msgspec.Struct):
    bytes_read: int = 0
    bytes_written: int = 0
    records_read: int = 0
    records_kept: int = 0
    keys: int = 0


class _Group(msgspec.Struct):
    segments: list[Segment] = msgspec.field(default_factory=list)
    size: int = 0
    index_size: int = 0


class Cleaning:
    """One pass. After the last step `end_offset` is to be written to cleaner-offset-checkpoint."""

    def __init__(
        self,
        log: PartitionLog,
        cleanable: Cleanable,
        *,
        wall_ms: int,
        random: Random,
        dedupe_buffer_bytes: int = DEDUPE_BUFFER_BYTES,
    ) -> None:
        self.stats = CleaningStats()
        self.done = False
        self.end_offset = cleanable.first_dirty_offset
        self._log = log
        self._generation = log.generation
        self._settings = log.settings
        self._cleanable = cleanable
        self._wall_ms = wall_ms
        segments = log.segments
        self._segments = [s for s in segments[:-1] if s.base_offset < cleanable.first_uncleanable_offset]
        self._ends = [segment.base_offset for segment in segments[1 : len(self._segments) + 1]]
        self._unread = self._segments
        self._later = segments[len(self._segments) :]
        self._log_end = log.log_end_offset
        self._last_records = {
            state.producer_id: LastRecord(state.producer_epoch, state.last_offset) for state in log.producers.all()
        }
        self._hash = KeyHash(random)
        self._budget = dedupe_buffer_bytes
        self._writing: Segment | None = None
        self._work = self._run()

    def step(self) -> Replacement | None:
        """Blocking. Does some work; returns the group that it finished, if any. Raises Uncleanable, or KafkaError when
        the directory fails; then the files of the unfinished group are removed. The pass ends early when segments that
        it has not read yet were removed from the log."""
        try:
            if self._is_current():
                return next(self._work)
            self.abandon()
        except StopIteration:
            self.done = True
        except OSError as error:
            self.abandon()
            if not self._is_current():
                return None
            raise self._log.health.report_error(error, f"compacting {self._log.path}") from error
        except CorruptBatch as error:
            self.abandon()
            raise Uncleanable(f"{self._log.topic_partition} cannot be compacted: {error}") from error
        return None

    def abandon(self) -> None:
        """Blocking. Stops, and removes the files of the unfinished group; groups returned before stay valid."""
        self._work.close()
        self.done = True
        writing, self._writing = self._writing, None
        if writing is not None:
            writing.remove()

    def _is_current(self) -> bool:
        """Whether all segments that are still to be read are in the log, which was not truncated."""
        if self._log.generation != self._generation:
            return False
        present = {id(segment) for segment in self._log.segments}
        return all(id(segment) in present for segment in self._unread)

    def _run(self) -> Generator[Replacement | None, None, None]:
        if not self._segments:
            return
        map_ = OffsetMap(self._budget)
        yield from self._fill(map_)
        self.stats.keys = len(map_)
        if map_.latest_offset < self._cleanable.first_dirty_offset:
            return
        end_offset = map_.latest_offset + 1
        transactions = CleanerTransactions(self._aborted_from(self._segments[0].base_offset))
        filter_ = BatchFilter(
            map_,
            self._hash,
            transactions,
            self._last_records,
            wall_ms=self._wall_ms,
            delete_retention_ms=self._settings.delete_retention_ms,
            last_batch_end=self._cleanable.first_uncleanable_offset,
            stats=self.stats,
        )
        for group in self._groups(end_offset):
            yield from self._rewrite(group, filter_, transactions)
        self.end_offset = end_offset

    def _fill(self, map_: OffsetMap) -> Iterator[None]:
        """Adds the keys of the dirty segments to the map until a batch does not fit."""
        first_dirty = self._cleanable.first_dirty_offset
        transactions = CleanerTransactions(self._aborted_from(first_dirty))
        for segment, end in zip(self._segments, self._ends, strict=True):
            if end <= first_dirty:
                continue
            for chunk in read_chunks(segment, first_dirty):
                self.stats.bytes_read += chunk.size
                if not chunk.add_keys(map_, self._hash, transactions, first_dirty):
                    return
                yield None
            # An earlier pass may have removed the batches at the end of the segment.
            map_.latest_offset = max(map_.latest_offset, end - 1)

    def _aborted_from(self, start: int) -> list[AbortedTransaction]:
        """Aborted transactions with records in the cleanable part from this offset on. Their markers, and so their
        index entries, may lie in later segments."""
        upper = self._ends[-1]
        found: list[AbortedTransaction] = []
        segments = [*self._segments, *self._later]
        ends = [*self._ends, *(segment.base_offset for segment in self._later[1:]), self._log_end]
        for segment, end in zip(segments, ends, strict=True):
            entries = segment.aborted
            if entries is None:
                path = segment.path(names.TRANSACTION_INDEX)
                entries, _ = transaction_index.load(segment.disk, path, segment.base_offset, end)
            found += [entry for entry in entries if entry.last_offset >= start and entry.first_offset < upper]
        return found

    def _groups(self, end_offset: int) -> Iterator[_Group]:
        """Adjacent segments that together fit one segment: by size, by index size, and by a span of 31 bits."""
        settings = self._settings
        group = _Group()
        for segment, end in zip(self._segments, self._ends, strict=True):
            if segment.base_offset >= end_offset:
                break
            index_path = segment.path(names.OFFSET_INDEX)
            index_size = segment.disk.size(index_path) if segment.disk.exists(index_path) else 0
            if group.segments and (
                group.size + segment.size > settings.segment_bytes
                or group.index_size + index_size > settings.segment_index_bytes
                or end - 1 - group.segments[0].base_offset > MAX_SPAN
            ):
                yield group
                group = _Group()
            group.segments.append(segment)
            group.size += segment.size
            group.index_size += index_size
        if group.segments:
            yield group

    def _rewrite(
        self, group: _Group, filter_: BatchFilter, transactions: CleanerTransactions
    ) -> Iterator[Replacement | None]:
        first = group.segments[0]
        new = Segment.create(first.disk, first.directory, first.base_offset, 0, names.CLEANED)
        self._writing = new
        unchanged = len(group.segments) == 1
        for segment in group.segments:
            for chunk in read_chunks(segment):
                self.stats.bytes_read += chunk.size
                filtered = filter_.filter(chunk)
                unchanged = unchanged and filtered.unchanged
                position = new.write(filtered.data) if filtered.data else new.size
                for batch in filtered.batches:
                    new.on_append(
                        batch.base_offset,
                        batch.last_offset,
                        batch.max_timestamp,
                        position + batch.position,
                        batch.size,
                        self._settings.index_interval_bytes,
                    )
                for aborted in transactions.take_kept():
                    new.add_aborted(aborted)
                yield None
        if unchanged:
            # The old segment has the same content.
            self._writing = None
            self._unread = self._unread[1:]
            new.remove()
            return
        self.stats.bytes_written += new.size
        _finish(new)
        self._writing = None
        self._unread = self._unread[len(group.segments) :]
        yield Replacement(tuple(group.segments), new)


def _finish(new: Segment) -> None:
    """Syncs everything, then renames `.cleaned` to `.swap`, the `.log` file last: where it exists, the others do
    too."""
    new.seal()
    new.release()
    new.sync()
    new.sync_indexes()
    new.disk.sync_dir(new.directory)
    for suffix in reversed(names.SEGMENT_SUFFIXES):
        path = new.path(suffix)
        if new.disk.exists(path):
            new.disk.rename(path, path.removesuffix(names.CLEANED) + names.SWAP)
    new.extra = names.SWAP
    new.disk.sync_dir(new.directory)
