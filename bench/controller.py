"""The speed of controller decisions and of replaying their records: `python bench/controller.py`.

One process, no network and no disk: it measures the controller's own work, from the request to the encoded records,
and replaying these records into the image. The log commits immediately. `--partitions` gives the numbers of partitions
of the fenced broker, `--snapshot` the size of the snapshot.

Every line is one run. The longest pause is the longest step of the event loop; that of the fenced broker is mostly the
commit of its largest batch.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
from collections.abc import Awaitable, Iterable, Sequence
from pathlib import Path
from random import Random
from time import perf_counter
from typing import TypeVar

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "src"))

from strandline.controller.controller import Controller
from strandline.controller.settings import ControllerSettings
from strandline.metadata.features import SUPPORTED_FEATURES, bootstrap_records
from strandline.metadata.image import Image
from strandline.metadata.record_versions import LATEST_METADATA_VERSION
from strandline.model.errors import ErrorCode
from strandline.model.ids import Uuid
from strandline.protocol.messages.brokers import (
    AlterPartitionRequest,
    AlterPartitionRequestPartitionData,
    AlterPartitionRequestTopicData,
    BrokerHeartbeatRequest,
    BrokerRegistrationRequest,
    BrokerState,
    Feature,
    Listener,
)
from strandline.protocol.messages.elections import ElectLeadersRequest
from strandline.protocol.messages.topics import CreatableReplicaAssignment, CreatableTopic, CreateTopicsRequest
from strandline.protocol.types import Message
from strandline.raft.disk.batches import checked_batches, data_slices, encode_data_batch
from strandline.raft.disk.snapshots import SnapshotWriter, read_snapshot
from strandline.runtime.clock import SystemClock
from strandline.runtime.disk import SystemDisk
from strandline.runtime.event_loop import freeze_long_lived_objects, run_event_loop
from strandline.runtime.watermark import Watermark

A = TypeVar("A")

BROKERS = (1, 2, 3)
PER_TOPIC = 1000
SLICE = 500


class InstantLog:
    """A metadata log in memory that commits in the next iteration of the event loop."""

    def __init__(self, image: Image) -> None:
        self._image = image
        self.is_leader = True
        self.former_leader: tuple[int, int] | None = None
        self.epoch = 1
        self.kraft_version = 1
        self.end_offset = 0
        self.committed = Watermark(0)
        self.batches: list[Sequence[Message]] = []

    def reserve(self) -> int:
        return self.end_offset

    def release(self) -> None:
        pass

    def append(self, records: Sequence[Message]) -> int:
        self.batches.append(records)
        self.end_offset += len(records)
        asyncio.get_running_loop().call_soon(self._commit, self.end_offset)
        return self.end_offset - 1

    def _commit(self, offset: int) -> None:
        self._image.commit(offset)
        self.committed.advance(offset)


class Cluster:
    """Three brokers and a number of partitions, all led by broker 1."""

    def __init__(self) -> None:
        self.image = Image()
        self.log = InstantLog(self.image)
        settings = ControllerSettings(node_id=100, cluster_id="bench", broker_session_timeout_ms=3_600_000)
        self.controller = Controller(
            self.image, self.log, SystemClock(), Random(1), settings, bootstrap_records(LATEST_METADATA_VERSION)
        )
        self.controller.register_metrics()

    async def start(self, partitions: int) -> None:
        await self.controller.activate()
        for broker_id in BROKERS:
            await self.controller.register_broker(_registration(broker_id))
            await self.heartbeat(broker_id)
        for first in range(0, partitions, PER_TOPIC):
            await self.create(f"topic-{first}", min(PER_TOPIC, partitions - first))

    async def create(self, name: str, partitions: int) -> None:
        assignments = [CreatableReplicaAssignment(index, list(BROKERS)) for index in range(partitions)]
        topic = CreatableTopic(name=name, num_partitions=-1, replication_factor=-1, assignments=assignments)
        response = await self.controller.create_topics(CreateTopicsRequest(topics=[topic]))
        assert response.topics[0].error_code == ErrorCode.NONE, response.topics[0].error_message

    async def heartbeat(self, broker_id: int, *, want_fence: bool = False) -> None:
        broker = self.image.latest.broker(broker_id)
        assert broker is not None
        request = BrokerHeartbeatRequest(
            broker_id=broker_id,
            broker_epoch=broker.epoch,
            current_metadata_offset=self.log.end_offset,
            want_fence=want_fence,
        )
        await self.controller.broker_heartbeat(request)

    async def alter_partition(self, index: int, isr: Sequence[int]) -> None:
        """Sends AlterPartition for one partition, as its leader."""
        topic = self.image.latest.topic("topic-0")
        broker = self.image.latest.broker(1)
        assert topic is not None
        assert broker is not None
        known = self.image.latest.partition(topic.id, index)
        assert known is not None
        data = AlterPartitionRequestPartitionData(
            partition_index=index,
            leader_epoch=known.leader_epoch,
            partition_epoch=known.partition_epoch,
            new_isr_with_epochs=[BrokerState(member, -1) for member in isr],
        )
        topics = [AlterPartitionRequestTopicData(topic_id=topic.id, partitions=[data])]
        request = AlterPartitionRequest(broker_id=1, broker_epoch=broker.epoch, topics=topics)
        response = await self.controller.alter_partition(request)
        assert response.topics[0].partitions[0].error_code == ErrorCode.NONE


def _registration(broker_id: int) -> BrokerRegistrationRequest:
    return BrokerRegistrationRequest(
        broker_id=broker_id,
        cluster_id="bench",
        incarnation_id=Uuid.of(broker_id, 1),
        rack=None,
        listeners=[Listener(name="PLAINTEXT", host="localhost", port=9000 + broker_id)],
        log_dirs=[Uuid.of(7, 700 + broker_id)],
        features=[Feature(name, low, high) for name, (low, high) in SUPPORTED_FEATURES.items()],
    )


async def timed(work: Awaitable[A]) -> tuple[float, float]:
    """(seconds, longest pause in milliseconds)"""
    longest = 0.0
    done = False

    async def tick() -> None:
        nonlocal longest
        before = perf_counter()
        while not done:
            await asyncio.sleep(0)
            now = perf_counter()
            longest = max(longest, now - before)
            before = now

    ticking = asyncio.ensure_future(tick())
    await asyncio.sleep(0)
    began = perf_counter()
    await work
    took = perf_counter() - began
    done = True
    await ticking
    return took, longest * 1000


def line(title: str, value: float, unit: str, more: str = "") -> None:
    digits = 0 if value >= 100 else 2
    print(f"{title:<58} {value:>12,.{digits}f} {unit:<10} {more}", flush=True)


async def decisions(count: int) -> None:
    cluster = Cluster()
    await cluster.start(PER_TOPIC)
    freeze_long_lived_objects()

    async def one_by_one() -> None:
        for number in range(count):
            await cluster.alter_partition(number % PER_TOPIC, (1, 2) if number // PER_TOPIC % 2 == 0 else BROKERS)

    async def create_one_by_one() -> None:
        for number in range(count):
            await cluster.create(f"single-{number}", 1)

    async def in_flight() -> None:
        await asyncio.gather(*(cluster.create(f"together-{number}", 1) for number in range(count)))

    for title, work in (
        ("AlterPartition of one partition, one by one", one_by_one()),
        ("CreateTopics of one partition, one by one", create_one_by_one()),
        (f"CreateTopics of one partition, {count:,} in flight", in_flight()),
    ):
        took, _ = await timed(work)
        line(title, count / took, "decisions/s")


async def failover(partitions: int) -> None:
    cluster = Cluster()
    took, pause_ms = await timed(cluster.start(partitions))
    line(f"{partitions:,} partitions created, three replicas", took, "s", f"longest pause {pause_ms:.1f} ms")
    freeze_long_lived_objects()
    for title, work in (
        (f"broker that led {partitions:,} partitions fenced", cluster.heartbeat(1, want_fence=True)),
        ("  … and unfenced", cluster.heartbeat(1)),
    ):
        batches = len(cluster.log.batches)
        took, pause_ms = await timed(work)
        records = [len(batch) for batch in cluster.log.batches[batches:]]
        details = f"{sum(records):,} records in {len(records)} batches, longest pause {pause_ms:.1f} ms"
        line(title, took, "s", details)
    for title, kind in (("  … and a look for preferred leaders", 0), ("  … and a look for any leader", 1)):
        request = ElectLeadersRequest(election_type=kind, topic_partitions=None)
        took, pause_ms = await timed(cluster.controller.elect_leaders(request))
        line(title, took, "s", f"longest pause {pause_ms:.1f} ms")
    replay(cluster.log.batches)


def replay(batches: Iterable[Sequence[Message]]) -> None:
    """Replays encoded batches into an image, as standby controllers, brokers and restarts do."""
    encoded: list[tuple[int, bytearray]] = []
    count = 0
    began = perf_counter()
    for records in batches:
        batch = encode_data_batch(
            records, base_offset=count, epoch=1, timestamp=0, metadata_version=LATEST_METADATA_VERSION
        )
        encoded.append((count, batch))
        count += len(records)
    line("  its log encoded", count / (perf_counter() - began), "records/s")
    image = Image()
    began = perf_counter()
    for base_offset, batch in encoded:
        decoded: list[Message] = []
        for position, header in checked_batches(batch, "bench"):
            for part in data_slices(batch, position, header, "bench"):
                decoded += part
        image.replay_batch(base_offset, decoded)
        image.commit(base_offset + len(decoded))
    size_mb = sum(len(batch) for _, batch in encoded) / 1e6
    line("  its log read, decoded and replayed", count / (perf_counter() - began), "records/s", f"{size_mb:.1f} MB")


async def snapshot(partitions: int, directory: str) -> None:
    cluster = Cluster()
    await cluster.start(partitions)
    view = cluster.image.pin()
    path = f"{directory}/snapshot"
    writer = SnapshotWriter(SystemDisk(), path, epoch=1, metadata_version=LATEST_METADATA_VERSION)
    began = perf_counter()
    writer.begin(last_timestamp=0, wall_ms=0)
    records: list[Message] = []
    for record in cluster.image.records(view):
        records.append(record)
        if len(records) == SLICE:
            writer.append(records, 0)
            records = []
    if records:
        writer.append(records, 0)
    writer.finish(0)
    line(f"snapshot of {partitions:,} partitions written", perf_counter() - began, "s", f"{writer.size_bytes:,} bytes")
    began = perf_counter()
    loaded = Image()
    loaded.load(read_snapshot(SystemDisk(), path).records(), cluster.log.end_offset)
    took = perf_counter() - began
    line(f"snapshot of {partitions:,} partitions loaded", took, "s", f"{partitions / took:,.0f} partitions/s")
    assert len(list(loaded.committed.topics())) == len(list(cluster.image.committed.topics()))


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--decisions", type=int, default=2000)
    options.add_argument("--partitions", type=int, nargs="*", default=[10_000, 20_000])
    options.add_argument("--snapshot", type=int, default=100_000)
    chosen = options.parse_args()
    run_event_loop(decisions(chosen.decisions))
    for partitions in chosen.partitions:
        run_event_loop(failover(partitions))
    with tempfile.TemporaryDirectory() as directory:
        run_event_loop(snapshot(chosen.snapshot, directory))


if __name__ == "__main__":
    main()
