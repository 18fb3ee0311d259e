"""Offsets by timestamp, the largest timestamp, and the aborted transactions of a range."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from strandline.log.cold_reads import ColdRead
from strandline.log.partition_log import PartitionLog
from strandline.log.transaction_index import AbortedTransaction
from strandline.records.batch import Codec, Record, encode_batch
from unit.log.logs import SMALL, WALL_MS, append, batch, marker, open_log


@given(
    stamps=st.lists(st.lists(st.integers(0, 50), min_size=1, max_size=5), min_size=1, max_size=40),
    timestamps=st.lists(st.integers(-2, 53), min_size=1, max_size=6),
    reopen=st.booleans(),
    codec=st.sampled_from([Codec.NONE, Codec.LZ4]),
    start=st.integers(0, 20),
    upper=st.integers(0, 200),
)
@settings(max_examples=80, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_the_first_record_with_a_timestamp_or_a_later_one_is_found(
    tmp_path_factory: pytest.TempPathFactory,
    stamps: list[list[int]],
    timestamps: list[int],
    reopen: bool,
    codec: Codec,
    start: int,
    upper: int,
) -> None:
    path = tmp_path_factory.mktemp("log")
    log = open_log(path, replace(SMALL, segment_bytes=700, index_interval_bytes=100))
    for batch_stamps in stamps:
        records = [Record(-1, WALL_MS + stamp, None, bytes(20)) for stamp in batch_stamps]
        append(log, encode_batch(records, codec=codec), 2)
    log.delete_records_before(min(start, log.high_watermark))
    if reopen:
        log.close()
        log = open_log(
            path,
            log.settings,
            clean=True,
            recovery_point=log.log_end_offset,
            log_start_offset=log.log_start_offset,
        )
    upper = min(upper, log.log_end_offset)
    visible = [
        (offset, WALL_MS + stamp)
        for offset, stamp in enumerate(stamp for batch_stamps in stamps for stamp in batch_stamps)
        if log.log_start_offset <= offset < upper
    ]
    for stamp in timestamps:
        expected = next((entry for entry in visible if entry[1] >= WALL_MS + stamp), None)
        found = log.offset_for_timestamp(WALL_MS + stamp, upper)
        assert (found and (found.offset, found.timestamp)) == expected
        assert found is None or found.leader_epoch == 2
    largest = log.max_timestamp_offset(upper)
    best = max(visible, key=lambda entry: (entry[1], -entry[0]), default=None)
    assert (largest and (largest.offset, largest.timestamp)) == best


def test_an_empty_log_has_no_timestamps(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    assert log.offset_for_timestamp(0) is None
    assert log.max_timestamp_offset() is None


def aborted(log: PartitionLog, start: int, upper: int) -> list[AbortedTransaction]:
    for _ in range(2):
        result = log.aborted_transactions(start, upper)
        if not isinstance(result, ColdRead):
            return result
        result.load()
    raise AssertionError("stays cold")


@pytest.mark.parametrize("reopen", ["no", "clean", "crash"])
def test_aborted_transactions_are_found_by_range(tmp_path: Path, reopen: str) -> None:
    settings = replace(SMALL, segment_bytes=600)
    log = open_log(tmp_path, settings)
    expected = []
    for number in range(12):
        producer = 100 + number % 3
        first = append(log, batch(1, 60, producer_id=producer, sequence=number // 3, transactional=True))
        append(log, batch(2, 60))
        if number % 2:
            last = marker(log, producer, commit=False)
            expected.append((producer, first, last))
        else:
            marker(log, producer, commit=True)
    log.advance_high_watermark(log.log_end_offset)
    assert len(log.segments) > 4
    if reopen != "no":
        if reopen == "clean":
            log.close()
        log = open_log(
            tmp_path, settings, clean=reopen == "clean", recovery_point=log.log_end_offset if reopen == "clean" else 9
        )
    for start in range(0, log.log_end_offset, 3):
        for upper in range(start + 1, log.log_end_offset + 1, 4):
            found = [(entry.producer_id, entry.first_offset, entry.last_offset) for entry in aborted(log, start, upper)]
            assert found == [entry for entry in expected if entry[2] >= start and entry[1] < upper]


def test_the_last_stable_offset_is_never_above_the_high_watermark(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    append(log, batch(1))
    append(log, batch(1, producer_id=5, sequence=0, transactional=True))
    log.advance_high_watermark(log.log_end_offset)
    assert log.last_stable_offset == 1
    end = marker(log, 5, commit=True)
    assert log.last_stable_offset == 1
    log.advance_high_watermark(end)
    assert log.last_stable_offset == 1
    log.advance_high_watermark(end + 1)
    assert log.last_stable_offset == end + 1
    assert log.advance_high_watermark(0) == end + 1
