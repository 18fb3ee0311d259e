"""Three brokers on virtual time without nodes: partition tables, logs, handlers and the replication between them.

The network is a codec: a request is encoded, decoded and handled by the other broker. The controller is a few lines
that append what they accept.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, cast

from strandline.handlers.context import BrokerContext
from strandline.handlers.fetch import handle_fetch
from strandline.handlers.list_offsets import handle_list_offsets
from strandline.handlers.produce import handle_produce
from strandline.log.cold_reads import ColdRead
from strandline.log.settings import LogSettings
from strandline.log.store import LogStore
from strandline.metadata.changes import changes_of
from strandline.metadata.image import Image
from strandline.metadata.values import PartitionInfo
from strandline.model.errors import ErrorCode
from strandline.model.ids import Endpoint, Uuid
from strandline.protocol.apis import API, ApiKey
from strandline.protocol.codec import decode, encode_bytes
from strandline.protocol.messages.brokers import (
    AlterPartitionRequest,
    AlterPartitionResponse,
    AlterPartitionResponsePartitionData,
    AlterPartitionResponseTopicData,
)
from strandline.protocol.messages.metadata_records import (
    BrokerEndpoint,
    BrokerRegistrationChangeRecord,
    PartitionChangeRecord,
    PartitionRecord,
    RegisterBrokerRecord,
    TopicRecord,
)
from strandline.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from strandline.protocol.types import Message
from strandline.records.batch import Record, batches, decode_batch, encode_batch
from strandline.replication.broker_replication import BrokerReplication
from strandline.replication.fetch_sessions import FetchSessionCache
from strandline.replication.flush_scheduler import FlushScheduler
from strandline.replication.hosted_logs import HostedLogs
from strandline.replication.isr_proposals import IsrProposals
from strandline.replication.partition import Partition
from strandline.replication.settings import ReplicationSettings
from strandline.replication.table import KnownBrokers, PartitionTable
from strandline.runtime.tasks import TaskGroup
from strandline.runtime.world import World
from strandline.simulation.world import Simulation
from unit.handlers.metadata_broker import FakeCall, FakeConfig

TOPIC, TOPIC_ID = "t", Uuid.of(1, 1)
LISTENER = "BROKERS"
SETTINGS = ReplicationSettings(LISTENER, lag_time_max_ms=10_000)
_HANDLERS = {ApiKey.FETCH: handle_fetch, ApiKey.LIST_OFFSETS: handle_list_offsets}
_LATENCY_MS = 1


class ReplicatingBroker:
    """One broker."""

    def __init__(self, broker_id: int, cluster: Cluster, tasks: TaskGroup) -> None:
        world, self.id, self.cluster = cluster.world, broker_id, cluster
        path = f"/broker-{broker_id}"
        world.disk.make_dirs(path)
        self.store = LogStore.open(world.disk, {path: Uuid.of(9, broker_id)}, world.random)
        self.logs = HostedLogs(self.store, world)
        self.isr = IsrProposals(broker_id, KnownBrokers(cluster.image), cluster.alter_partition)
        self.on_hand_over: Callable[[Partition], None] = lambda partition: None
        self.table = PartitionTable(
            broker_id,
            cluster.image,
            self.logs.open,
            lambda _: cluster.settings,
            FlushScheduler(world.offload, tasks),
            self.isr.propose,
            lambda partition: self.on_hand_over(partition),
            SETTINGS.lag_time_max_ms,
        )
        sessions = FetchSessionCache(100, world.random)
        self.replication = BrokerReplication(
            broker_id, self.table, self.isr, self.store, cluster, world, SETTINGS, sessions
        )
        nothing = cast(Any, None)
        self.context = BrokerContext(
            node_id=broker_id,
            cluster_id="cluster",
            world=world,
            image=cluster.image,
            partitions=self.table,
            controller=nothing,
            kraft_version=lambda: 1,
            producer_ids=nothing,
            config=FakeConfig(fetch_max_bytes=1 << 26, max_request_partition_size_limit=2000),
            fetch_sessions=sessions,
            log_directories=list,
            groups=nothing,
            transactions=nothing,
            call_broker=nothing,
            lost_leaders=self.replication.lost_leaders,
        )

    @property
    def partition(self) -> Partition:
        return self.table.find(TOPIC, TOPIC_ID, 0)

    async def produce(self, *values: str, acks: int = -1, timeout_ms: int = 5_000) -> ErrorCode:
        wall_ms = self.cluster.world.clock.wall_ms()
        records = [Record(index, wall_ms, None, value.encode(), ()) for index, value in enumerate(values)]
        data = PartitionProduceData(index=0, records=memoryview(encode_batch(records)))
        request = ProduceRequest(
            acks=acks, timeout_ms=timeout_ms, topic_data=[TopicProduceData(topic_id=TOPIC_ID, partition_data=[data])]
        )
        response = await handle_produce(self.context, FakeCall(ApiKey.PRODUCE, 13), request)
        assert response is not None
        return ErrorCode(response.responses[0].partition_responses[0].error_code)

    async def values(self) -> list[str]:
        """The values in its log, committed or not."""
        log, found = await self.partition.ready(), []
        offset = log.log_start_offset
        while offset < log.log_end_offset:
            while isinstance(read := log.read(offset, max_bytes=1 << 20), ColdRead):
                read.load()
            assert read.slice is not None
            data = read.slice.read()
            for position, header in batches(data):
                records = decode_batch(data[position : position + header.size_bytes])
                found.extend(bytes(record.value or b"").decode() for record in records)
                offset = header.next_offset
        return found


class Cluster:
    def __init__(self, world: World, tasks: TaskGroup, settings: LogSettings) -> None:
        self.world = world
        self.settings = settings
        self.image = Image()
        self.brokers: dict[int, ReplicatingBroker] = {}
        self.unreachable: set[int] = set()
        self.refusing: set[int] = set()
        for broker_id in (1, 2, 3):
            self.brokers[broker_id] = ReplicatingBroker(broker_id, self, tasks)
            tasks.start(self.brokers[broker_id].replication.run())
            self.register(broker_id)

    def write(self, *records: Message) -> None:
        self.image.replay_batch(self.image.end_offset, records)
        touched = self.image.commit(self.image.end_offset)
        for broker in self.brokers.values():
            changes = changes_of(self.image, touched, broker.id)
            for step in (*changes.leadership, *changes.membership):
                assert step.new is not None
                broker.table.on_metadata(step.topic_id, step.partition, step.new)
            broker.replication.on_metadata(changes)

    def register(self, broker_id: int) -> None:
        endpoint = BrokerEndpoint(name=LISTENER, host="h", port=broker_id)
        epoch = self.image.end_offset
        self.write(RegisterBrokerRecord(broker_id=broker_id, broker_epoch=epoch, end_points=[endpoint], fenced=False))

    def fence(self, broker_id: int) -> None:
        info = self.image.committed.broker(broker_id)
        assert info is not None
        self.write(BrokerRegistrationChangeRecord(broker_id=broker_id, broker_epoch=info.epoch, fenced=1))

    def create(self, isr: list[int] | None = None) -> None:
        partition = PartitionRecord(
            partition_id=0, topic_id=TOPIC_ID, replicas=[1, 2, 3], isr=isr or [1, 2, 3], leader=1, leader_epoch=0
        )
        self.write(TopicRecord(name=TOPIC, topic_id=TOPIC_ID), partition)

    def elect(self, leader: int, isr: list[int] | None = None) -> None:
        self.write(PartitionChangeRecord(partition_id=0, topic_id=TOPIC_ID, leader=leader, isr=isr))

    @property
    def info(self) -> PartitionInfo:
        info = self.image.committed.partition(TOPIC_ID, 0)
        assert info is not None
        return info

    @property
    def isr(self) -> tuple[int, ...]:
        return self.info.isr

    @property
    def leader(self) -> int:
        return self.info.leader

    async def call(self, endpoint: Endpoint, request: Message, *, timeout_ms: int) -> Message:
        """Implements the port `client.peers.Peers`."""
        sender = getattr(getattr(request, "replica_state", None), "replica_id", 0)
        await self._travel(sender, endpoint.port)
        assert request.api_key is not None
        api = API[request.api_key]
        requested, _ = decode(api.request, api.max_version, encode_bytes(request, api.max_version))
        handle = _HANDLERS[ApiKey(request.api_key)]
        call = FakeCall(request.api_key, api.max_version)
        response = await handle(self.brokers[endpoint.port].context, call, cast(Any, requested))
        await self._travel(sender, endpoint.port)
        return decode(api.response, api.max_version, encode_bytes(response, api.max_version))[0]

    async def refuses_connections(self, endpoint: Endpoint) -> bool:
        await asyncio.sleep(_LATENCY_MS / 1000)
        return endpoint.port in self.refusing

    def disconnect(self, endpoint: Endpoint) -> None:
        """Every call ends by itself here."""

    async def _travel(self, *between: int) -> None:
        await asyncio.sleep(_LATENCY_MS / 1000)
        if any(broker_id in self.unreachable for broker_id in between):
            raise ConnectionResetError("unreachable")

    async def alter_partition(self, request: AlterPartitionRequest) -> AlterPartitionResponse:
        await self._travel(request.broker_id)
        requested = request.topics[0].partitions[0]
        info = self.info
        response = AlterPartitionResponsePartitionData(partition_index=0)
        if requested.leader_epoch < info.leader_epoch:
            response.error_code = ErrorCode.FENCED_LEADER_EPOCH
        elif requested.partition_epoch < info.partition_epoch:
            response.error_code = ErrorCode.INVALID_UPDATE_VERSION
        else:
            isr = [member.broker_id for member in requested.new_isr_with_epochs]
            self.write(PartitionChangeRecord(partition_id=0, topic_id=TOPIC_ID, isr=isr))
            response.isr, response.partition_epoch = isr, self.info.partition_epoch
        topic = AlterPartitionResponseTopicData(topic_id=TOPIC_ID, partitions=[response])
        return AlterPartitionResponse(topics=[topic])


TWO_OF_THREE = LogSettings(min_insync_replicas=2)


def on_virtual_time(
    scenario: Callable[[Cluster], Awaitable[None]], settings: LogSettings = TWO_OF_THREE, seed: int = 1
) -> None:
    async def program(world: World) -> None:
        async with TaskGroup() as tasks:
            await scenario(Cluster(world, tasks, settings))
            tasks.cancel()

    with Simulation(seed) as simulation:
        simulation.run(simulation.machine("all").boot(program), max_virtual_s=600)
