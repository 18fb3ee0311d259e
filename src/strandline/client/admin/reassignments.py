"""Partition reassignments (KIP-455): started, listed while they are ongoing, cancelled."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from strandline.client.core.descriptions import Reassignment
from strandline.client.errors import error_of
from strandline.client.routing import Router
from strandline.model.errors import KafkaError
from strandline.model.ids import TopicPartition
from strandline.protocol.messages.reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
    ListPartitionReassignmentsTopics,
    ReassignablePartition,
    ReassignableTopic,
)


class ReassignmentAdmin:
    def __init__(self, router: Router) -> None:
        self._router = router

    async def start(self, moves: Mapping[TopicPartition, Sequence[int]]) -> dict[TopicPartition, KafkaError]:
        """Starts moving each partition to these replicas; returns the errors by partition."""
        return await self._alter({partition: list(replicas) for partition, replicas in moves.items()})

    async def cancel(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, KafkaError]:
        """Reverts to the replicas before the reassignment; returns the errors by partition."""
        return await self._alter(dict.fromkeys(partitions))

    async def ongoing(self, partitions: Iterable[TopicPartition] | None = None) -> list[Reassignment]:
        topics: dict[str, ListPartitionReassignmentsTopics] = {}
        for each in partitions or ():
            topic = topics.setdefault(each.topic, ListPartitionReassignmentsTopics(name=each.topic))
            topic.partition_indexes.append(each.partition)
        request = ListPartitionReassignmentsRequest(
            topics=None if partitions is None else [*topics.values()],
            timeout_ms=self._router.settings.request_timeout_ms,
        )

        async def attempt() -> list[Reassignment]:
            response = await self._router.call(request, ListPartitionReassignmentsResponse, controller=True)
            if response.error_code:
                raise error_of(response.error_code, response.error_message)
            return [
                Reassignment(
                    TopicPartition(topic.name, each.partition_index),
                    tuple(each.replicas),
                    tuple(each.adding_replicas),
                    tuple(each.removing_replicas),
                )
                for topic in sorted(response.topics, key=lambda topic: topic.name)
                for each in sorted(topic.partitions, key=lambda each: each.partition_index)
            ]

        return await self._router.retrying(attempt, self._router.deadline_ms())

    async def _alter(self, wanted: Mapping[TopicPartition, list[int] | None]) -> dict[TopicPartition, KafkaError]:
        topics: dict[str, ReassignableTopic] = {}
        for partition, replicas in wanted.items():
            topics.setdefault(partition.topic, ReassignableTopic(name=partition.topic)).partitions.append(
                ReassignablePartition(partition_index=partition.partition, replicas=replicas)
            )
        request = AlterPartitionReassignmentsRequest(
            topics=[*topics.values()], timeout_ms=self._router.settings.request_timeout_ms
        )

        async def attempt() -> dict[TopicPartition, KafkaError]:
            response = await self._router.call(request, AlterPartitionReassignmentsResponse, controller=True)
            if response.error_code:
                raise error_of(response.error_code, response.error_message)
            return {
                TopicPartition(topic.name, each.partition_index): error_of(
                    each.error_code, each.error_message or f"partition {topic.name}-{each.partition_index}"
                )
                for topic in response.responses
                for each in topic.partitions
                if each.error_code
            }

        return await self._router.retrying(attempt, self._router.deadline_ms())
