"""Creates, lists, describes, grows and deletes topics; deletes their oldest records (DeleteRecords)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TypeVar

import msgspec

from strandline.client.connection import Connection
from strandline.client.core.cluster_metadata import TopicMetadata
from strandline.client.core.descriptions import TopicDescription
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


class CreatedTopic(msgspec.Struct, frozen=True):
    """A created topic; numbers that the response does not contain are -1."""

    name: str
    id: Uuid
    partitions: int
    replication_factor: int
    configs: dict[str, str | None]


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
        """Creates a topic; -1 stands for the cluster's default. `assignments` lists the brokers of each partition."""
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

        async def attempt() -> CreatedTopic:
            response = await self._router.call(request, CreateTopicsResponse, controller=True)
            result = response.topics[0]
            if result.error_code:
                raise error_of(result.error_code, result.error_message or f"topic {name!r}")
            found = {config.name: config.value for config in result.configs or []}
            return CreatedTopic(name, result.topic_id, result.num_partitions, result.replication_factor, found)

        return await self._retrying(attempt)

    async def delete(self, name: str) -> None:
        async def attempt() -> None:
            connection = await self._router.any_broker()
            version = connection.versions.newest_common_version(DeleteTopicsRequest)
            request = DeleteTopicsRequest(timeout_ms=self._router.settings.request_timeout_ms)
            if version >= 6:
                request.topics = [DeleteTopicState(name=name)]
            else:
                request.topic_names = [name]
            response = await connection.call(request, DeleteTopicsResponse, version=version)
            result = response.responses[0]
            if result.error_code:
                raise error_of(result.error_code, result.error_message or f"topic {name!r}")

        await self._retrying(attempt)
        self._router.metadata.forget(name)

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

        async def attempt() -> None:
            response = await self._router.call(request, CreatePartitionsResponse, controller=True)
            result = response.results[0]
            if result.error_code:
                raise error_of(result.error_code, result.error_message or f"topic {name!r}")

        await self._retrying(attempt)
        self._router.metadata.forget(name)

    async def list(self) -> list[TopicDescription]:
        """All topics that this client may describe, by name."""

        async def attempt() -> list[TopicDescription]:
            await self._router.refresh(None)
            return [_description(topic) for _, topic in sorted(self._router.metadata.topics.items())]

        return await self._router.retrying(attempt, self._router.deadline_ms())

    async def describe(self, name: str) -> TopicDescription:
        """Raises KafkaError(UNKNOWN_TOPIC_OR_PARTITION), without retries, if there is no such topic."""

        async def attempt() -> TopicDescription:
            await self._router.refresh([name])
            topic = self._router.metadata.topics.get(name)
            error = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if topic is None else topic.error
            if topic is None or error:
                raise KafkaError(error, f"topic {name!r}")
            return _description(topic)

        return await self._router.retrying(attempt, self._router.deadline_ms(), final=NO_SUCH_TOPIC)

    async def delete_records(
        self, before: Mapping[TopicPartition, int], timeout_ms: int | None = None
    ) -> dict[TopicPartition, int | KafkaError]:
        """Deletes the records before these offsets (-1: up to the high watermark); returns the new low watermarks."""

        async def attempt(
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
            response = await connection.call(request, DeleteRecordsResponse)
            return {
                TopicPartition(topic.name, entry.partition_index): error_of(entry.error_code, f"topic {topic.name!r}")
                if entry.error_code
                else entry.low_watermark
                for topic in response.topics
                for entry in topic.partitions
            }

        return await self._router.per_leader(before, attempt, timeout_ms)

    async def _retrying(self, attempt: Callable[[], Awaitable[T]]) -> T:
        """Retries retriable errors, except that the topic does not exist."""
        return await self._router.retrying(attempt, self._router.deadline_ms(), final=NO_SUCH_TOPIC)


def _description(topic: TopicMetadata) -> TopicDescription:
    partitions = [topic.partitions[index] for index in sorted(topic.partitions)]
    return TopicDescription(topic.name, topic.id, topic.internal, partitions)
