"""Clients that change metadata through random brokers and record requests and responses in the topic history.

Each worker is a process on a machine of its own. It sends each request once, over a bare connection: with the client's
retries the outcome of a request would not be known.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from enum import Enum

from msgspec.structs import replace

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
from strandline.simulation.cluster.broker_connection import UNKNOWN_OUTCOME, BrokerConnection
from strandline.simulation.cluster.cluster import Cluster
from strandline.simulation.cluster.topic_history import Possible, TopicHistory, TopicState

_TIMEOUT_MS = 2_500
_BURST_PAUSE_MS = 40
_AFTER_RETRY = frozenset(
    {
        ErrorCode.TOPIC_ALREADY_EXISTS,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.INVALID_PARTITIONS,
    }
)
"""A broker resends forwarded requests after losing the controller, as Kafka's do: the first may have succeeded."""
_TOPIC = 2
_VALUES = ("400000", "500000", "600000")
_MIN_ISR = "min.insync.replicas"


class RequestOutcome(Enum):
    DONE = "done"
    REJECTED = "rejected"
    UNKNOWN = "unknown"


class MetadataWorker:
    def __init__(self, number: int, cluster: Cluster, history: TopicHistory) -> None:
        self.name = f"client{number}"
        self._number = number
        self._cluster = cluster
        self._history = history
        self._chronicle = cluster.chronicle
        self._random = cluster.simulation.random(self.name)
        self._topics: dict[str, TopicState] = {}
        self._made = 0
        self._connection: BrokerConnection
        self.stopping = False

    async def run(self, world: World) -> None:
        self._connection = BrokerConnection(
            world, lambda: [member.name for member in self._cluster.brokers()], self._random
        )
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
            await self._cluster.pause_client(self._random, 2 * self._cluster.plan.pace_ms, burst_ms=_BURST_PAUSE_MS)
            action = self._random.choices(actions, weights)[0][1]
            await (action if self._topics else self._create)()
        self._connection.close()

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

        async def send() -> Possible:
            request = CreateTopicsRequest(topics=[topic], timeout_ms=_TIMEOUT_MS)
            (result,) = (await self._connection.call(request, CreateTopicsResponse)).topics
            _raise(result.error_code, result.error_message)
            return replace(state, id=result.topic_id)

        await self._change(name, f"create ({state.partitions} partitions)", state, send)

    async def _delete(self) -> None:
        name = self._some_topic()

        async def send() -> Possible:
            request = DeleteTopicsRequest(topics=[DeleteTopicState(name=name)], timeout_ms=_TIMEOUT_MS)
            (result,) = (await self._connection.call(request, DeleteTopicsResponse)).responses
            _raise(result.error_code, result.error_message)
            return None

        await self._change(name, "delete", None, send)

    async def _grow(self) -> None:
        name = self._some_topic()
        after = replace(self._topics[name], partitions=self._topics[name].partitions + 1)

        async def send() -> Possible:
            wanted = CreatePartitionsTopic(name=name, count=after.partitions, assignments=None)
            request = CreatePartitionsRequest(topics=[wanted], timeout_ms=_TIMEOUT_MS)
            (result,) = (await self._connection.call(request, CreatePartitionsResponse)).results
            _raise(result.error_code, result.error_message)
            return after

        await self._change(name, f"grow to {after.partitions}", after, send)

    async def _configure(self) -> None:
        name = self._some_topic()
        before = self._topics[name]
        key = self._random.choice(("retention.ms", "segment.ms", _MIN_ISR))
        value = self._random.choice(("1", "2") if key == _MIN_ISR else _VALUES)
        sets = self._random.random() < 0.7
        configs = {each: text for each, text in before.configs.items() if each != key}
        if sets:
            configs[key] = value

        async def send() -> Possible:
            change = IncrementalAlterConfigsRequestAlterableConfig(
                name=key, config_operation=0 if sets else 1, value=value if sets else None
            )
            resource = IncrementalAlterConfigsRequestAlterConfigsResource(
                resource_type=_TOPIC, resource_name=name, configs=[change]
            )
            request = IncrementalAlterConfigsRequest(resources=[resource])
            (result,) = (await self._connection.call(request, IncrementalAlterConfigsResponse)).responses
            _raise(result.error_code, result.error_message)
            return replace(before, configs=configs)

        await self._change(
            name,
            f"set {key}={value}" if sets else f"unset {key}",
            replace(before, configs=configs),
            send,
        )

    async def _change(self, name: str, doing: str, after: Possible, send: Callable[[], Awaitable[Possible]]) -> None:
        before = self._topics.get(name)
        self._history.requested(name, after)
        acknowledged: list[Possible] = []

        async def sending() -> None:
            acknowledged.append(await send())

        outcome = await self._outcome(f"{doing} {name}", sending)
        self._topics.pop(name, None)
        kept = before
        if outcome is RequestOutcome.DONE:
            self._history.acked(name, acknowledged[0])
            kept = acknowledged[0]
        elif outcome is RequestOutcome.REJECTED:
            self._history.rejected(name, before)
        else:
            self._history.unknown += 1
            kept = None
        if kept is not None:
            self._topics[name] = kept

    async def _outcome(self, doing: str, send: Callable[[], Awaitable[None]]) -> RequestOutcome:
        try:
            await send()
            outcome, why = RequestOutcome.DONE, ""
        except KafkaError as error:
            unsure = isinstance(error, TRANSPORT_ERRORS) or error.code in UNKNOWN_OUTCOME or error.code in _AFTER_RETRY
            outcome, why = RequestOutcome.UNKNOWN if unsure else RequestOutcome.REJECTED, f" ({error.code.name})"
        self._chronicle.note(self.name, f"{doing} through {self._connection.broker}: {outcome.value}{why}", minor=True)
        return outcome

    async def _reassign(self) -> None:
        name = self._some_topic()
        brokers = self._cluster.plan.layout.brokers
        replicas = self._random.sample(brokers, self._random.randint(1, min(3, len(brokers))))
        move = ReassignablePartition(partition_index=0, replicas=None if self._random.random() < 0.3 else replicas)

        async def send() -> None:
            topic = ReassignableTopic(name=name, partitions=[move])
            request = AlterPartitionReassignmentsRequest(topics=[topic], timeout_ms=_TIMEOUT_MS)
            response = await self._connection.call(request, AlterPartitionReassignmentsResponse)
            _raise(response.error_code or response.responses[0].partitions[0].error_code, response.error_message)

        await self._outcome(f"reassign {name}-0 to {move.replicas}", send)

    async def _elect(self) -> None:
        async def send() -> None:
            request = ElectLeadersRequest(election_type=0, topic_partitions=None, timeout_ms=_TIMEOUT_MS)
            response = await self._connection.call(request, ElectLeadersResponse)
            _raise(response.error_code, None)

        await self._outcome("elect preferred leaders", send)

    async def _producer_id(self) -> None:
        async def send() -> None:
            request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=60_000)
            response = await self._connection.call(request, InitProducerIdResponse)
            _raise(response.error_code, None)
            self._history.producer_id(response.producer_id)

        await self._outcome("allocate a producer id", send)


def _raise(code: int, why: str | None) -> None:
    if code:
        raise KafkaError(ErrorCode(code), why or "")
