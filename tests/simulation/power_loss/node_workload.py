"""The workload of one node: a thousand client operations, a clean stop, a kill, and what clients were promised.

Several workers, each with its own topics, share one client: the order of changes to a topic is known, and the node
still serves many requests at once. Values are unique, so that each record found later can be identified.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from random import Random

from simulation.power_loss.node_history import Deletion, History, Sent, TopicChange, TopicState
from strandline.client.admin.configs import Resource, ResourceType
from strandline.client.client import Client
from strandline.client.producer import Producer
from strandline.client.settings import FetcherSettings, ProducerSettings
from strandline.model.errors import ErrorCode, KafkaError
from strandline.model.ids import TopicPartition
from strandline.protocol.messages.producers import InitProducerIdRequest, InitProducerIdResponse
from strandline.runtime.tasks import TaskGroup
from strandline.runtime.world import World
from strandline.simulation.disk import SimDisk
from strandline.simulation.journal import Journal
from strandline.simulation.nodes import PORT, format_node, node_config, node_program
from strandline.simulation.world import Machine, Simulation

NODE = "node1"
BOOTSTRAP = f"{NODE}:{PORT}"
WORKERS = 4
MAX_VIRTUAL_S = 3_600
FLUSH: dict[str, dict[str, str]] = {
    "flush": {"log.flush.interval.messages": "1"},
    "replicated": {},
}
# Errors of a retry after the node was killed, when the first attempt had succeeded.
_DONE_BEFORE = (
    ErrorCode.TOPIC_ALREADY_EXISTS,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.INVALID_PARTITIONS,
)
_CONFIGS = ("retention.ms", "max.message.bytes", "segment.ms", "min.insync.replicas")


class NodeWorkload:
    def __init__(self, seed: int, mode: str) -> None:
        self.seed = seed
        self.config = node_config(NODE, overrides=FLUSH[mode])
        self.journal = Journal()
        self.history = History()
        self.digest = ""
        self.steps = 0
        self._stop = asyncio.Event()

    def run(self, operations: int) -> None:
        with Simulation(self.seed) as simulation:
            machine = simulation.machine(NODE, journal=self.journal)
            format_node(self.config, SimDisk(machine.volume, journal=self.journal), simulation.random("format"))
            self.history.formatted_at = self.now
            simulation.run(self._scenario(simulation, machine, operations), max_virtual_s=MAX_VIRTUAL_S)
            self.digest = simulation.trace.digest()
            self.steps = simulation.loop.steps

    @property
    def now(self) -> int:
        return len(self.journal.operations)

    async def _scenario(self, simulation: Simulation, machine: Machine, operations: int) -> None:
        node = self._boot(machine)
        clients = simulation.machine("clients").boot(lambda world: self._clients(world, operations))
        await asyncio.sleep(3)
        self._stop.set()
        await node
        node = self._boot(machine)
        await asyncio.sleep(3)
        machine.kill()
        node = self._boot(machine)
        await clients
        self._stop.set()
        await node

    def _boot(self, machine: Machine) -> asyncio.Task[None]:
        self._stop = asyncio.Event()
        return machine.boot(node_program(self.config, self._stop))

    async def _clients(self, world: World, operations: int) -> None:
        async with (
            Client(world, BOOTSTRAP) as client,
            client.producer(ProducerSettings(linger_ms=2)) as idempotent,
            client.producer(ProducerSettings(linger_ms=0, idempotent=False)) as plain,
            TaskGroup() as tasks,
        ):
            for number in range(WORKERS):
                worker = Worker(self, number, client, idempotent, plain, Random(f"{self.seed}/worker {number}"))
                tasks.start(worker.run(operations // WORKERS))


class Worker:
    def __init__(
        self, workload: NodeWorkload, number: int, client: Client, idempotent: Producer, plain: Producer, random: Random
    ) -> None:
        self._workload = workload
        self._history = workload.history
        self._number = number
        self._client = client
        self._idempotent = idempotent
        self._plain = plain
        self._random = random
        self._topics: dict[str, TopicState] = {}
        self._made = 0

    async def run(self, operations: int) -> None:
        actions: tuple[tuple[int, Callable[[], Awaitable[None]]], ...] = (
            (60, self._produce),
            (15, self._fetch),
            (8, self._create),
            (8, self._configure),
            (6, self._delete_records),
            (3, self._grow),
            (3, self._delete),
            (2, self._producer_id),
        )
        weights = [weight for weight, _ in actions]
        for _ in range(operations):
            action = self._random.choices(actions, weights)[0][1]
            if not self._topics:
                action = self._create
            await action()
            if self._random.random() < 0.1:
                await asyncio.sleep(self._random.random() / 5)

    def _some_topic(self) -> str:
        return self._random.choice(sorted(self._topics))

    async def _change(
        self, topic: str, doing: str, after: TopicState | None, request: Callable[[], Awaitable[object]]
    ) -> None:
        change = TopicChange(doing, after, self._workload.now)
        self._history.topics.setdefault(topic, []).append(change)
        await self._until_done(request)
        if after is not None and doing in ("create", "grow"):
            # Also refreshes the metadata that the producers use.
            described = await self._client.topics.describe(topic)
            after = change.after = TopicState(described.id, after.partitions, after.configs)
        change.acknowledged_at = self._workload.now
        if after is None:
            del self._topics[topic]
        else:
            self._topics[topic] = after

    async def _until_done(self, request: Callable[[], Awaitable[object]]) -> None:
        while True:
            try:
                await request()
                return
            except KafkaError as error:
                if error.code in _DONE_BEFORE:
                    return
                if error.code is not ErrorCode.INVALID_REPLICATION_FACTOR:
                    raise
            # The node is stopping or starting, and its broker is fenced.
            await asyncio.sleep(0.2)

    async def _create(self) -> None:
        if len(self._topics) >= 3:
            return
        reused = self._random.random() < 0.3 and self._made > 0
        number = self._random.randrange(self._made) if reused else self._made
        name = f"w{self._number}-{number}"
        if name in self._topics:
            return
        self._made += not reused
        configs = (("max.message.bytes", "500000"),) if self._random.random() < 0.5 else ()
        partitions = self._random.randint(1, 2)

        def request() -> Awaitable[object]:
            return self._client.topics.create(name, partitions=partitions, replication_factor=1, configs=dict(configs))

        await self._change(name, "create", TopicState(None, partitions, configs), request)

    async def _delete(self) -> None:
        name = self._some_topic()
        await self._change(name, "delete", None, lambda: self._client.topics.delete(name))

    async def _grow(self) -> None:
        name = self._some_topic()
        state = self._topics[name]
        if state.partitions >= 4:
            return
        grown = TopicState(state.id, state.partitions + 1, state.configs)
        await self._change(name, "grow", grown, lambda: self._client.topics.grow(name, grown.partitions))

    async def _configure(self) -> None:
        name = self._some_topic()
        state = self._topics[name]
        key = self._random.choice(_CONFIGS)
        value = {"min.insync.replicas": "1"}.get(key, str(self._random.randint(400_000, 900_000)))
        configs = {each: text for each, text in state.configs if each != key}
        resource = Resource(ResourceType.TOPIC, name)
        sets = self._random.random() < 0.7
        if sets:
            configs[key] = value

        def request() -> Awaitable[object]:
            if sets:
                return self._client.configs.alter(resource, set={key: value})
            return self._client.configs.alter(resource, unset=[key])

        after = TopicState(state.id, state.partitions, tuple(sorted(configs.items())))
        await self._change(name, "configure", after, request)

    async def _produce(self) -> None:
        name = self._some_topic()
        state = self._topics[name]
        idempotent = self._random.random() < 0.7
        producer = self._idempotent if idempotent else self._plain
        partition = self._random.randrange(state.partitions)
        waiting = []
        for _ in range(self._random.randint(1, 4)):
            number = len(self._history.sent)
            value = f"{number} ".encode() + b"x" * self._random.choice((5, 50, 300))
            sent = Sent(name, value, idempotent, self._workload.now, partition=partition, topic_id=state.id)
            self._history.sent.append(sent)
            waiting.append((sent, await producer.send(name, value, partition=partition)))
        for sent, delivery in waiting:
            sent.offset = (await delivery).offset
            sent.acknowledged_at = self._workload.now

    async def _fetch(self) -> None:
        """An acknowledged record is read as it was sent, unless it was deleted."""
        name = self._some_topic()
        acknowledged = self._acknowledged(name)
        if not acknowledged:
            return
        sent = self._random.choice(acknowledged)
        partition = TopicPartition(name, sent.partition)
        async with self._client.fetcher(FetcherSettings(out_of_range="earliest", max_wait_ms=50)) as fetcher:
            fetcher.assign(partition, sent.offset)
            records = [record for fetched in await fetcher.poll(20_000) for record in fetched.records()]
        if not records:
            raise AssertionError(f"reading {partition} at {sent.offset} returns nothing")
        if records[0].offset == sent.offset:
            assert records[0].value == sent.value, (partition, sent, records[0])
        else:
            assert any(deletion.topic_id == sent.topic_id for deletion in self._history.deletions), (sent, records[0])

    def _acknowledged(self, topic: str) -> list[Sent]:
        topic_id = self._topics[topic].id
        return [sent for sent in self._history.sent if sent.topic_id == topic_id and sent.offset >= 0]

    async def _delete_records(self) -> None:
        name = self._some_topic()
        state = self._topics[name]
        acknowledged = self._acknowledged(name)
        if not acknowledged:
            return
        chosen = self._random.choice(acknowledged)
        partition, before = TopicPartition(name, chosen.partition), chosen.offset
        self._history.deletions.append(Deletion(state.id, partition, before, self._workload.now))
        response = (await self._client.topics.delete_records({partition: before}))[partition]
        # An earlier deletion may have deleted more.
        if isinstance(response, KafkaError) and response.code is not ErrorCode.OFFSET_OUT_OF_RANGE:
            raise response

    async def _producer_id(self) -> None:
        request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=60_000)
        response = await self._client.router.call(request, InitProducerIdResponse)
        assert not response.error_code, response
        self._history.producer_ids.append((self._workload.now, response.producer_id))
