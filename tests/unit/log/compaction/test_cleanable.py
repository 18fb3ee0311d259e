"""Which part of a log is cleaned and when, into which segments, and reads after compaction."""

from __future__ import annotations

import random

import pytest
from msgspec.structs import replace

from strandline.log.compaction.cleanable import Cleanable
from strandline.log.compaction.cleaner import Cleaning
from strandline.records.batch import Record, batches, encode_batch
from unit.log.compaction.compacted_log import NOW, SETTINGS, CompactedLog
from unit.log.logs import append_as_leader


@pytest.fixture
def log() -> CompactedLog:
    return CompactedLog()


class TestRange:
    def test_the_cleaned_part_is_clean_until_more_is_appended(self, log: CompactedLog) -> None:
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

    def test_records_younger_than_min_compaction_lag_are_not_cleaned(self) -> None:
        log = CompactedLog(replace(SETTINGS, min_compaction_lag_ms=1000))
        log.put(("a", "1"))
        log.put(("a", "2"))
        log.roll()
        log.now += 500
        log.put(("a", "3"))
        log.roll()
        assert log.look().first_uncleanable_offset == 0
        log.now += 499
        assert log.look().first_uncleanable_offset == 0
        log.now += 1
        assert log.look().first_uncleanable_offset == 2
        log.clean()
        assert log.contents() == [(1, "a", "2"), (2, "a", "3")]
        log.reopen()
        log.now += 500
        log.clean()
        assert log.contents() == [(2, "a", "3")]

    def test_records_older_than_max_compaction_lag_make_cleaning_due(self) -> None:
        log = CompactedLog(replace(SETTINGS, max_compaction_lag_ms=1000))
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

    def test_a_log_without_dirty_records_is_never_due(self) -> None:
        found = Cleanable(0, 0, 500, 0, overdue=True, checkpoint_was_wrong=False)
        assert not found.is_due(0.0)
        assert replace(found, dirty_bytes=1).is_due(1.0)

    def test_offsets_without_a_batch_at_the_end_of_a_segment_are_clean(self) -> None:
        log = CompactedLog(replace(SETTINGS, segment_bytes=150))
        log.put(("z", "1"))
        log.put(("a", "1"))
        log.roll()
        log.put(("a", "2"))
        log.roll()
        log.clean()
        assert [header.base_offset for header in log.headers()] == [0, 2]
        assert [segment.base_offset for segment in log.log.segments] == [0, 2, 3]
        cleaning = Cleaning(
            log.log,
            Cleanable(0, 2, 0, 1, overdue=False, checkpoint_was_wrong=False),
            wall_ms=NOW,
            random=random.Random(1),
        )
        while not cleaning.done:
            assert cleaning.step() is None
        assert cleaning.end_offset == 2

    @pytest.mark.parametrize("checkpoint", [-5, 99])
    def test_a_checkpoint_outside_of_the_log_is_ignored(self, log: CompactedLog, checkpoint: int) -> None:
        log.put(("a", "1"))
        log.put(("a", "2"))
        log.roll()
        log.checkpoint = checkpoint
        found = log.look()
        assert found.checkpoint_was_wrong
        assert found.first_dirty_offset == 0
        log.clean()
        assert log.contents() == [(1, "a", "2")]

    def test_nothing_is_cleaned_beyond_the_high_watermark(self, log: CompactedLog) -> None:
        log.put(("a", "1"))
        log.roll()
        append_as_leader(log.log, encode_batch([Record(-1, log.now, b"a", b"2")]), leader_epoch=3, wall_ms=log.now)
        log.roll()
        assert log.look().first_uncleanable_offset == 1

    def test_a_full_offset_map_ends_the_pass_early_and_the_next_continues(self, log: CompactedLog) -> None:
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

    def test_small_segments_are_merged_up_to_segment_bytes(self) -> None:
        log = CompactedLog(replace(SETTINGS, segment_bytes=2000))
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

    def test_a_segment_that_loses_no_record_is_not_replaced(self, log: CompactedLog) -> None:
        log.put(("a", "1"), ("b", "1"))
        log.roll()
        segment = log.log.segments[0]
        log.clean()
        assert log.log.segments[0] is segment
        assert log.checkpoint == 2
        assert sorted(name for name in log.disk.list(log.path) if "clean" in name or "swap" in name) == []


class TestReading:
    def test_a_read_of_a_removed_offset_starts_with_the_next_batch(self) -> None:
        log = CompactedLog(replace(SETTINGS, index_interval_bytes=100))
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
                if hasattr(read, "load"):
                    read.load()
                    read = log.log.read(offset, max_bytes=1)
                assert read.slice is not None
                first = next(batches(read.slice.read()))[1]
                assert first.last_offset == min(last for last in left if last >= offset)

    def test_timestamps_are_found_after_compaction(self) -> None:
        log = CompactedLog(replace(SETTINGS, index_interval_bytes=100))
        for n in range(100):
            log.now = NOW + 10 * n
            log.put((f"key{n % 10}", "v"))
        log.roll()
        log.clean()
        found = log.log.offset_for_timestamp(NOW + 500)
        assert found is not None
        assert (found.offset, found.timestamp) == (90, NOW + 900)
