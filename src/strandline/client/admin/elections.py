"""Elects partition leaders on request: the preferred replica, or uncleanly any live replica."""

from __future__ import annotations

from collections.abc import Iterable
from enum import IntEnum

from strandline.client.errors import error_of
from strandline.client.routing import Router
from strandline.model.errors import KafkaError
from strandline.model.ids import TopicPartition
from strandline.protocol.messages.elections import ElectLeadersRequest, ElectLeadersResponse, TopicPartitions


class Election(IntEnum):
    PREFERRED = 0
    UNCLEAN = 1


async def elect_leaders(
    router: Router, election: Election, partitions: Iterable[TopicPartition] | None
) -> dict[TopicPartition, KafkaError | None]:
    """The outcome by partition; for `None` (all partitions) only those where an election was needed."""
    topics: dict[str, TopicPartitions] = {}
    for each in partitions or ():
        topics.setdefault(each.topic, TopicPartitions(topic=each.topic)).partitions.append(each.partition)
    request = ElectLeadersRequest(
        election_type=election,
        topic_partitions=None if partitions is None else [*topics.values()],
        timeout_ms=router.settings.request_timeout_ms,
    )

    async def attempt() -> dict[TopicPartition, KafkaError | None]:
        response = await router.call(request, ElectLeadersResponse, controller=True)
        if response.error_code:
            raise error_of(response.error_code)
        return {
            TopicPartition(topic.topic, each.partition_id): error_of(each.error_code, each.error_message)
            if each.error_code
            else None
            for topic in response.replica_election_results
            for each in topic.partition_result
        }

    return await router.retrying(attempt, router.deadline_ms())
