"""Compaction against a model: a dictionary of what each key was last set to."""

from __future__ import annotations

import errno
import random
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest

from strandline.log.cleanable import Cleanable, cleanable
from strandline.log.cleaner import Cleaning, Uncleanable
from strandline.log.partition_log import PartitionLog
from strandline.log.segment_swap import replace_segments
from strandline.log.settings import LogSettings
from strandline.log.validation import Origin
from strandline.model.errors import ErrorCode, KafkaError
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
from strandline.simulation.journal import Journal
from strandline.simulation.volume import Fate, Volume

NOW = 1_700_000_000_000
DAY = 86_400_000
SETTINGS = LogSettings(cleanup_compact=True, cleanup_delete=False, segment_bytes=1 << 20, min_cleanable_dirty_ratio=0.0)
PARTITION = TopicPartition("t", 0)


def text(data: bytes | None) -> str | None:
    return None if data is None else data.decode()


class Log:
    """A log that can be appended to, cleaned and read as a whole."""

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
        appended = self.log.append_as_leader(
            memoryview(batch), leader_epoch=3, wall_ms=self.now, now_ms=0, origin=origin
        )
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
        """A whole pass, as the shell of a node does it."""
        found = self.look()
        cleaning = Cleaning(
            self.log, found, wall_ms=self.now, random=random.Random(5), dedupe_buffer_bytes=dedupe_buffer_bytes
        )
        while not cleaning.done:
            replacement = cleaning.step()
            if replacement is not None:
                for segment in replace_segments(self.log, replacement):
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


@pytest.fixture
def log() -> Log:
    return Log()


class TestRecords:
    @pytest.mark.parametrize("codec", list(Codec))
    def test_of_each_key_the_newest_record_stays_at_its_offset(self, log: Log, codec: Codec) -> None:
        log.put(("a", "1"), ("b", "1"), ("a", "2"), codec=codec)
        log.put(("c", "1"), ("b", "2"), codec=codec)
        log.roll()
        log.put(("a", "3"))
        log.clean()
        assert log.contents() == [(2, "a", "2"), (3, "c", "1"), (4, "b", "2"), (5, "a", "3")]
        assert [header.codec for header in log.headers()] == [codec, codec, Codec.NONE]

    def test_offsets_of_batches_leader_epochs_and_timestamps_do_not_change(self, log: Log) -> None:
        log.put(("a", "1"), ("b", "1"), ("a", "2"))
        before = log.headers()[0]
        kept = {record.offset: record for record in log.records()}
        log.roll()
        log.put(("b", "2"))
        log.roll()
        log.clean()
        after = log.headers()[0]
        assert (after.base_offset, after.last_offset) == (before.base_offset, before.last_offset)
        assert after.partition_leader_epoch == 3
        assert after.record_count == 1
        assert [record for record in log.records() if record.offset < 3] == [kept[2]]
        assert after.max_timestamp == kept[2].timestamp

    def test_a_batch_that_loses_nothing_is_copied_as_it_is(self, log: Log) -> None:
        log.put(("a", "1"), ("b", "1"), codec=Codec.ZSTD)
        log.put(("c", "1"), ("c", "2"), codec=Codec.ZSTD)
        log.roll()
        first = log.disk.read(log.log.segments[0].path(".log"))[: log.headers()[0].size_bytes]
        log.clean()
        assert log.disk.read(log.log.segments[0].path(".log")).startswith(first)

    def test_records_without_a_key_go(self) -> None:
        log = Log(replace(SETTINGS, cleanup_compact=False))
        log.put((None, "x"), ("a", "1"), (None, "y"))
        log.log.settings = SETTINGS
        log.roll()
        log.clean()
        assert log.contents() == [(1, "a", "1")]

    def test_empty_keys_and_long_keys_are_keys(self, log: Log) -> None:
        long = "k" * 500
        log.put(("", "1"), (long, "1"), (long[:-1] + "x", "1"), (long, "2"), ("", "2"))
        log.roll()
        log.clean()
        assert log.contents() == [(2, long[:-1] + "x", "1"), (3, long, "2"), (4, "", "2")]

    def test_keys_that_differ_in_length_only_are_different(self, log: Log) -> None:
        keys = ["\0" * n for n in range(20)]
        log.put(*[(key, "v") for key in keys])
        log.roll()
        log.clean()
        assert [key for _, key, _ in log.contents()] == keys

    def test_headers_of_records_survive(self, log: Log) -> None:
        record = Record(-1, NOW, b"a", b"1", (("h", b"x"), ("n", None)))
        log.append(encode_batch([record, record._replace(key=b"b"), record]))
        log.roll()
        log.clean()
        assert [kept.headers for kept in log.records()] == [record.headers, record.headers]

    def test_the_active_segment_is_not_touched_but_not_known_either(self, log: Log) -> None:
        log.put(("a", "1"))
        log.roll()
        log.put(("a", "2"), ("a", "3"))
        log.clean()
        assert log.contents() == [(0, "a", "1"), (1, "a", "2"), (2, "a", "3")]

    def test_log_append_time_stays(self) -> None:
        log = Log(replace(SETTINGS, message_timestamp_type="LogAppendTime"))
        log.put(("a", "1"), ("b", None), ("a", "2"))
        log.now += 1000
        log.roll()
        log.clean()
        assert [(record.key, record.timestamp) for record in log.records()] == [(b"b", NOW), (b"a", NOW)]
        assert log.headers()[0].is_log_append_time


class TestTombstones:
    def test_a_tombstone_deletes_and_goes_after_delete_retention(self, log: Log) -> None:
        log.put(("a", "1"), ("b", "1"))
        log.put(("a", None))
        log.put(("z", "1"))
        log.roll()
        log.clean()
        assert log.contents() == [(1, "b", "1"), (2, "a", None), (3, "z", "1")]
        tombstone = log.headers()[1]
        assert tombstone.has_delete_horizon
        assert tombstone.base_timestamp == NOW + DAY
        log.now += DAY - 1
        log.put(("y", "1"))
        log.roll()
        log.clean()
        assert (2, "a", None) in log.contents()
        assert log.headers()[1].base_timestamp == NOW + DAY, "the horizon is set once"
        log.now += 1
        log.put(("y", "1"))
        log.roll()
        log.clean()
        assert log.contents() == [(1, "b", "1"), (3, "z", "1"), (5, "y", "1")]

    def test_timestamps_stay_when_the_horizon_takes_the_place_of_their_base(self, log: Log) -> None:
        log.put(("a", "1"), ("b", None), ("c", "1"), ("a", "2"))
        before = {record.offset: record.timestamp for record in log.records()}
        log.roll()
        log.clean()
        assert [header.has_delete_horizon for header in log.headers()] == [True]
        assert {record.offset: record.timestamp for record in log.records()} == {n: before[n] for n in (1, 2, 3)}
        assert log.headers()[0].max_timestamp == before[3]

    @pytest.mark.parametrize("codec", list(Codec))
    def test_other_records_of_a_tombstones_batch_outlive_it(self, log: Log, codec: Codec) -> None:
        log.put(("a", None), ("b", "1"), codec=codec)
        log.put(("z", "1"))
        log.roll()
        log.clean()
        log.now += DAY
        log.put(("y", "1"))
        log.roll()
        log.clean()
        assert log.contents() == [(1, "b", "1"), (2, "z", "1"), (3, "y", "1")]
        assert {record.offset: record.timestamp for record in log.records()}[1] == NOW + 1

    def test_a_value_after_the_tombstone_wins_at_once(self, log: Log) -> None:
        log.put(("a", "1"))
        log.put(("a", None))
        log.put(("a", "2"))
        log.roll()
        log.clean()
        assert log.contents() == [(2, "a", "2")]


class TestProducers:
    def test_the_last_batch_of_a_producer_is_kept_as_an_empty_one(self, log: Log) -> None:
        log.put(("a", "1"), ("b", "1"), producer_id=7, producer_epoch=2, base_sequence=0)
        log.put(("a", "2"), ("b", "2"), producer_id=7, producer_epoch=2, base_sequence=2)
        log.put(("a", "3"), ("b", "3"))
        log.roll()
        log.clean()
        empty = log.headers()[0]
        assert (empty.base_offset, empty.last_offset, empty.record_count) == (2, 3, 0)
        assert (empty.producer_id, empty.producer_epoch, empty.base_sequence) == (7, 2, 2)
        assert empty.last_sequence == 3
        log.reopen(clean=False)
        state = log.log.producers.get(7)
        assert state is not None
        assert (state.producer_epoch, state.last_sequence) == (2, 3)

    def test_it_goes_when_the_producer_has_sent_more(self, log: Log) -> None:
        log.put(("a", "1"), producer_id=7, producer_epoch=2, base_sequence=0)
        log.put(("a", "2"))
        log.roll()
        log.clean()
        assert [header.record_count for header in log.headers()] == [0, 1]
        log.put(("c", "1"), producer_id=7, producer_epoch=2, base_sequence=1)
        log.roll()
        log.clean()
        assert [(header.base_offset, header.record_count) for header in log.headers()] == [(1, 1), (2, 1)]

    def test_it_goes_when_the_producer_is_forgotten(self, log: Log) -> None:
        log.put(("a", "1"), producer_id=7, producer_epoch=2, base_sequence=0)
        log.put(("a", "2"))
        log.roll()
        log.log.producers.expire(NOW + 10 * DAY, DAY)
        log.clean()
        assert [header.base_offset for header in log.headers()] == [1]

    def test_the_last_batch_before_the_limit_is_kept_as_an_empty_one(self, log: Log) -> None:
        log.put(("z", "1"))
        log.put(("a", "1"), ("a", None))
        log.roll()
        log.clean()
        log.now += DAY
        log.put(("b", "1"))
        log.put((("b"), None))
        log.roll()
        log.clean()
        assert log.contents() == [(0, "z", "1"), (4, "b", None)]
        log.now += DAY
        log.put(("c", "1"))
        log.roll()
        log.clean()
        log.now += DAY
        assert log.contents() == [(0, "z", "1"), (5, "c", "1")]
        log.put(("c", None))
        log.roll()
        log.clean()
        log.now += DAY
        log.checkpoint = 0
        log.clean()
        last = log.headers()[-1]
        assert (last.base_offset, last.record_count) == (6, 0)
        log.reopen(clean=False)
        assert log.log.log_end_offset == 7


class TestTransactions:
    def begin(self, log: Log, producer_id: int, *pairs: tuple[str, str], sequence: int = 0) -> int:
        return log.put(*pairs, producer_id=producer_id, producer_epoch=0, base_sequence=sequence, transactional=True)

    def test_aborted_records_go_and_do_not_hide_older_ones(self, log: Log) -> None:
        log.put(("a", "1"))
        self.begin(log, 7, ("a", "aborted"), ("b", "aborted"))
        log.end_transaction(7, commit=False)
        log.put(("z", "1"))
        log.roll()
        log.clean()
        assert log.contents() == [(0, "a", "1"), (4, "z", "1")]
        assert log.markers() == [(3, ControlType.ABORT)]

    def test_committed_records_count_like_others(self, log: Log) -> None:
        log.put(("a", "1"))
        self.begin(log, 7, ("a", "2"))
        log.end_transaction(7, commit=True)
        log.roll()
        log.clean()
        assert log.contents() == [(1, "a", "2")]
        assert log.markers() == [(2, ControlType.COMMIT)]

    @pytest.mark.parametrize("commit", [True, False])
    def test_a_marker_goes_a_delete_retention_after_the_last_record_of_its_transaction(
        self, log: Log, commit: bool
    ) -> None:
        self.begin(log, 7, ("a", "1"))
        log.end_transaction(7, commit=commit)
        self.begin(log, 7, ("c", "1"), sequence=1)
        log.end_transaction(7, commit=True)
        log.put(("a", "2"))
        log.put(("z", "1"))

        def pass_() -> list[int]:
            log.put(("y", "1"))
            log.roll()
            log.clean()
            return [offset for offset, _ in log.markers()]

        assert pass_() == [1, 3], "this pass removes the record and keeps the marker"
        assert not log.headers()[0].has_delete_horizon
        assert pass_() == [1, 3], "this one finds the marker alone and sets its horizon"
        header = log.headers()[0]
        assert header.has_delete_horizon
        assert header.base_timestamp == NOW + DAY
        assert header.is_control
        assert header.is_transactional
        log.now += DAY - 1
        assert pass_() == [1, 3]
        log.now += 1
        assert pass_() == [3]

    def test_the_transaction_index_names_what_was_aborted_while_its_marker_is_kept(self, log: Log) -> None:
        first = self.begin(log, 7, ("a", "aborted"))
        marker = log.end_transaction(7, commit=False)
        self.begin(log, 7, ("b", "1"), sequence=1)
        log.end_transaction(7, commit=True)
        log.put(("z", "1"))
        log.roll()
        log.clean()
        [entry] = log.log.segments[0].aborted or ()
        assert (entry.producer_id, entry.first_offset, entry.last_offset) == (7, first, marker)
        log.reopen(clean=False)
        log.put(("z", "2"))
        log.roll()
        log.clean()
        assert log.log.segments[0].aborted == ()

    def test_an_aborted_transaction_that_spans_segments_is_dropped_everywhere(self, log: Log) -> None:
        log.put(("a", "1"))
        self.begin(log, 7, ("a", "aborted"))
        log.roll()
        self.begin(log, 7, ("b", "aborted"), sequence=1)
        log.roll()
        log.end_transaction(7, commit=False)
        log.put(("z", "1"))
        log.roll()
        log.clean()
        assert log.contents() == [(0, "a", "1"), (4, "z", "1")]

    def test_an_aborted_transaction_whose_marker_lies_behind_the_limit_is_known(self, log: Log) -> None:
        log.put(("a", "1"))
        self.begin(log, 7, ("a", "aborted"))
        log.roll()
        log.end_transaction(7, commit=False)
        log.clean()
        assert log.contents() == [(0, "a", "1")]
        assert log.headers()[1].record_count == 0

    def test_nothing_at_or_above_an_open_transaction_is_cleaned(self, log: Log) -> None:
        log.put(("a", "1"))
        log.roll()
        self.begin(log, 7, ("a", "2"))
        log.put(("a", "3"))
        log.roll()
        log.put(("a", "4"))
        log.roll()
        assert log.look().first_uncleanable_offset == 1
        log.clean()
        assert [offset for offset, _, _ in log.contents()] == [0, 1, 2, 3]

    def test_two_producers_at_once_are_told_apart(self, log: Log) -> None:
        self.begin(log, 7, ("a", "seven"))
        self.begin(log, 8, ("a", "eight"))
        self.begin(log, 7, ("b", "seven"), sequence=1)
        log.end_transaction(8, commit=False)
        log.end_transaction(7, commit=True)
        log.put(("z", "1"))
        log.roll()
        log.clean()
        assert log.contents() == [(0, "a", "seven"), (2, "b", "seven"), (5, "z", "1")]


class TestRange:
    def test_what_was_cleaned_is_clean_until_more_is_appended(self, log: Log) -> None:
        log.put(("a", "1"))
        log.put(("a", "2"))
        log.roll()
        assert log.look().dirty_ratio == 1.0
        log.clean()
        assert log.checkpoint == 2
        found = log.look()
        assert (found.dirty_bytes, found.dirty_ratio) == (0, 0.0)
        assert not found.is_due(0.0)
        log.put(("b", "1"))
        log.roll()
        found = log.look()
        assert found.clean_bytes == log.log.segments[0].size
        assert found.dirty_bytes == log.log.segments[1].size
        assert found.is_due(0.4)
        assert not found.is_due(found.dirty_ratio)

    def test_records_younger_than_the_lag_are_not_cleaned(self) -> None:
        log = Log(replace(SETTINGS, min_compaction_lag_ms=1000))
        log.put(("a", "1"))
        log.put(("a", "2"))
        log.roll()
        log.now += 500
        log.put(("a", "3"))
        log.roll()
        assert log.look().first_uncleanable_offset == 0
        log.now += 501
        assert log.look().first_uncleanable_offset == 2
        log.clean()
        assert log.contents() == [(1, "a", "2"), (2, "a", "3")]
        log.reopen()
        log.now += 500
        log.clean()
        assert log.contents() == [(2, "a", "3")]

    def test_records_older_than_the_longest_lag_make_it_due(self) -> None:
        log = Log(replace(SETTINGS, max_compaction_lag_ms=1000))
        log.put(("a", "1"))
        log.roll()
        log.now += 1000
        assert not log.look().is_due(1.0)
        log.now += 1
        assert log.look().is_due(1.0)
        log.reopen()
        assert log.look().is_due(1.0)
        log.clean()
        log.now += 5000
        assert not log.look().is_due(1.0)

    @pytest.mark.parametrize("checkpoint", [-5, 99])
    def test_a_checkpoint_outside_of_the_log_is_forgotten(self, log: Log, checkpoint: int) -> None:
        log.put(("a", "1"))
        log.put(("a", "2"))
        log.roll()
        log.checkpoint = checkpoint
        found = log.look()
        assert found.checkpoint_was_wrong
        assert found.first_dirty_offset == 0
        log.clean()
        assert log.contents() == [(1, "a", "2")]

    def test_nothing_is_cleaned_beyond_the_high_watermark(self, log: Log) -> None:
        log.put(("a", "1"))
        log.roll()
        watermark = log.log.high_watermark
        log.put(("a", "2"))
        log.roll()
        log.log.high_watermark = watermark
        assert log.look().first_uncleanable_offset == 1

    def test_a_full_map_ends_the_pass_early_and_the_next_goes_on(self, log: Log) -> None:
        for n in range(3000):
            log.put((f"key{n % 1500}", str(n)))
            if n % 400 == 399:
                log.roll()
        log.roll()
        passes = 0
        while log.look().dirty_bytes:
            cleaning = log.clean(dedupe_buffer_bytes=0)
            assert cleaning.stats.keys <= 1000
            passes += 1
        assert passes > 1
        assert log.contents() == [(n, f"key{n % 1500}", str(n)) for n in range(1500, 3000)]

    def test_small_segments_are_joined_and_none_grows_too_large(self) -> None:
        log = Log(replace(SETTINGS, segment_bytes=2000))
        for n in range(60):
            log.put((f"key{n}", "v" * 10), (f"same{n % 3}", "v" * 190))
        log.roll()
        before = len(log.log.segments)
        log.clean()
        log.checkpoint = 0
        log.clean()
        sizes = [segment.size for segment in log.log.segments[:-1]]
        assert len(sizes) < before - 1
        assert max(sizes) <= 2000
        assert log.log.size_bytes == sum(sizes)
        assert {key for _, key, _ in log.contents()} == {f"key{n}" for n in range(60)} | {"same0", "same1", "same2"}

    def test_a_segment_that_loses_nothing_stays_the_same_file(self, log: Log) -> None:
        log.put(("a", "1"), ("b", "1"))
        log.roll()
        segment = log.log.segments[0]
        log.clean()
        assert log.log.segments[0] is segment
        assert log.checkpoint == 2
        assert sorted(name for name in log.disk.list(log.path) if "clean" in name or "swap" in name) == []


class TestReading:
    def test_reads_of_every_offset_go_to_the_next_batch_that_is_left(self) -> None:
        log = Log(replace(SETTINGS, index_interval_bytes=100))
        for n in range(300):
            log.put((f"key{n % 17}", f"{n}" * 10))
        log.roll()
        log.put(("last", "1"))
        log.clean()
        left = [header.last_offset for header in log.headers()]
        for reopened in (False, True):
            if reopened:
                log.reopen()
            for offset in range(301):
                read = log.log.read(offset, max_bytes=1)
                if hasattr(read, "warm"):
                    read.warm()
                    read = log.log.read(offset, max_bytes=1)
                assert read.slice is not None
                first = next(batches(read.slice.read()))[1]
                assert first.last_offset == min(last for last in left if last >= offset)

    def test_timestamps_are_found_after_compaction(self) -> None:
        log = Log(replace(SETTINGS, index_interval_bytes=100))
        for n in range(100):
            log.now = NOW + 10 * n
            log.put((f"key{n % 10}", "v"))
        log.roll()
        log.clean()
        found = log.log.offset_for_timestamp(NOW + 500)
        assert found is not None
        assert (found.offset, found.timestamp) == (90, NOW + 900)


class TestDamage:
    def test_a_damaged_batch_is_not_written_again(self, log: Log) -> None:
        log.put(("a", "1"), ("a", "2"))
        log.put(("b", "1"))
        log.roll()
        path = log.log.segments[0].path(".log")
        file = log.disk.open(path)
        file.write_at(75, bytes([file.read_at(75, 1)[0] ^ 1]))
        data = log.disk.read(path)
        with pytest.raises(Uncleanable, match=r"t-0.*offset 0"):
            log.clean()
        assert log.disk.read(path) == data
        assert not [name for name in log.disk.list(log.path) if name.endswith((".cleaned", ".swap"))]

    def test_a_cut_file_is_not_cleaned(self, log: Log) -> None:
        log.put(("a", "1"), ("a", "2"))
        log.roll()
        segment = log.log.segments[0]
        log.disk.open(segment.path(".log")).truncate(segment.size - 1)
        with pytest.raises(Uncleanable):
            log.clean()

    @pytest.mark.parametrize("kind", ["read", "create", "write", "sync", "rename"])
    def test_a_failing_disk_ends_the_pass_and_leaves_the_log_as_it_was(self, kind: str) -> None:
        disk = SimDisk(Volume())
        log = Log(disk=disk)
        log.put(("a", "1"), ("a", "2"))
        log.roll()
        log.log.flush()
        before = log.contents()
        fault = disk.fail(kind, code=errno.ENOSPC)
        with pytest.raises(KafkaError) as failure:
            log.clean()
        assert failure.value.code == ErrorCode.KAFKA_STORAGE_ERROR
        disk.mend(fault)
        assert log.contents() == before
        assert log.clean().done
        assert log.contents() == [(1, "a", "2")]

    def test_a_pass_can_be_abandoned_between_slices(self, log: Log) -> None:
        for n in range(2000):
            log.put((f"key{n % 7}", "v" * 400))
        log.roll()
        before = log.contents()
        cleaning = Cleaning(log.log, log.look(), wall_ms=log.now, random=random.Random(1))
        for _ in range(6):
            assert cleaning.step() is None
        assert [name for name in log.disk.list(log.path) if name.endswith(".cleaned")]
        cleaning.abandon()
        assert cleaning.done
        assert not [name for name in log.disk.list(log.path) if name.endswith((".cleaned", ".swap"))]
        assert log.contents() == before

    def test_a_pass_ends_when_segments_leave_the_log(self, log: Log) -> None:
        log.put(("a", "1"), ("a", "2"))
        log.roll()
        log.put(("b", "1"))
        log.roll()
        cleaning = Cleaning(log.log, log.look(), wall_ms=log.now, random=random.Random(1))
        cleaning.step()
        log.log.restart_at(50)
        while not cleaning.done:
            assert cleaning.step() is None
        assert cleaning.end_offset == 0
        assert log.log.log_end_offset == 50

    def test_a_replacement_of_segments_that_are_gone_is_given_up(self, log: Log) -> None:
        log.put(("a", "1"), ("a", "2"))
        log.roll()
        cleaning = Cleaning(log.log, log.look(), wall_ms=log.now, random=random.Random(1))
        replacement = None
        while replacement is None:
            replacement = cleaning.step()
        log.log.restart_at(50)
        assert replace_segments(log.log, replacement) == [replacement.new]
        replacement.new.remove()
        assert log.contents() == []


def fill_for_crash(log: Log) -> dict[str, str]:
    model: dict[str, str] = {}
    for n in range(120):
        log.put((f"key{n % 11}", str(n)))
        model[f"key{n % 11}"] = str(n)
        if n % 13 == 12:
            log.put(
                *[(f"seven{n % 3}", str(n))], producer_id=7, producer_epoch=0, base_sequence=n // 13, transactional=True
            )
            log.end_transaction(7, commit=n % 2 == 0)
            if n % 2 == 0:
                model[f"seven{n % 3}"] = str(n)
        if n % 30 == 29:
            log.roll()
    return model


def committed(log: Log) -> dict[str, str | None]:
    """What a reader of committed records sees, last values only."""
    aborted = [entry for segment in log.log.segments for entry in (segment.aborted or ())]
    seen: dict[str, str | None] = {}
    for header, records in log.batches():
        dropped = any(
            header.is_transactional
            and entry.producer_id == header.producer_id
            and entry.first_offset <= header.base_offset <= entry.last_offset
            for entry in aborted
        )
        if not header.is_control and not dropped:
            for record in records:
                assert record.key is not None
                seen[record.key.decode()] = None if record.value is None else record.value.decode()
    return seen


def load_aborted(log: Log) -> None:
    reader = log.log.aborted_transactions(0, log.log.log_end_offset)
    if not isinstance(reader, list):
        reader.warm()


def test_a_power_loss_at_any_operation_loses_nothing_and_brings_nothing_back() -> None:
    settings = replace(SETTINGS, segment_bytes=4000, index_interval_bytes=200)
    journal = Journal()
    log = Log(settings, SimDisk(Volume(), journal=journal))
    model = fill_for_crash(log)
    log.log.flush()
    flushed = len(journal.operations)
    end_offset = log.log.log_end_offset
    log.clean()
    assert committed(log) == model
    volume = Volume()
    rng = random.Random(11)
    for moment in journal.moments(volume):
        if moment < flushed:
            continue
        for fate in (Fate.LOST, Fate.KEPT, Fate.MIXED):
            again = Log(settings, SimDisk(volume.after_power_loss(rng, fate)))
            load_aborted(again)
            assert again.log.log_end_offset == end_offset
            assert committed(again) == model, f"power lost at operation {moment}, changes {fate.value}"
            assert not [name for name in again.disk.list(again.path) if name.endswith((".cleaned", ".swap"))]
            if moment % 5 == 0:
                again.clean()
                assert committed(again) == model
    assert len(journal.operations) - flushed > 20


def apply_randomly(log: Log, rng: random.Random, appended: dict[int, tuple[str, str | None, int]]) -> None:
    pairs: list[tuple[str | None, str | None]] = [
        (f"k{rng.randrange(12)}", None if rng.random() < 0.2 else str(rng.randrange(1000)))
        for _ in range(rng.choice([1, 1, 2, 5, 90]))
    ]
    base = log.put(*pairs, codec=rng.choice(list(Codec)))
    for n, (key, value) in enumerate(pairs):
        assert key is not None
        appended[base + n] = (key, value, log.now + n)


@pytest.mark.parametrize("seed", range(8))
def test_whatever_is_written_and_cleaned_readers_see_the_last_value_of_each_key(seed: int) -> None:
    rng = random.Random(seed)
    log = Log(replace(SETTINGS, segment_bytes=20_000, index_interval_bytes=300))
    appended: dict[int, tuple[str, str | None, int]] = {}
    steps: list[Callable[[], object]] = [
        lambda: apply_randomly(log, rng, appended),
        lambda: apply_randomly(log, rng, appended),
        lambda: apply_randomly(log, rng, appended),
        log.roll,
        lambda: log.clean(dedupe_buffer_bytes=rng.choice([0, 1 << 20])),
        lambda: log.reopen(clean=rng.random() < 0.5),
    ]
    for _ in range(120):
        log.now += rng.choice([0, 1, 1000, DAY // 2])
        rng.choice(steps)()
        check_against(log, appended)


def check_against(log: Log, appended: dict[int, tuple[str, str | None, int]]) -> None:
    current: dict[str, int] = {}
    for offset, (key, _, _) in appended.items():
        current[key] = offset
    left = {record.offset: record for record in log.records()}
    for offset, record in left.items():
        key, value, timestamp = appended[offset]
        assert record.key == key.encode()
        assert record.value == (None if value is None else value.encode())
        assert record.timestamp == timestamp
    for key, offset in current.items():
        if appended[offset][1] is not None:
            assert offset in left, f"{key} lost its value"
        else:
            older = [at for at, (other, value, _) in appended.items() if other == key and at < offset]
            assert offset in left or not any(at in left for at in older), f"{key} came back"
    offsets = [record.offset for record in log.records()]
    assert offsets == sorted(offsets)
    assert log.log.log_end_offset == len(appended)
