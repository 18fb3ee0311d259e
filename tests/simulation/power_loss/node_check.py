"""Starts a node on what a power loss left and compares it with the responses its clients had received.

Committed metadata is present: topics with their ids, partitions and configs; producer ids are not allocated twice. Each
partition has contiguous offsets; every record in it was sent, no idempotent record is in it twice, and an acknowledged
record is at its acknowledged offset, or (unless every append is flushed) beyond the log end. Then the node accepts new
records.
"""

from __future__ import annotations

import asyncio
from random import Random

from simulation.power_loss.log_check import BrokenPromise
from simulation.power_loss.node_history import History, Sent, TopicState
from simulation.power_loss.node_workload import BOOTSTRAP, NODE, NodeWorkload
from strandline.client.admin.configs import ConfigSource, Resource, ResourceType
from strandline.client.admin.offsets import ListedOffset
from strandline.client.client import Client
from strandline.client.core.descriptions import TopicDescription
from strandline.model.ids import TopicPartition, Uuid
from strandline.protocol.messages.list_offsets import EARLIEST, LATEST
from strandline.protocol.messages.producers import InitProducerIdRequest, InitProducerIdResponse
from strandline.runtime.world import World
from strandline.simulation.journal import Journal
from strandline.simulation.nodes import node_program
from strandline.simulation.volume import Volume
from strandline.simulation.world import Simulation

MAX_VIRTUAL_S = 300
TIMEOUT_S = 60


class NodeRecording:
    def __init__(self, seed: int, mode: str, operations: int) -> None:
        self.name = f"node seed {seed} {mode}"
        self.workload = NodeWorkload(seed, mode)
        self.workload.run(operations)
        self._everything_acknowledged = mode == "flush"

    @property
    def journal(self) -> Journal:
        return self.workload.journal

    def check(self, found: Volume, operation: int, random: Random) -> None:
        if operation < self.workload.history.formatted_at:
            return
        with Simulation(random.randrange(1 << 32)) as simulation:
            machine = simulation.machine(NODE, volume=found)
            stop = asyncio.Event()
            node = machine.boot(node_program(self.workload.config, stop))

            async def program(world: World) -> None:
                async with Client(world, BOOTSTRAP) as client:
                    reader = Reader(client, self.workload.history, operation, self._everything_acknowledged)
                    try:
                        async with asyncio.timeout(TIMEOUT_S):
                            await reader.check()
                    except TimeoutError:
                        raise BrokenPromise(f"not read within {TIMEOUT_S} s: {reader.doing}") from None

            async def scenario() -> None:
                reader = simulation.machine("reader").boot(program)
                node.add_done_callback(lambda _: None if reader.done() else reader.cancel())
                try:
                    await reader
                except asyncio.CancelledError:
                    await node
                    raise BrokenPromise("the node stopped by itself") from None
                if random.random() < 0.2:
                    stop.set()
                    await node

            simulation.run(scenario(), max_virtual_s=MAX_VIRTUAL_S)


class Reader:
    def __init__(self, client: Client, history: History, operation: int, flushed: bool) -> None:
        self._client = client
        self._history = history
        self._operation = operation
        self._flushed = flushed
        self.doing = "nothing yet"
        self._sent_by_value = {sent.value: sent for sent in history.sent}
        self._sent_to: dict[tuple[Uuid | None, int], list[Sent]] = {}
        for sent in history.sent:
            self._sent_to.setdefault((sent.topic_id, sent.partition), []).append(sent)

    async def check(self) -> None:
        topics = {topic.name: topic for topic in await self._client.topics.list() if not topic.internal}
        await self._check_topics(topics)
        await self._check_producer_ids()
        partitions = [TopicPartition(name, each.index) for name, topic in topics.items() for each in topic.partitions]
        if partitions:
            starts, values = await self._read(partitions)
            for partition in partitions:
                self._check_partition(topics[partition.topic], partition, starts[partition], values[partition])
            await self._check_produce(partitions)

    async def _check_topics(self, topics: dict[str, TopicDescription]) -> None:
        for name in sorted({*topics, *self._history.topics}):
            possible = self._history.possible(name, self._operation)
            found = await self._state(topics[name]) if name in topics else None
            if not any(_matches(found, state) for state in possible):
                raise BrokenPromise(f"topic {name} is {found}, expected one of {possible}")

    async def _state(self, topic: TopicDescription) -> TopicState:
        entries = await self._client.configs.describe(Resource(ResourceType.TOPIC, topic.name))
        configs = [(entry.name, entry.value or "") for entry in entries if entry.source is ConfigSource.TOPIC]
        return TopicState(topic.id, len(topic.partitions), tuple(sorted(configs)))

    async def _check_producer_ids(self) -> None:
        request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=60_000)
        response = await self._client.router.call(request, InitProducerIdResponse)
        given = {producer_id for at, producer_id in self._history.producer_ids if at <= self._operation}
        if response.error_code or response.producer_id in given:
            raise BrokenPromise(
                f"producer id {response.producer_id} (error {response.error_code}) was allocated before"
            )

    def _check_partition(
        self, topic: TopicDescription, partition: TopicPartition, start: int, values: list[bytes]
    ) -> None:
        deletable = [
            deletion.before
            for deletion in self._history.deletions
            if deletion.partition == partition and deletion.topic_id == topic.id and deletion.sent_at <= self._operation
        ]
        if start > max(deletable, default=0):
            raise BrokenPromise(f"{partition} starts at {start}; deleted was up to {max(deletable, default=0)}")
        self._check_values(partition, topic, values, start)
        for sent in self._sent_to.get((topic.id, partition.partition), ()):
            if sent.acknowledged_at <= self._operation:
                self._check_acknowledged(partition, sent, values, start)

    def _check_values(
        self, partition: TopicPartition, topic: TopicDescription, values: list[bytes], start: int
    ) -> None:
        seen: set[bytes] = set()
        for offset, value in enumerate(values, start):
            sent = self._sent_by_value.get(value)
            if sent is None or sent.sent_at > self._operation or (sent.topic, sent.partition) != partition:
                raise BrokenPromise(f"{partition} has at {offset} a record that was not sent to it: {value[:20]!r}")
            if sent.topic_id is not None and sent.topic_id != topic.id:
                raise BrokenPromise(f"{partition} has at {offset} a record of an earlier topic of this name")
            if sent.idempotent and value in seen:
                raise BrokenPromise(f"{partition} holds {value[:20]!r} twice, the second time at {offset}")
            seen.add(value)

    def _check_acknowledged(self, partition: TopicPartition, sent: Sent, values: list[bytes], start: int) -> None:
        end = start + len(values)
        if sent.offset >= end:
            if self._flushed:
                raise BrokenPromise(f"{partition} ends at {end}: the acknowledged offset {sent.offset} is lost")
        elif sent.offset >= start and values[sent.offset - start] != sent.value:
            held = values[sent.offset - start][:20]
            raise BrokenPromise(f"{partition} holds {held!r} at {sent.offset}, not {sent.value[:20]!r}")

    async def _read(
        self, partitions: list[TopicPartition]
    ) -> tuple[dict[TopicPartition, int], dict[TopicPartition, list[bytes]]]:
        """Log start offsets and all values; raises when offsets are not contiguous."""
        starts, ends = await self._offsets(partitions, EARLIEST), await self._offsets(partitions, LATEST)
        values: dict[TopicPartition, list[bytes]] = {partition: [] for partition in partitions}
        missing = {partition for partition in partitions if starts[partition] < ends[partition]}
        async with self._client.fetcher() as fetcher:
            for partition in partitions:
                if partition in missing:
                    fetcher.assign(partition, starts[partition])
            while missing:
                self.doing = f"reading {sorted(missing)}, {fetcher.last_error}"
                for fetched in await fetcher.poll(5_000):
                    partition, read = fetched.partition, values[fetched.partition]
                    for record in fetched.records():
                        due = starts[partition] + len(read)
                        if record.offset != due:
                            raise BrokenPromise(f"{partition}: offset {record.offset} where {due} is expected")
                        read.append(record.value or b"")
                    if starts[partition] + len(read) >= ends[partition]:
                        missing.discard(partition)
                        fetcher.unassign(partition)
        return starts, values

    async def _offsets(self, partitions: list[TopicPartition], at: int) -> dict[TopicPartition, int]:
        offsets = {}
        for partition, listed in (await self._client.list_offsets(dict.fromkeys(partitions, at))).items():
            if not isinstance(listed, ListedOffset):
                raise listed
            offsets[partition] = listed.offset
        return offsets

    async def _check_produce(self, partitions: list[TopicPartition]) -> None:
        async with self._client.producer() as producer:
            deliveries = [
                await producer.send(partition.topic, b"afterwards", partition=partition.partition)
                for partition in partitions
            ]
            offsets = [(await delivery).offset for delivery in deliveries]
        ends = await self._offsets(partitions, LATEST)
        for partition, offset in zip(partitions, offsets, strict=True):
            if ends[partition] != offset + 1:
                raise BrokenPromise(f"{partition} appended a record at {offset} and ends at {ends[partition]}")


def _matches(found: TopicState | None, possible: TopicState | None) -> bool:
    if found is None or possible is None:
        return found is possible
    return found.like(possible)
