"""Sends each request to the right broker and retries it: the shell that owns a client's connections.

Every request of the client goes through a `Router`: `call` for requests that any broker handles, `call_broker` for
those of one broker, `per_leader` for those about partitions. Connections are shared per lane; a lane of its own keeps
long polls from delaying other calls, since a broker responds to each connection in order.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Iterable
from types import TracebackType
from typing import Self, TypeVar

from strandline.client.connection import Connection
from strandline.client.connection_pool import ConnectionPool
from strandline.client.core.cluster_metadata import ClusterMetadata, TopicMetadata
from strandline.client.errors import TRANSPORT_ERRORS, BrokerUnreachable, ConnectionLost
from strandline.client.settings import Backoff, ClientSettings
from strandline.model.errors import ErrorCode, KafkaError
from strandline.model.ids import Endpoint, TopicPartition
from strandline.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from strandline.protocol.types import Message
from strandline.runtime.world import World

R = TypeVar("R", bound=Message)
T = TypeVar("T")

# Errors after which the client refreshes its metadata: another broker leads, or hosts, the partition.
WRONG_LEADER = frozenset(
    {
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.REPLICA_NOT_AVAILABLE,
        ErrorCode.BROKER_NOT_AVAILABLE,
        ErrorCode.LISTENER_NOT_FOUND,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.INCONSISTENT_TOPIC_ID,
        ErrorCode.NETWORK_EXCEPTION,
    }
)


class Router:
    def __init__(self, world: World, bootstrap: list[Endpoint], settings: ClientSettings | None = None) -> None:
        if not bootstrap:
            raise ValueError("at least one bootstrap address is needed")
        self.world = world
        self.settings = settings or ClientSettings()
        self.metadata = ClusterMetadata()
        self._bootstrap = bootstrap
        self._pool: ConnectionPool[str] = ConnectionPool(world.network, self.settings)
        self._created_ms = world.clock.now_ms()
        self._closed = False

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        self._closed = True
        self._pool.close()

    def now_ms(self) -> int:
        return self.world.clock.now_ms()

    def deadline_ms(self, timeout_ms: int | None = None) -> int:
        return self.now_ms() + (self.settings.api_timeout_ms if timeout_ms is None else timeout_ms)

    def backoff(self) -> Backoff:
        return Backoff(self.settings, self.world.random)

    async def sleep(self, length_ms: int) -> None:
        await asyncio.sleep(length_ms / 1000)

    async def broker(self, broker_id: int, lane: str = "") -> Connection:
        known = self.metadata.brokers.get(broker_id)
        if known is None:
            raise BrokerUnreachable(f"broker {broker_id} is not among the live brokers")
        return await self._pool.connection(known.endpoint, lane)

    async def connection_to(self, endpoint: Endpoint) -> Connection:
        """A connection to a node that is not a broker, such as a controller; on a lane of its own."""
        return await self._pool.connection(endpoint, "controller")

    async def any_broker(self) -> Connection:
        """An open connection, else one to the first address that responds; bootstrap addresses come last."""
        if (connection := self._pool.open_connection("")) is not None:
            return connection
        known = [broker.endpoint for broker in self.metadata.brokers.values()]
        self.world.random.shuffle(known)
        errors: list[str] = []
        for endpoint in dict.fromkeys([*known, *self._bootstrap]):
            try:
                return await self._pool.connection(endpoint, "")
            except TRANSPORT_ERRORS as error:
                errors.append(error.why)
        raise BrokerUnreachable("; ".join(errors))

    async def call(
        self,
        request: Message,
        response_type: type[R],
        *,
        version: int | None = None,
        timeout_ms: int | None = None,
        controller: bool = False,
    ) -> R:
        """Sends to any broker, or with `controller` to the one that Metadata names; retries until the timeout."""
        deadline_ms = self.deadline_ms(timeout_ms)

        async def attempt() -> R:
            connection = await self._controller() if controller else await self.any_broker()
            remaining_ms = max(1, min(self.settings.request_timeout_ms, deadline_ms - self.now_ms()))
            return await connection.call(request, response_type, version=version, timeout_ms=remaining_ms)

        return await self.retrying(attempt, deadline_ms)

    async def call_broker(
        self, broker_id: int, request: Message, response_type: type[R], *, timeout_ms: int | None = None
    ) -> R:
        deadline_ms = self.deadline_ms(timeout_ms)

        async def attempt() -> R:
            if broker_id not in self.metadata.brokers:
                await self.refresh([])
            return await (await self.broker(broker_id)).call(request, response_type)

        return await self.retrying(attempt, deadline_ms)

    async def retrying(
        self, attempt: Callable[[], Awaitable[T]], deadline_ms: int, final: Collection[ErrorCode] = ()
    ) -> T:
        """Retries after transport errors and retriable errors that are not `final`, until the deadline."""
        backoff = self.backoff()
        while True:
            try:
                return await attempt()
            except KafkaError as error:
                may_retry = isinstance(error, TRANSPORT_ERRORS) or (error.code.retriable and error.code not in final)
                pause_ms = backoff.next_ms()
                if (
                    not may_retry
                    or self._closed
                    or self.now_ms() + pause_ms >= self._retry_deadline_ms(error, deadline_ms)
                ):
                    raise
                await self.sleep(pause_ms)

    async def refresh(self, topics: Iterable[str] | None, *, create: bool = False) -> MetadataResponse:
        """Refreshes the metadata of these topics (None: all)."""
        names = None if topics is None else list(dict.fromkeys(topics))
        connection = await self.any_broker()
        version = connection.versions.newest_common_version(MetadataRequest)
        request = MetadataRequest(
            topics=None if names is None else [MetadataRequestTopic(name=name) for name in names],
            allow_auto_topic_creation=create or version < 4,
        )
        response = await connection.call(request, MetadataResponse, version=version)
        if response.error_code == ErrorCode.REBOOTSTRAP_REQUIRED:
            self._rebootstrap()
            raise ConnectionLost(f"{connection.endpoint} asked this client to bootstrap again")
        self.metadata.on_metadata(response, self.now_ms(), names)
        return response

    async def topic(self, name: str, *, create: bool = False, timeout_ms: int | None = None) -> TopicMetadata:
        """The metadata of a topic, refreshed if it is stale; waits for a topic that is being created."""
        if self.metadata.is_fresh(name, self.now_ms(), self.settings.metadata_max_age_ms):
            return self.metadata.topics[name]

        async def attempt() -> TopicMetadata:
            await self.refresh([name], create=create)
            known = self.metadata.topics.get(name)
            if known is None or known.error:
                code = known.error if known is not None else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                raise KafkaError(code, f"topic {name!r}")
            return known

        return await self.retrying(attempt, self.deadline_ms(timeout_ms))

    async def leaders(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """The leaders known after at most one refresh; partitions without a leader are left out."""
        wanted = list(partitions)
        now_ms = self.now_ms()
        stale = [
            each.topic
            for each in wanted
            if not self.metadata.is_fresh(each.topic, now_ms, self.settings.metadata_max_age_ms)
            or self.metadata.leader_of(each) is None
        ]
        if stale:
            await self.refresh(stale)
        found = {each: self.metadata.leader_of(each) for each in wanted}
        return {each: leader[0] for each, leader in found.items() if leader is not None}

    async def per_leader(
        self,
        partitions: Iterable[TopicPartition],
        attempt: Callable[[Connection, list[TopicPartition]], Awaitable[dict[TopicPartition, T | KafkaError]]],
        timeout_ms: int | None = None,
    ) -> dict[TopicPartition, T | KafkaError]:
        """Sends to each partition's leader; partitions with retriable errors are retried at the then current leader."""
        deadline_ms = self.deadline_ms(timeout_ms)
        backoff = self.backoff()
        wanted = list(dict.fromkeys(partitions))
        results: dict[TopicPartition, T | KafkaError] = {}
        missing = wanted
        while missing:
            results_now = await self._one_round(missing, attempt)
            results.update(results_now)
            missing = [each for each in missing if _may_be_retried(results_now[each])]
            pause_ms = backoff.next_ms()
            errors = [error for each in missing if isinstance(error := results_now[each], KafkaError)]
            if not missing or self.now_ms() + pause_ms >= max(
                self._retry_deadline_ms(each, deadline_ms) for each in errors
            ):
                break
            await self.sleep(pause_ms)
        return {each: results[each] for each in wanted}

    async def _one_round(
        self,
        partitions: list[TopicPartition],
        attempt: Callable[[Connection, list[TopicPartition]], Awaitable[dict[TopicPartition, T | KafkaError]]],
    ) -> dict[TopicPartition, T | KafkaError]:
        results: dict[TopicPartition, T | KafkaError] = {}
        try:
            leaders = await self.leaders(partitions)
        except KafkaError as error:
            return dict.fromkeys(partitions, error)
        for each in partitions:
            if each not in leaders:
                results[each] = self._without_leader(each)
        by_leader: dict[int, list[TopicPartition]] = {}
        for each, leader in leaders.items():
            by_leader.setdefault(leader, []).append(each)
        for leader, led in by_leader.items():
            try:
                results.update(await attempt(await self.broker(leader), led))
            except KafkaError as error:
                results.update(dict.fromkeys(led, error))
        for each, result in results.items():
            if isinstance(result, KafkaError) and result.code in WRONG_LEADER:
                self.metadata.on_wrong_leader(each.topic)
        return results

    def _without_leader(self, partition: TopicPartition) -> KafkaError:
        topic = self.metadata.topics.get(partition.topic)
        if topic is not None and topic.error:
            return KafkaError(topic.error, f"topic {partition.topic!r}")
        if topic is None or partition.partition not in topic.partitions:
            return KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"{partition} does not exist")
        return KafkaError(ErrorCode.LEADER_NOT_AVAILABLE, f"{partition} has no leader at the moment")

    async def _controller(self) -> Connection:
        if self.metadata.controller_id not in self.metadata.brokers:
            await self.refresh([])
        if self.metadata.controller_id in self.metadata.brokers:
            try:
                return await self.broker(self.metadata.controller_id)
            except TRANSPORT_ERRORS:
                # Any broker forwards the request; the next call looks the controller up again.
                self.metadata.controller_id = -1
        return await self.any_broker()

    def _rebootstrap(self) -> None:
        self.metadata = ClusterMetadata()
        self._pool.disconnect_all("the cluster asked this client to bootstrap again")

    def _retry_deadline_ms(self, error: KafkaError, deadline_ms: int) -> int:
        """Earlier while no broker has ever responded: the bootstrap address may be wrong."""
        if self._pool.has_ever_connected or not isinstance(error, TRANSPORT_ERRORS):
            return deadline_ms
        return min(deadline_ms, self._created_ms + self.settings.bootstrap_timeout_ms)


def _may_be_retried(result: object) -> bool:
    if not isinstance(result, KafkaError):
        return False
    return result.code.retriable or isinstance(result, TRANSPORT_ERRORS)
