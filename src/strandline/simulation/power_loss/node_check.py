"""Starts a node on what a power loss left and holds it against what its clients had been told.

Committed metadata is there: topics with their ids, partitions and configurations; producer ids are not given twice.
Each partition is an unbroken run of offsets; everything in it was sent, nothing idempotent is in it twice, and an
acknowledged record is where it was said to be, or (unless every append is flushed) lies beyond the log's end. Then the
node takes new records as if nothing had been.
"""

from __future__ import annotations

import asyncio
from random import Random

from strandline.client.client import Client
from strandline.client.configs import ConfigSource, Resource, ResourceType
from strandline.client.offsets import EARLIEST, LATEST, ListedOffset
from strandline.client.topics import TopicDescription
from strandline.model.ids import TopicPartition
from strandline.protocol.messages.producers import InitProducerIdRequest, InitProducerIdResponse
from strandline.runtime.world import World
from strandline.simulation.journal import Journal
from strandline.simulation.nodes import node_program
from strandline.simulation.power_loss.log_check import Broken
from strandline.simulation.power_loss.node_history import History, Sent, TopicState
from strandline.simulation.power_loss.node_story import BOOTSTRAP, NODE, NodeStory
from strandline.simulation.volume import Volume
from strandline.simulation.world import Simulation

MAX_VIRTUAL_S = 300


class NodeRecording:
    def __init__(self, seed: int, mode: str, operations: int) -> None:
        self.name = f"node seed {seed} {mode}"
        self.story = NodeStory(seed, mode)
        self.story.run(operations)
        self._everything_acknowledged = mode == "flush"

    @property
    def journal(self) -> Journal:
        return self.story.journal

    def check(self, found: Volume, operation: int, random: Random) -> None:
        if operation < self.story.history.formatted_at:
            return
        with Simulation(random.randrange(1 << 32)) as simulation:
            machine = simulation.machine(NODE, volume=found)
            stop = asyncio.Event()
            node = machine.boot(node_program(self.story.config, stop))

            async def program(world: World) -> None:
                async with Client(world, BOOTSTRAP) as client:
                    await Reader(client, self.story.history, operation, self._everything_acknowledged).check()

            async def scenario() -> None:
                reader = simulation.machine("reader").boot(program)
                node.add_done_callback(lambda _: None if reader.done() else reader.cancel())
                try:
                    await reader
                except asyncio.CancelledError:
                    await node
                    raise Broken("the node stopped by itself") from None
                stop.set()
                await node

            simulation.run(scenario(), max_virtual_s=MAX_VIRTUAL_S)


class Reader:
    def __init__(self, client: Client, history: History, operation: int, flushed: bool) -> None:
        self._client = client
        self._history = history
        self._operation = operation
        self._flushed = flushed
        self._sent_by_value = {sent.value: sent for sent in history.sent}

    async def check(self) -> None:
        topics = {topic.name: topic for topic in await self._client.topics.list() if not topic.internal}
        await self._check_topics(topics)
        await self._check_producer_ids()
        for topic in topics.values():
            for partition in topic.partitions:
                await self._check_partition(topic, partition.index)
        await self._check_goes_on(topics)

    async def _check_topics(self, topics: dict[str, TopicDescription]) -> None:
        for name in sorted({*topics, *self._history.topics}):
            possible = self._history.possible(name, self._operation)
            found = await self._state(topics[name]) if name in topics else None
            if not any(_alike(found, state) for state in possible):
                raise Broken(f"topic {name} is {found}, and could only be one of {possible}")

    async def _state(self, topic: TopicDescription) -> TopicState:
        entries = await self._client.configs.describe(Resource(ResourceType.TOPIC, topic.name))
        configs = [(entry.name, entry.value or "") for entry in entries if entry.source is ConfigSource.TOPIC]
        return TopicState(topic.id, len(topic.partitions), tuple(sorted(configs)))

    async def _check_producer_ids(self) -> None:
        request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=60_000)
        answer = await self._client.router.call(request, InitProducerIdResponse)
        given = {producer_id for at, producer_id in self._history.producer_ids if at <= self._operation}
        if answer.error_code or answer.producer_id in given:
            raise Broken(f"producer id {answer.producer_id} (error {answer.error_code}) was given before")

    async def _check_partition(self, topic: TopicDescription, index: int) -> None:
        partition = TopicPartition(topic.name, index)
        start, values = await self._read(partition)
        end = start + len(values)
        deletable = [
            deletion.before
            for deletion in self._history.deletions
            if deletion.partition == partition
            and deletion.topic_id == topic.id
            and deletion.asked_at <= self._operation
        ]
        if start > max(deletable, default=0):
            raise Broken(f"{partition} begins at {start}, nobody deleted beyond {max(deletable, default=0)}")
        self._check_values(partition, topic, values, start)
        for sent in self._history.sent:
            if sent.topic_id == topic.id and sent.partition == index and sent.answered_at <= self._operation:
                self._check_acknowledged(partition, sent, values, start, end)

    def _check_values(
        self, partition: TopicPartition, topic: TopicDescription, values: list[bytes], start: int
    ) -> None:
        seen: set[bytes] = set()
        for offset, value in enumerate(values, start):
            sent = self._sent_by_value.get(value)
            if sent is None or sent.asked_at > self._operation or (sent.topic, sent.partition) != partition:
                raise Broken(f"{partition} holds at {offset} what nobody sent there: {value[:20]!r}")
            if sent.topic_id is not None and sent.topic_id != topic.id:
                raise Broken(f"{partition} holds at {offset} a record of the topic that had this name before")
            if sent.idempotent and value in seen:
                raise Broken(f"{partition} holds {value[:20]!r} twice, the second time at {offset}")
            seen.add(value)

    def _check_acknowledged(
        self, partition: TopicPartition, sent: Sent, values: list[bytes], start: int, end: int
    ) -> None:
        if sent.offset >= end:
            if self._flushed:
                raise Broken(f"{partition} ends at {end}: acknowledged and lost is offset {sent.offset}")
        elif sent.offset >= start and values[sent.offset - start] != sent.value:
            held = values[sent.offset - start][:20]
            raise Broken(f"{partition} holds {held!r} at {sent.offset}, not {sent.value[:20]!r}")

    async def _read(self, partition: TopicPartition) -> tuple[int, list[bytes]]:
        """The log start and all values; offsets must follow each other without a gap."""
        start, end = await self._offset(partition, EARLIEST), await self._offset(partition, LATEST)
        values: list[bytes] = []
        async with self._client.fetcher() as fetcher:
            fetcher.assign(partition, start)
            while start + len(values) < end:
                for fetched in await fetcher.poll(5_000):
                    for record in fetched.records():
                        if record.offset != start + len(values):
                            raise Broken(f"{partition}: offset {record.offset} follows {start + len(values) - 1}")
                        values.append(record.value or b"")
        return start, values

    async def _offset(self, partition: TopicPartition, at: int) -> int:
        listed = (await self._client.list_offsets({partition: at}))[partition]
        if not isinstance(listed, ListedOffset):
            raise listed
        return listed.offset

    async def _check_goes_on(self, topics: dict[str, TopicDescription]) -> None:
        partitions = [TopicPartition(name, each.index) for name, topic in topics.items() for each in topic.partitions]
        async with self._client.producer() as producer:
            deliveries = [
                await producer.send(partition.topic, b"afterwards", partition=partition.partition)
                for partition in partitions
            ]
            offsets = [(await delivery).offset for delivery in deliveries]
        for partition, offset in zip(partitions, offsets, strict=True):
            if await self._offset(partition, LATEST) != offset + 1:
                raise Broken(f"{partition} took a record at {offset} and does not end after it")


def _alike(found: TopicState | None, possible: TopicState | None) -> bool:
    if found is None or possible is None:
        return found is possible
    return found.like(possible)
