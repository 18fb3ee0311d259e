"""Committed batches from a replica's own log into the image: never too much, never half a batch, in short steps."""

from __future__ import annotations

import asyncio

import pytest

from strandline.metadata.image import Image
from strandline.model.errors import NodeFault
from strandline.model.timeline import Touched
from strandline.protocol.messages.metadata_records import ConfigRecord
from strandline.raft.disk.batches import encode_control_batch, encode_data_batch
from strandline.raft.disk.snapshots import SnapshotWriter
from strandline.raft.machine.values import SnapshotId
from strandline.raft.shell.replay import Replay
from strandline.records.batch import Record, encode_batch
from strandline.runtime.tasks import TaskGroup
from unit.raft.test_stored_log import OpenedLog, voters
from unit.server.memory_server import InlineOffload, run, settle


def settings(first: int, count: int) -> bytes:
    records = [
        ConfigRecord(resource_type=2, resource_name=str(number), name="n", value=str(number))
        for number in range(first, first + count)
    ]
    return bytes(encode_data_batch(records, base_offset=first, epoch=1, timestamp=1, metadata_version=30))


class Reader:
    def __init__(self) -> None:
        self.made = OpenedLog()
        self.image = Image()
        self.offload = InlineOffload()
        self.replay = Replay(self.made.storage, self.image, self.offload, self._on_replayed)
        self.notified: list[tuple[int, int]] = []
        self.tasks = TaskGroup()

    async def _on_replayed(self, offset: int, touched: list[Touched]) -> None:
        assert self.image.committed.offset == offset
        self.notified.append((offset, len(touched)))

    def append(self, data: bytes) -> None:
        self.made.log.append_as_follower(data)

    def visible(self, number: int) -> bool:
        return bool(self.image.committed.configs(2, str(number)))


def run_scenario(scenario) -> None:  # type: ignore[no-untyped-def]
    async def with_reader() -> None:
        reader = Reader()
        async with TaskGroup() as tasks:
            tasks.start(reader.replay.run())
            await scenario(reader)
            tasks.cancel()

    run(with_reader())


def test_committed_records_are_replayed_and_no_others() -> None:
    async def scenario(reader: Reader) -> None:
        for first in range(0, 30, 3):
            reader.append(settings(first, 3))
        reader.replay.advance(12)
        await settle()
        assert reader.image.end_offset == reader.image.committed.offset == 12
        assert (reader.visible(11), reader.visible(12)) == (True, False)
        reader.replay.advance(9)
        reader.replay.advance(30)
        await settle()
        assert reader.image.committed.offset == 30
        assert sum(touched for _, touched in reader.notified) == 30

    run_scenario(scenario)


def test_control_records_only_advance_the_offset() -> None:
    async def scenario(reader: Reader) -> None:
        reader.append(settings(0, 2))
        reader.append(bytes(encode_control_batch([voters(1).record()], base_offset=2, epoch=1, timestamp=1)))
        reader.replay.advance(3)
        await settle()
        assert reader.notified == [(3, 2)]
        assert reader.image.end_offset == 3

    run_scenario(scenario)


def test_a_large_batch_is_replayed_in_slices_and_committed_as_a_whole() -> None:
    async def scenario(reader: Reader) -> None:
        reader.append(settings(0, 5000))
        reader.replay.advance(5000)
        steps = 0
        while not reader.notified:
            steps += 1
            assert not reader.visible(0)
            await asyncio.sleep(0)
        assert steps > 10
        assert reader.notified == [(5000, 5000)]
        assert reader.visible(4999)

    run_scenario(scenario)


def test_many_small_batches_are_committed_a_few_hundred_records_at_a_time() -> None:
    async def scenario(reader: Reader) -> None:
        for number in range(1000):
            reader.append(settings(number, 1))
        reader.replay.advance(1000)
        await settle(100)
        assert reader.notified[-1][0] == 1000
        assert max(touched for _, touched in reader.notified) <= 300
        assert len(reader.notified) <= 10

    run_scenario(scenario)


def test_the_caught_up_callback_is_called_once_and_can_be_cancelled() -> None:
    async def scenario(reader: Reader) -> None:
        called: list[str] = []
        reader.append(settings(0, 900))
        reader.replay.advance(900)
        reader.replay.when_caught_up(lambda: called.append("first"))
        await asyncio.sleep(0)
        assert called == []
        reader.replay.when_caught_up(None)
        reader.replay.when_caught_up(lambda: called.append(f"second at {reader.image.end_offset}"))
        await settle()
        assert called == ["second at 900"]
        reader.replay.advance(900)
        await settle()
        assert len(called) == 1

    run_scenario(scenario)


def write_snapshot(reader: Reader, snapshot_id: SnapshotId, numbers: range) -> None:
    storage = reader.made.storage
    writer = SnapshotWriter(
        reader.made.disk, storage.path_of(snapshot_id), epoch=snapshot_id.epoch, metadata_version=30
    )
    writer.begin(last_timestamp=1, wall_ms=1)
    records = [ConfigRecord(resource_type=2, resource_name=str(n), name="n", value=str(n)) for n in numbers]
    for first in range(0, len(records), 200):
        writer.append(records[first : first + 200], 1)
    writer.finish(1)
    storage.add_snapshot(snapshot_id)


def test_a_snapshot_replaces_the_image_and_reports_what_changed() -> None:
    async def scenario(reader: Reader) -> None:
        reader.append(settings(0, 10))
        reader.replay.advance(10)
        await settle()
        write_snapshot(reader, SnapshotId(5000, 3), range(5, 1005))
        snapshot = reader.made.storage.read_latest_snapshot()
        assert snapshot is not None
        reader.notified.clear()
        reader.replay.pause()
        reader.replay.advance(12)
        await settle()
        assert reader.notified == [], "the log is not read while it is truncated fully"
        reader.replay.load(SnapshotId(5000, 3), snapshot)
        await settle(3)
        assert reader.visible(0), "the old image is visible until the new one is complete"
        await settle()
        assert reader.notified == [(5000, 1000)], "five are removed, five unchanged, the others new"
        assert (reader.visible(4), reader.visible(5), reader.visible(1004)) == (False, True, True)
        assert reader.image.end_offset == 5000

    run_scenario(scenario)


def test_metadata_that_cannot_be_decoded_stops_the_node_before_any_of_its_batch_is_committed() -> None:
    async def scenario() -> None:
        reader = Reader()
        good = Record(-1, 1, None, b"\x01\x04\x00\x02\x020\x02n\x020\x00")
        odd = Record(-1, 1, None, b"\x01\xf0\x07\x00\x00")
        reader.append(bytes(encode_batch([good, odd], base_offset=0, leader_epoch=1)))
        reader.replay.advance(2)
        with pytest.raises(NodeFault, match="the metadata record at offset 1 cannot be understood"):
            await reader.replay.run()
        assert not reader.visible(0)

    run(scenario())
