"""A producer and a consumer of one topic: our own client, on machines of their own.

The topic has up to three replicas, and min.insync.replicas is two where possible. If machines lose power, the topic is
flushed with every message, since replication alone does not guarantee records then. After a disk was wiped, records are
not checked.
"""

from __future__ import annotations

import asyncio
from functools import partial

from strandline.client.admin.offsets import ListedOffset
from strandline.client.client import Client
from strandline.client.producer import Delivered, Delivery, Producer
from strandline.client.settings import ClientSettings, FetcherSettings, ProducerSettings
from strandline.model.errors import ErrorCode, KafkaError
from strandline.model.ids import TopicPartition
from strandline.protocol.messages.list_offsets import LATEST
from strandline.runtime.world import World
from strandline.simulation.cluster.cluster import Cluster
from strandline.simulation.cluster.record_history import RecordHistory
from strandline.simulation.cluster.replica_state import RECORDS_PREFIX
from strandline.simulation.cluster.topic_history import TopicHistory, TopicState
from strandline.simulation.cluster.violation import Violation

READABLE_S = 60
_BURST_PAUSE_MS = 10
_SETTINGS = ClientSettings(connect_timeout_ms=1_000, request_timeout_ms=3_000, metadata_max_age_ms=1_000)


class RecordWorkload:
    """One topic with its producer, its consumer and the history of its records."""

    def __init__(self, number: int, cluster: Cluster, history: TopicHistory) -> None:
        self._cluster = cluster
        self._history = history
        self._random = cluster.simulation.random(f"traffic{number}")
        self._topic = f"{RECORDS_PREFIX}{number}"
        self._in_flight = self._random.choice((1, 5))
        self.records = RecordHistory(one_at_a_time=self._in_flight == 1)
        self.partitions: list[TopicPartition] = []
        self.writer = f"writer{number}"
        self.reader = f"reader{number}"
        self.stopping = False

    def is_excused(self) -> bool:
        return any(member.was_wiped for member in self._cluster.brokers())

    async def write(self, world: World) -> None:
        batch_bytes = self._random.choice((150, 1_000, 16_384))
        settings = ProducerSettings(
            linger_ms=self._random.choice((0, 5, 50)),
            batch_bytes=batch_bytes,
            max_in_flight=self._in_flight,
            delivery_timeout_ms=600_000,
            max_block_ms=2_000,
        )
        async with self._client(world) as client:
            await self._create(client)
            async with client.producer(settings) as producer:
                while not self.stopping:
                    await self._cluster.pause_client(self._random, self._cluster.plan.pace_ms, burst_ms=_BURST_PAUSE_MS)
                    await self._burst(producer)

    def _client(self, world: World) -> Client:
        return Client(world, self._cluster.bootstrap(), _SETTINGS)

    async def _create(self, client: Client) -> None:
        """Retries until the topic exists."""
        plan = self._cluster.plan
        factor = min(3, len(plan.layout.brokers))
        configs = {"min.insync.replicas": str(min(2, factor)), "retention.ms": "-1"}
        if self._random.random() < 0.3 or plan.loses_power:
            configs["flush.messages"] = "1"
        state = TopicState(self._random.randint(1, 3), configs)
        self._history.requested(self._topic, state)
        while not self.stopping:
            try:
                await client.topics.create(
                    self._topic, partitions=state.partitions, replication_factor=factor, configs=configs
                )
                break
            except KafkaError as error:
                if error.code is ErrorCode.TOPIC_ALREADY_EXISTS:
                    break
            await asyncio.sleep(0.2)
        else:
            return
        self._history.acked(self._topic, state)
        self.partitions = [TopicPartition(self._topic, index) for index in range(state.partitions)]

    async def _burst(self, producer: Producer) -> None:
        for _ in range(self._random.randint(1, 4) if self.partitions else 0):
            partition = self._random.choice(self.partitions)
            value = f"{partition}/{self._random.getrandbits(48):012x}".encode()
            self.records.sent(partition, value)
            try:
                delivery = await producer.send(partition.topic, value, partition=partition.partition)
            except KafkaError:
                continue  # the producer did not accept it
            delivery.add_done_callback(partial(self._settled, value))

    def _settled(self, value: bytes, delivery: Delivery) -> None:
        if delivery.cancelled():
            return
        if delivery.exception() is not None:
            self.records.failed += 1
            return
        delivered: Delivered = delivery.result()
        self.records.acked(TopicPartition(delivered.topic, delivered.partition), delivered.offset, value)

    async def read(self, world: World) -> None:
        """Consumes all records, and now and then lists the end offsets."""
        while not self.partitions and not self.stopping:
            await asyncio.sleep(0.1)
        async with self._client(world) as client, client.fetcher(FetcherSettings(max_wait_ms=300)) as fetcher:
            for each in self.partitions:
                fetcher.assign(each, 0)
            while not self.stopping:
                try:
                    for fetched in await fetcher.poll(500):
                        for record in fetched.records():
                            self.records.read(fetched.partition, record.offset, record.value or b"")
                        self.records.end_seen(f"{self.reader}'s fetch", fetched.partition, fetched.high_watermark)
                except KafkaError as error:
                    if error.code is ErrorCode.OFFSET_OUT_OF_RANGE and not self.is_excused():
                        raise Violation("I-11", f"records that {self.reader} has read are missing: {error}") from error
                    await asyncio.sleep(0.2)
                if self._random.random() < 0.2:
                    await self._ends(client)

    async def _ends(self, client: Client) -> dict[TopicPartition, int]:
        ends: dict[TopicPartition, int] = {}
        try:
            listed = await client.list_offsets(dict.fromkeys(self.partitions, LATEST))
        except KafkaError:
            return ends
        for partition, found in listed.items():
            if isinstance(found, ListedOffset):
                if not self.is_excused():
                    self.records.end_seen(f"{self.reader}'s ListOffsets", partition, found.offset)
                ends[partition] = found.offset
        return ends

    async def read_back(self, world: World) -> None:
        """Reads all records after healing and compares them with the history."""
        if self.is_excused():
            return
        loop = asyncio.get_running_loop()
        deadline_s = loop.time() + READABLE_S
        async with self._client(world) as client:
            while len(ends := await self._ends(client)) < len(self.partitions):
                if loop.time() > deadline_s:
                    raise Violation("liveness", f"{READABLE_S} s after healing {self._topic} is not readable")
                await asyncio.sleep(0.2)
            for partition, end in ends.items():
                self.records.check(partition, await self._all_of(client, partition, end, deadline_s))

    async def _all_of(
        self, client: Client, partition: TopicPartition, end: int, deadline_s: float
    ) -> list[tuple[int, bytes]]:
        found: list[tuple[int, bytes]] = []
        async with client.fetcher() as fetcher:
            fetcher.assign(partition, 0)
            while fetcher.position(partition).offset < end:
                if asyncio.get_running_loop().time() > deadline_s:
                    raise Violation("liveness", f"{READABLE_S} s after healing {partition} is not readable to its end")
                for fetched in await fetcher.poll(1_000):
                    found += [(record.offset, record.value or b"") for record in fetched.records()]
        return found
