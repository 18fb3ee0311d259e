"""Partition leaders elected on demand: the preferred one, or, if nothing else is left, any replica that lives."""

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
    """What came of it for each partition; for all of them (None) only those where an election was needed."""
    topics: dict[str, TopicPartitions] = {}
    for each in partitions or ():
        topics.setdefault(each.topic, TopicPartitions(topic=each.topic)).partitions.append(each.partition)
    request = ElectLeadersRequest(
        election_type=election,
        topic_partitions=None if partitions is None else [*topics.values()],
        timeout_ms=router.settings.request_timeout_ms,
    )

    async def ask() -> dict[TopicPartition, KafkaError | None]:
        answer = await router.call(request, ElectLeadersResponse, controller=True)
        if answer.error_code:
            raise error_of(answer.error_code)
        return {
            TopicPartition(topic.topic, each.partition_id): error_of(each.error_code, each.error_message)
            if each.error_code
            else None
            for topic in answer.replica_election_results
            for each in topic.partition_result
        }

    return await router.retrying(ask, router.deadline_ms())
