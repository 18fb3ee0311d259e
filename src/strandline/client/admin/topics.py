"""TopicAdmin: created, listed, described, grown, deleted, and their oldest records removed."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from strandline.client.connection import Connection
from strandline.client.core.cluster_metadata import PartitionMetadata, TopicMetadata
from strandline.client.errors import error_of
from strandline.client.routing import Router
from strandline.model.errors import ErrorCode, KafkaError
from strandline.model.ids import TopicPartition, Uuid
from strandline.protocol.messages.topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreatePartitionsAssignment,
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
    CreateTopicsRequest,
    CreateTopicsResponse,
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopic,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)

T = TypeVar("T")
NO_SUCH_TOPIC = frozenset({ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID})


@dataclass(frozen=True, slots=True)
class CreatedTopic:
    """-1 where the broker is too old, or not willing, to say."""

    name: str
    id: Uuid
    partitions: int
    replication_factor: int
    configs: dict[str, str | None]


@dataclass(frozen=True, slots=True)
class TopicDescription:
    name: str
    id: Uuid
    internal: bool
    partitions: list[PartitionMetadata]

    @property
    def replication_factor(self) -> int:
        return len(self.partitions[0].replicas) if self.partitions else 0


class TopicAdmin:
    def __init__(self, router: Router) -> None:
        self._router = router

    async def create(
        self,
        name: str,
        *,
        partitions: int = -1,
        replication_factor: int = -1,
        configs: Mapping[str, str | None] | None = None,
        assignments: Sequence[Sequence[int]] | None = None,
        validate_only: bool = False,
    ) -> CreatedTopic:
        """Raises KafkaError; -1 leaves the number to the cluster. With `assignments`, the brokers of each partition."""
        topic = CreatableTopic(
            name=name,
            num_partitions=-1 if assignments else partitions,
            replication_factor=-1 if assignments else replication_factor,
            assignments=[
                CreatableReplicaAssignment(partition_index=index, broker_ids=list(brokers))
                for index, brokers in enumerate(assignments or ())
            ],
            configs=[CreatableTopicConfig(name=key, value=value) for key, value in (configs or {}).items()],
        )
        request = CreateTopicsRequest(
            topics=[topic], timeout_ms=self._router.settings.request_timeout_ms, validate_only=validate_only
        )

        async def ask() -> CreatedTopic:
            answer = await self._router.call(request, CreateTopicsResponse, controller=True)
            result = answer.topics[0]
            if result.error_code:
                raise error_of(result.error_code, result.error_message or f"topic {name!r}")
            found = {config.name: config.value for config in result.configs or []}
            return CreatedTopic(name, result.topic_id, result.num_partitions, result.replication_factor, found)

        return await self._mutating(ask)

    async def delete(self, name: str) -> None:
        async def ask() -> None:
            connection = await self._router.any_broker()
            version = connection.versions.newest_common_version(DeleteTopicsRequest)
            request = DeleteTopicsRequest(timeout_ms=self._router.settings.request_timeout_ms)
            if version >= 6:
                request.topics = [DeleteTopicState(name=name)]
            else:
                request.topic_names = [name]
            answer = await connection.call(request, DeleteTopicsResponse, version=version)
            result = answer.responses[0]
            if result.error_code:
                raise error_of(result.error_code, result.error_message or f"topic {name!r}")

        await self._mutating(ask)
        self._router.view.forget(name)

    async def grow(
        self, name: str, count: int, *, assignments: Sequence[Sequence[int]] | None = None, validate_only: bool = False
    ) -> None:
        """Adds partitions until there are `count`."""
        added = (
            None
            if assignments is None
            else [CreatePartitionsAssignment(broker_ids=list(brokers)) for brokers in assignments]
        )
        request = CreatePartitionsRequest(
            topics=[CreatePartitionsTopic(name=name, count=count, assignments=added)],
            timeout_ms=self._router.settings.request_timeout_ms,
            validate_only=validate_only,
        )

        async def ask() -> None:
            answer = await self._router.call(request, CreatePartitionsResponse, controller=True)
            result = answer.results[0]
            if result.error_code:
                raise error_of(result.error_code, result.error_message or f"topic {name!r}")

        await self._mutating(ask)
        self._router.view.forget(name)

    async def list(self) -> list[TopicDescription]:
        """All topics that the cluster shows us, by name."""

        async def ask() -> list[TopicDescription]:
            await self._router.refresh(None)
            return [_description(topic) for _, topic in sorted(self._router.view.topics.items())]

        return await self._router.retrying(ask, self._router.deadline_ms())

    async def describe(self, name: str) -> TopicDescription:
        """Raises KafkaError(UNKNOWN_TOPIC_OR_PARTITION) at once when there is no such topic."""

        async def ask() -> TopicDescription:
            await self._router.refresh([name])
            topic = self._router.view.topics.get(name)
            error = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if topic is None else topic.error
            if topic is None or error:
                raise KafkaError(error, f"topic {name!r}")
            return _description(topic)

        return await self._router.retrying(ask, self._router.deadline_ms(), final=NO_SUCH_TOPIC)

    async def delete_records(
        self, before: Mapping[TopicPartition, int], timeout_ms: int | None = None
    ) -> dict[TopicPartition, int | KafkaError]:
        """Removes what lies before the offsets given (-1: everything); the offsets at which the logs begin now."""

        async def ask(
            connection: Connection, partitions: list[TopicPartition]
        ) -> dict[TopicPartition, int | KafkaError]:
            topics: dict[str, DeleteRecordsTopic] = {}
            for each in partitions:
                topics.setdefault(each.topic, DeleteRecordsTopic(name=each.topic)).partitions.append(
                    DeleteRecordsPartition(partition_index=each.partition, offset=before[each])
                )
            request = DeleteRecordsRequest(
                topics=[*topics.values()], timeout_ms=self._router.settings.request_timeout_ms
            )
            answer = await connection.call(request, DeleteRecordsResponse)
            return {
                TopicPartition(topic.name, entry.partition_index): error_of(entry.error_code, f"topic {topic.name!r}")
                if entry.error_code
                else entry.low_watermark
                for topic in answer.topics
                for entry in topic.partitions
            }

        return await self._router.per_leader(before, ask, timeout_ms)

    async def _mutating(self, ask: Callable[[], Awaitable[T]]) -> T:
        """Repeated while the controller moves or throttles us; that there is no such topic is an answer."""
        return await self._router.retrying(ask, self._router.deadline_ms(), final=NO_SUCH_TOPIC)


def _description(topic: TopicMetadata) -> TopicDescription:
    partitions = [topic.partitions[index] for index in sorted(topic.partitions)]
    return TopicDescription(topic.name, topic.id, topic.internal, partitions)
