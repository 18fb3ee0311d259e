"""When what was appended is written: at once, or together with what comes while a sync is under way."""

from __future__ import annotations

import asyncio

import pytest

from strandline.model.errors import ErrorCode, KafkaError
from strandline.protocol.messages.metadata_records import ConfigRecord
from strandline.raft.disk.batches import read_batches
from strandline.raft.shell.appends import LeaderTerm
from unit.server.memory_server import run, settle

LINGER_MS = 25


class Disk:
    """Counts the writes, and what each of them held."""

    def __init__(self) -> None:
        self.idle = asyncio.Event()
        self.idle.set()
        self.held = LeaderTerm(epoch=3, end_offset=10, high_watermark=10)
        self.held.task = asyncio.create_task(self.held.run(self.idle, LINGER_MS, self._write))
        self.writes: list[int] = []

    def append(self) -> None:
        self.held.append([ConfigRecord(resource_type=2, resource_name="r", name="n", value="v")], 1, 30)

    def _write(self) -> None:
        batches = list(read_batches(self.held.accumulator.take(1 << 20), "here"))
        self.writes.append(sum(len(batch.records) for batch in batches))


def test_an_idle_disk_is_written_at_once() -> None:
    async def scenario() -> None:
        disk = Disk()
        for _ in range(3):
            disk.append()
            await settle()
        assert disk.writes == [1, 1, 1]

    run(scenario(), within_s=0.001)


def test_while_a_sync_is_under_way_appends_gather_until_it_ends() -> None:
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


def test_a_slow_sync_holds_them_no_longer_than_the_linger() -> None:
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


def test_a_lost_leadership_fails_who_waits_and_writes_no_more() -> None:
    async def scenario() -> None:
        disk = Disk()
        disk.idle.clear()
        disk.append()
        waiting = asyncio.create_task(disk.held.committed.reached(11))
        await settle()
        disk.held.lose()
        with pytest.raises(KafkaError) as refusal:
            await waiting
        assert refusal.value.code is ErrorCode.NOT_CONTROLLER
        disk.idle.set()
        await settle()
        assert disk.writes == []

    run(scenario())
