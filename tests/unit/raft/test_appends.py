"""Appends of the controller: offsets, reservations, batches; when they are written and committed."""

from __future__ import annotations

import asyncio
import itertools

import pytest

from strandline.model.errors import ErrorCode, KafkaError
from strandline.protocol.messages.metadata_records import ConfigRecord, NoOpRecord
from strandline.protocol.types import Message
from strandline.raft.disk.batches import RECORDS_PER_SLICE, MetadataBatch, read_batches
from strandline.raft.shell.appends import Accumulator, LeaderTerm
from unit.server.memory_server import run, settle


def records(*numbers: int) -> list[Message]:
    return [ConfigRecord(resource_type=2, resource_name="r", name=str(number), value="v") for number in numbers]


def names(batch: MetadataBatch) -> list[int]:
    return [int(record.name) for record in batch.records if isinstance(record, ConfigRecord)]


def everything(accumulator: Accumulator, max_bytes: int = 1 << 30) -> list[MetadataBatch]:
    accumulator.encode_all()
    found: list[MetadataBatch] = []
    while data := accumulator.take(max_bytes):
        found += read_batches(data, "here")
    return found


def test_offsets_are_assigned_at_once_in_the_order_of_the_appends() -> None:
    accumulator = Accumulator(epoch=4, end_offset=10)
    assert accumulator.append(records(1, 2), 50, 30) == 11
    assert accumulator.append(records(3), 60, 30) == 12
    assert accumulator.end_offset == 13
    (batch,) = everything(accumulator)
    assert (batch.base_offset, batch.next_offset, batch.epoch, names(batch)) == (10, 13, 4, [1, 2, 3])


def test_small_appends_share_a_batch_and_large_ones_have_their_own() -> None:
    accumulator = Accumulator(epoch=1, end_offset=0)
    for number in range(1000):
        accumulator.append(records(number), 1, 30)
    large = list(range(1000, 1000 + 2 * RECORDS_PER_SLICE))
    accumulator.append(records(*large), 1, 30)
    accumulator.append(records(5000), 1, 30)
    batches = everything(accumulator)
    assert [name for batch in batches for name in names(batch)] == [*range(1000), *large, 5000]
    assert all(batch.next_offset == after.base_offset for batch, after in itertools.pairwise(batches))
    assert len(batches) == -(-1000 // RECORDS_PER_SLICE) + 2
    assert len(names(batches[-2])) == 2 * RECORDS_PER_SLICE, "an append is never split"


def test_appends_at_different_levels_share_no_batch() -> None:
    accumulator = Accumulator(epoch=1, end_offset=0)
    for level in (29, 29, 30, 30, 29):
        accumulator.append(records(level), 1, level)
    assert [names(batch) for batch in everything(accumulator)] == [[29, 29], [30, 30], [29]]


def test_a_large_append_is_encoded_in_slices_and_taken_whole() -> None:
    accumulator = Accumulator(epoch=1, end_offset=0)
    accumulator.append(records(*range(5 * RECORDS_PER_SLICE)), 1, 30)
    slices = 0
    while accumulator.encode_slice():
        slices += 1
        if slices < 5:
            assert not accumulator.is_encoded
            assert accumulator.take(1) == b""
    assert slices == 5
    assert accumulator.is_encoded


def test_a_write_takes_whole_batches_and_at_least_one() -> None:
    accumulator = Accumulator(epoch=1, end_offset=0)
    for number in range(10 * RECORDS_PER_SLICE):
        accumulator.append(records(10_000 + number), 1, 30)
    accumulator.encode_all()
    one = len(accumulator.take(1))
    assert [len(list(read_batches(accumulator.take(2 * one + 100), "here"))) for _ in range(5)] == [2, 2, 2, 2, 1]
    assert not accumulator.is_encoded


def test_a_reservation_ends_with_its_append_or_is_released() -> None:
    accumulator = Accumulator(epoch=1, end_offset=7)
    assert accumulator.reserve() == 7
    with pytest.raises(AssertionError, match="already reserved"):
        accumulator.reserve()
    accumulator.append(records(1), 1, 30)
    assert not accumulator.is_reserved
    assert accumulator.reserve() == 8
    accumulator.release()
    accumulator.release()
    assert (accumulator.is_reserved, accumulator.end_offset) == (False, 8)


def test_an_empty_append_is_rejected() -> None:
    with pytest.raises(ValueError, match="needs records"):
        Accumulator(epoch=1, end_offset=0).append([], 1, 30)


def _appended(*sizes: int) -> LeaderTerm:
    async def make() -> LeaderTerm:
        term = LeaderTerm(epoch=1, end_offset=10, high_watermark=10)
        for size in sizes:
            term.append([NoOpRecord()] * size, 0, 30)
        return term

    return asyncio.run(make())


def test_small_appends_are_committed_together() -> None:
    assert list(_appended(1, 2, 3).commit_steps(16)) == [16]


def test_large_appends_are_committed_one_after_the_other() -> None:
    assert list(_appended(1_500, 1_500, 1_500).commit_steps(4_510)) == [1_510, 3_010, 4_510]


def test_an_append_is_never_committed_in_part() -> None:
    assert list(_appended(9_000, 10).commit_steps(9_020)) == [9_010, 9_020]


def test_control_records_after_the_appends_are_committed_with_them() -> None:
    assert list(_appended(5).commit_steps(17)) == [17]


LINGER_MS = 25


class Disk:
    """Counts the records of each write."""

    def __init__(self) -> None:
        self.idle = asyncio.Event()
        self.idle.set()
        self.term = LeaderTerm(epoch=3, end_offset=10, high_watermark=10)
        self.term.task = asyncio.create_task(self.term.run(self.idle, LINGER_MS, self._write))
        self.writes: list[int] = []

    def append(self) -> None:
        self.term.append([ConfigRecord(resource_type=2, resource_name="r", name="n", value="v")], 1, 30)

    def _write(self) -> None:
        batches = list(read_batches(self.term.accumulator.take(1 << 20), "here"))
        self.writes.append(sum(len(batch.records) for batch in batches))


def test_appends_are_written_at_once_when_no_sync_is_running() -> None:
    async def scenario() -> None:
        disk = Disk()
        for _ in range(3):
            disk.append()
            await settle()
        assert disk.writes == [1, 1, 1]

    run(scenario(), within_s=0.001)


def test_appends_accumulate_while_a_sync_is_running() -> None:
    async def scenario() -> None:
        disk = Disk()
        disk.idle.clear()
        for _ in range(5):
            disk.append()
            await asyncio.sleep(0.001)
        assert disk.writes == []
        disk.idle.set()
        await settle()
        assert disk.writes == [5]

    run(scenario())


def test_a_slow_sync_delays_appends_by_at_most_the_linger() -> None:
    async def scenario() -> None:
        disk = Disk()
        disk.idle.clear()
        loop = asyncio.get_running_loop()
        began = loop.time()
        disk.append()
        while not disk.writes:
            await asyncio.sleep(0.001)
        assert loop.time() - began == pytest.approx(LINGER_MS / 1000, abs=0.002)

    run(scenario())


def test_a_lost_leadership_fails_pending_appends_and_writes_no_more() -> None:
    async def scenario() -> None:
        disk = Disk()
        disk.idle.clear()
        disk.append()
        waiting = asyncio.create_task(disk.term.committed.reached(11))
        await settle()
        disk.term.lose()
        with pytest.raises(KafkaError) as failure:
            await waiting
        assert failure.value.code is ErrorCode.NOT_CONTROLLER
        disk.idle.set()
        await settle()
        assert disk.writes == []

    run(scenario())
