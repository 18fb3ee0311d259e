"""Clients that change metadata through any broker, one after the other or at once, and write down what they are told.

Each worker is a process on a machine of its own with our client's connection: it asks once and takes what comes, since
a call that was repeated behind its back could not be told from one that was not.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import replace
from enum import Enum

from strandline.client.errors import TRANSPORT_ERRORS
from strandline.model.errors import ErrorCode, KafkaError
from strandline.protocol.messages.configs import (
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsRequestAlterableConfig,
    IncrementalAlterConfigsRequestAlterConfigsResource,
    IncrementalAlterConfigsResponse,
)
from strandline.protocol.messages.elections import ElectLeadersRequest, ElectLeadersResponse
from strandline.protocol.messages.producers import InitProducerIdRequest, InitProducerIdResponse
from strandline.protocol.messages.reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartition,
    ReassignableTopic,
)
from strandline.protocol.messages.topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
    CreateTopicsRequest,
    CreateTopicsResponse,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)
from strandline.runtime.world import World
from strandline.simulation.cluster.broker_connection import DOUBTFUL, Caller
from strandline.simulation.cluster.cluster import Cluster
from strandline.simulation.cluster.topic_history import History, Possible, TopicState

_TIMEOUT_MS = 2_500
_RUSHED_MS = 40
# A broker asks again when it has lost the controller, as Kafka's do: these answers may mean that it was done before.
_TWICE = frozenset(
    {
        ErrorCode.TOPIC_ALREADY_EXISTS,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.INVALID_PARTITIONS,
    }
)
_TOPIC = 2
_VALUES = ("400000", "500000", "600000")
_MIN_ISR = "min.insync.replicas"


class Outcome(Enum):
    DONE = "done"
    REFUSED = "refused"
    UNKNOWN = "unknown"


class Worker:
    def __init__(self, number: int, cluster: Cluster, history: History) -> None:
        self.name = f"client{number}"
        self._number = number
        self._cluster = cluster
        self._history = history
        self._chronicle = cluster.chronicle
        self._random = cluster.simulation.random(self.name)
        self._topics: dict[str, TopicState] = {}
        self._made = 0
        self._caller: Caller
        self.stopping = False

    async def run(self, world: World) -> None:
        self._caller = Caller(world, lambda: [member.name for member in self._cluster.brokers()], self._random)
        actions: tuple[tuple[int, Callable[[], Awaitable[None]]], ...] = (
            (10, self._create),
            (5, self._delete),
            (5, self._grow),
            (8, self._configure),
            (4, self._reassign),
            (3, self._elect),
            (2, self._producer_id),
        )
        weights = [weight for weight, _ in actions]
        while not self.stopping:
            await self._cluster.rest(self._random, 2 * self._cluster.plan.pace_ms, rushed_ms=_RUSHED_MS)
            action = self._random.choices(actions, weights)[0][1]
            await (action if self._topics else self._create)()
        self._caller.close()

    def _some_topic(self) -> str:
        return self._random.choice(sorted(self._topics))

    async def _create(self) -> None:
        if len(self._topics) >= 4:
            return
        self._made += 1
        name = f"t{self._number}-{self._made}"
        configs = {"max.message.bytes": self._random.choice(_VALUES)} if self._random.random() < 0.5 else {}
        if self._random.random() < 0.5:
            configs[_MIN_ISR] = "2"
        state = TopicState(self._random.randint(1, 3), configs)
        factor = self._random.randint(1, min(3, len(self._cluster.plan.layout.brokers)))
        topic = CreatableTopic(
            name=name,
            num_partitions=state.partitions,
            replication_factor=factor,
            configs=[CreatableTopicConfig(name=key, value=value) for key, value in configs.items()],
        )

        async def ask() -> Possible:
            request = CreateTopicsRequest(topics=[topic], timeout_ms=_TIMEOUT_MS)
            (result,) = (await self._caller.call(request, CreateTopicsResponse)).topics
            _raise(result.error_code, result.error_message)
            return replace(state, id=result.topic_id)

        await self._change(name, f"create ({state.partitions} partitions)", state, ask)

    async def _delete(self) -> None:
        name = self._some_topic()

        async def ask() -> Possible:
            request = DeleteTopicsRequest(topics=[DeleteTopicState(name=name)], timeout_ms=_TIMEOUT_MS)
            (result,) = (await self._caller.call(request, DeleteTopicsResponse)).responses
            _raise(result.error_code, result.error_message)
            return None

        await self._change(name, "delete", None, ask)

    async def _grow(self) -> None:
        name = self._some_topic()
        after = replace(self._topics[name], partitions=self._topics[name].partitions + 1)

        async def ask() -> Possible:
            wanted = CreatePartitionsTopic(name=name, count=after.partitions, assignments=None)
            request = CreatePartitionsRequest(topics=[wanted], timeout_ms=_TIMEOUT_MS)
            (result,) = (await self._caller.call(request, CreatePartitionsResponse)).results
            _raise(result.error_code, result.error_message)
            return after

        await self._change(name, f"grow to {after.partitions}", after, ask)

    async def _configure(self) -> None:
        name = self._some_topic()
        before = self._topics[name]
        key = self._random.choice(("retention.ms", "segment.ms", _MIN_ISR))
        value = self._random.choice(("1", "2") if key == _MIN_ISR else _VALUES)
        sets = self._random.random() < 0.7
        configs = {each: text for each, text in before.configs.items() if each != key}
        if sets:
            configs[key] = value

        async def ask() -> Possible:
            change = IncrementalAlterConfigsRequestAlterableConfig(
                name=key, config_operation=0 if sets else 1, value=value if sets else None
            )
            resource = IncrementalAlterConfigsRequestAlterConfigsResource(
                resource_type=_TOPIC, resource_name=name, configs=[change]
            )
            request = IncrementalAlterConfigsRequest(resources=[resource])
            (result,) = (await self._caller.call(request, IncrementalAlterConfigsResponse)).responses
            _raise(result.error_code, result.error_message)
            return replace(before, configs=configs)

        await self._change(
            name, f"set {key}={value}" if sets else f"unset {key}", replace(before, configs=configs), ask
        )

    async def _change(self, name: str, doing: str, after: Possible, ask: Callable[[], Awaitable[Possible]]) -> None:
        before = self._topics.get(name)
        self._history.began(name, after)
        said: list[Possible] = []

        async def asking() -> None:
            said.append(await ask())

        outcome = await self._outcome(f"{doing} {name}", asking)
        self._topics.pop(name, None)
        kept = before
        if outcome is Outcome.DONE:
            self._history.acked(name, said[0])
            kept = said[0]
        elif outcome is Outcome.REFUSED:
            self._history.refused(name, before)
        else:
            self._history.unknown += 1
            kept = None
        if kept is not None:
            self._topics[name] = kept

    async def _outcome(self, doing: str, ask: Callable[[], Awaitable[None]]) -> Outcome:
        try:
            await ask()
            outcome, why = Outcome.DONE, ""
        except KafkaError as error:
            unsure = isinstance(error, TRANSPORT_ERRORS) or error.code in DOUBTFUL or error.code in _TWICE
            outcome, why = Outcome.UNKNOWN if unsure else Outcome.REFUSED, f" ({error.code.name})"
        self._chronicle.note(self.name, f"{doing} through {self._caller.at}: {outcome.value}{why}", minor=True)
        return outcome

    async def _reassign(self) -> None:
        name = self._some_topic()
        brokers = self._cluster.plan.layout.brokers
        replicas = self._random.sample(brokers, self._random.randint(1, min(3, len(brokers))))
        move = ReassignablePartition(partition_index=0, replicas=None if self._random.random() < 0.3 else replicas)

        async def ask() -> None:
            topic = ReassignableTopic(name=name, partitions=[move])
            request = AlterPartitionReassignmentsRequest(topics=[topic], timeout_ms=_TIMEOUT_MS)
            answer = await self._caller.call(request, AlterPartitionReassignmentsResponse)
            _raise(answer.error_code or answer.responses[0].partitions[0].error_code, answer.error_message)

        await self._outcome(f"reassign {name}-0 to {move.replicas}", ask)

    async def _elect(self) -> None:
        async def ask() -> None:
            request = ElectLeadersRequest(election_type=0, topic_partitions=None, timeout_ms=_TIMEOUT_MS)
            answer = await self._caller.call(request, ElectLeadersResponse)
            _raise(answer.error_code, None)

        await self._outcome("elect preferred leaders", ask)

    async def _producer_id(self) -> None:
        async def ask() -> None:
            request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=60_000)
            answer = await self._caller.call(request, InitProducerIdResponse)
            _raise(answer.error_code, None)
            self._history.producer_id(answer.producer_id)

        await self._outcome("ask for a producer id", ask)


def _raise(code: int, why: str | None) -> None:
    if code:
        raise KafkaError(ErrorCode(code), why or "")
