"""What compaction keeps and what it removes: records, tombstones, markers, last batches of producers."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from strandline.records.batch import Codec, ControlType, Record, encode_batch
from unit.log.compaction.compacted_log import DAY, NOW, SETTINGS, CompactedLog


@pytest.fixture
def log() -> CompactedLog:
    return CompactedLog()


class TestRecords:
    @pytest.mark.parametrize("codec", list(Codec))
    def test_the_newest_record_of_each_key_is_kept_at_its_offset(self, log: CompactedLog, codec: Codec) -> None:
        log.put(("a", "1"), ("b", "1"), ("a", "2"), codec=codec)
        log.put(("c", "1"), ("b", "2"), codec=codec)
        log.roll()
        log.put(("a", "3"))
        log.clean()
        assert log.contents() == [(2, "a", "2"), (3, "c", "1"), (4, "b", "2"), (5, "a", "3")]
        assert [header.codec for header in log.headers()] == [codec, codec, Codec.NONE]

    def test_offsets_of_batches_leader_epochs_and_timestamps_do_not_change(self, log: CompactedLog) -> None:
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

    def test_the_largest_timestamp_is_that_of_the_kept_records(self, log: CompactedLog) -> None:
        records = [Record(-1, NOW + 900, b"a", b"1"), Record(-1, NOW + 5, b"b", b"1"), Record(-1, NOW, b"a", b"2")]
        log.append(encode_batch(records))
        log.roll()
        assert log.log.segments[0].largest_timestamp == NOW + 900
        log.clean()
        assert log.headers()[0].max_timestamp == NOW + 5
        assert log.log.segments[0].largest_timestamp == NOW + 5

    def test_a_batch_that_loses_no_record_is_copied_unchanged(self, log: CompactedLog) -> None:
        log.put(("a", "1"), ("b", "1"), codec=Codec.ZSTD)
        log.put(("c", "1"), ("c", "2"), codec=Codec.ZSTD)
        log.roll()
        first = log.disk.read(log.log.segments[0].path(".log"))[: log.headers()[0].size_bytes]
        log.clean()
        assert log.disk.read(log.log.segments[0].path(".log")).startswith(first)

    def test_records_without_a_key_are_removed(self) -> None:
        log = CompactedLog(replace(SETTINGS, cleanup_compact=False))
        log.put((None, "x"), ("a", "1"), (None, "y"))
        log.log.update_settings(SETTINGS)
        log.roll()
        log.clean()
        assert log.contents() == [(1, "a", "1")]

    def test_empty_keys_and_long_keys_are_keys(self, log: CompactedLog) -> None:
        long = "k" * 500
        log.put(("", "1"), (long, "1"), (long[:-1] + "x", "1"), (long, "2"), ("", "2"))
        log.roll()
        log.clean()
        assert log.contents() == [(2, long[:-1] + "x", "1"), (3, long, "2"), (4, "", "2")]

    def test_keys_that_differ_in_length_only_are_different(self, log: CompactedLog) -> None:
        keys = ["\0" * n for n in range(20)]
        log.put(*[(key, "v") for key in keys])
        log.roll()
        log.clean()
        assert [key for _, key, _ in log.contents()] == keys

    def test_record_headers_are_kept(self, log: CompactedLog) -> None:
        record = Record(-1, NOW, b"a", b"1", (("h", b"x"), ("n", None)))
        log.append(encode_batch([record, record._replace(key=b"b"), record]))
        log.roll()
        log.clean()
        assert [kept.headers for kept in log.records()] == [record.headers, record.headers]

    def test_the_active_segment_is_neither_cleaned_nor_read(self, log: CompactedLog) -> None:
        log.put(("a", "1"))
        log.roll()
        log.put(("a", "2"), ("a", "3"))
        log.clean()
        assert log.contents() == [(0, "a", "1"), (1, "a", "2"), (2, "a", "3")]

    def test_log_append_time_is_kept(self) -> None:
        log = CompactedLog(replace(SETTINGS, message_timestamp_type="LogAppendTime"))
        log.put(("a", "1"), ("b", None), ("a", "2"))
        log.now += 1000
        log.roll()
        log.clean()
        assert [(record.key, record.timestamp) for record in log.records()] == [(b"b", NOW), (b"a", NOW)]
        assert log.headers()[0].is_log_append_time


class TestTombstones:
    def test_a_tombstone_is_removed_after_delete_retention_ms(self, log: CompactedLog) -> None:
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

    def test_timestamps_are_unchanged_when_the_delete_horizon_replaces_the_base_timestamp(
        self, log: CompactedLog
    ) -> None:
        log.put(("a", "1"), ("b", None), ("c", "1"), ("a", "2"))
        before = {record.offset: record.timestamp for record in log.records()}
        log.roll()
        log.clean()
        assert [header.has_delete_horizon for header in log.headers()] == [True]
        assert {record.offset: record.timestamp for record in log.records()} == {n: before[n] for n in (1, 2, 3)}
        assert log.headers()[0].max_timestamp == before[3]

    @pytest.mark.parametrize("codec", list(Codec))
    def test_other_records_of_a_tombstones_batch_are_kept(self, log: CompactedLog, codec: Codec) -> None:
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

    def test_a_tombstone_before_a_newer_value_is_removed_at_once(self, log: CompactedLog) -> None:
        log.put(("a", "1"))
        log.put(("a", None))
        log.put(("a", "2"))
        log.roll()
        log.clean()
        assert log.contents() == [(2, "a", "2")]


class TestProducers:
    def test_the_last_batch_of_a_producer_is_kept_as_an_empty_batch(self, log: CompactedLog) -> None:
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

    def test_the_empty_batch_is_removed_when_the_producer_has_sent_more(self, log: CompactedLog) -> None:
        log.put(("a", "1"), producer_id=7, producer_epoch=2, base_sequence=0)
        log.put(("a", "2"))
        log.roll()
        log.clean()
        assert [header.record_count for header in log.headers()] == [0, 1]
        log.put(("c", "1"), producer_id=7, producer_epoch=2, base_sequence=1)
        log.roll()
        log.clean()
        assert [(header.base_offset, header.record_count) for header in log.headers()] == [(1, 1), (2, 1)]

    def test_the_empty_batch_is_removed_when_the_producer_has_expired(self, log: CompactedLog) -> None:
        log.put(("a", "1"), producer_id=7, producer_epoch=2, base_sequence=0)
        log.put(("a", "2"))
        log.roll()
        log.log.producers.expire(NOW + 10 * DAY, DAY)
        log.clean()
        assert [header.base_offset for header in log.headers()] == [1]

    def test_the_marker_that_fenced_a_producer_is_kept_as_an_empty_batch(self, log: CompactedLog) -> None:
        """A marker with a newer epoch is the only batch of that epoch."""
        log.put(("a", "1"), producer_id=7, producer_epoch=0, base_sequence=0, transactional=True)
        log.end_transaction(7, commit=True, epoch=1)
        log.put(("a", "2"))
        for _ in range(4):
            log.put(("z", "1"))
            log.roll()
            log.clean()
            log.now += DAY
        marker = log.headers()[0]
        assert (marker.base_offset, marker.record_count, marker.producer_epoch) == (1, 0, 1)
        assert marker.is_control
        assert marker.is_transactional
        log.put(("y", "1"), producer_id=7, producer_epoch=1, base_sequence=0)
        log.roll()
        log.clean()
        assert log.headers()[0].base_offset == 2

    def test_the_last_batch_of_the_cleanable_part_is_kept_as_an_empty_batch(self, log: CompactedLog) -> None:
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
    def begin(self, log: CompactedLog, producer_id: int, *pairs: tuple[str, str], sequence: int = 0) -> int:
        return log.put(*pairs, producer_id=producer_id, producer_epoch=0, base_sequence=sequence, transactional=True)

    def test_aborted_records_are_removed_and_do_not_replace_older_ones(self, log: CompactedLog) -> None:
        log.put(("a", "1"))
        self.begin(log, 7, ("a", "aborted"), ("b", "aborted"))
        log.end_transaction(7, commit=False)
        log.put(("z", "1"))
        log.roll()
        log.clean()
        assert log.contents() == [(0, "a", "1"), (4, "z", "1")]
        assert log.markers() == [(3, ControlType.ABORT)]

    def test_committed_records_replace_older_ones(self, log: CompactedLog) -> None:
        log.put(("a", "1"))
        self.begin(log, 7, ("a", "2"))
        log.end_transaction(7, commit=True)
        log.roll()
        log.clean()
        assert log.contents() == [(1, "a", "2")]
        assert log.markers() == [(2, ControlType.COMMIT)]

    @pytest.mark.parametrize("commit", [True, False])
    def test_a_marker_is_removed_delete_retention_ms_after_the_last_record_of_its_transaction(
        self, log: CompactedLog, commit: bool
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

    def test_the_transaction_index_has_an_entry_while_the_abort_marker_is_kept(self, log: CompactedLog) -> None:
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

    def test_an_aborted_transaction_is_removed_from_all_its_segments(self, log: CompactedLog) -> None:
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

    def test_an_aborted_transaction_whose_marker_is_behind_the_cleanable_part_is_removed(
        self, log: CompactedLog
    ) -> None:
        log.put(("a", "1"))
        self.begin(log, 7, ("a", "aborted"))
        log.roll()
        log.end_transaction(7, commit=False)
        log.clean()
        assert log.contents() == [(0, "a", "1")]
        assert log.headers()[1].record_count == 0

    def test_nothing_at_or_above_an_open_transaction_is_cleaned(self, log: CompactedLog) -> None:
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

    def test_interleaved_transactions_of_two_producers_are_distinguished(self, log: CompactedLog) -> None:
        self.begin(log, 7, ("a", "seven"))
        self.begin(log, 8, ("a", "eight"))
        self.begin(log, 7, ("b", "seven"), sequence=1)
        log.end_transaction(8, commit=False)
        log.end_transaction(7, commit=True)
        log.put(("z", "1"))
        log.roll()
        log.clean()
        assert log.contents() == [(0, "a", "seven"), (2, "b", "seven"), (5, "z", "1")]
