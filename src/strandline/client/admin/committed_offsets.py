"""Committed offsets of groups: OffsetFetch, OffsetCommit and OffsetDelete, sent to the group's coordinator."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec

from strandline.client.coordinators import Coordinators, KeyType
from strandline.client.errors import error_of
from strandline.model.errors import KafkaError
from strandline.model.ids import TopicPartition
from strandline.protocol.messages.offsets import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
    OffsetDeleteResponse,
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
    OffsetFetchResponseTopic,
    OffsetFetchResponseTopics,
)

_NEWEST_BY_NAME = 9
"""Later versions of OffsetCommit and OffsetFetch identify topics by id only."""
_FIRST_WITH_GROUPS = 8


class CommittedOffset(msgspec.Struct, frozen=True):
    offset: int
    leader_epoch: int = -1
    metadata: str = ""


class Committer(msgspec.Struct, frozen=True):
    """The group member on whose behalf offsets are committed; the default is a client that is not a member of the
    group."""

    member_id: str = ""
    generation: int = -1
    instance_id: str | None = None


async def fetch_committed(
    coordinators: Coordinators,
    group_id: str,
    partitions: Iterable[TopicPartition] | None = None,
    *,
    require_stable: bool = True,
    timeout_ms: int | None = None,
) -> dict[TopicPartition, CommittedOffset]:
    """The committed offsets of these partitions (None: of all); partitions without one are left out.

    `require_stable` waits for transactions that are about to commit offsets (KIP-447)."""
    topics = None if partitions is None else _by_topic(partitions)
    request = OffsetFetchRequest(
        groups=[
            OffsetFetchRequestGroup(
                group_id,
                topics=None
                if topics is None
                else [OffsetFetchRequestTopics(name, partition_indexes=indexes) for name, indexes in topics.items()],
            )
        ],
        require_stable=require_stable,
    )
    of_one_group = OffsetFetchRequest(
        group_id=group_id,
        topics=None if topics is None else [OffsetFetchRequestTopic(*each) for each in topics.items()],
    )
    response = await coordinators.call(
        KeyType.GROUP,
        group_id,
        request,
        OffsetFetchResponse,
        newest=_NEWEST_BY_NAME,
        older=(_FIRST_WITH_GROUPS, of_one_group),
        timeout_ms=timeout_ms,
        errors=_fetch_errors,
    )
    for number in _fetch_errors(response):
        if number:
            raise error_of(number, f"fetching the committed offsets of group {group_id!r}")
    return {
        TopicPartition(topic.name, each.partition_index): CommittedOffset(
            each.committed_offset, each.committed_leader_epoch, each.metadata or ""
        )
        for topic in _fetched_topics(response)
        for each in topic.partitions
        if each.committed_offset >= 0
    }


def _fetched_topics(
    response: OffsetFetchResponse,
) -> list[OffsetFetchResponseTopic] | list[OffsetFetchResponseTopics]:
    return response.groups[0].topics if response.groups else response.topics


def _fetch_errors(response: OffsetFetchResponse) -> list[int]:
    group = [each.error_code for each in response.groups]
    partitions = [each.error_code for topic in _fetched_topics(response) for each in topic.partitions]
    return [response.error_code, *group, *partitions]


async def commit_offsets(
    coordinators: Coordinators,
    group_id: str,
    offsets: Mapping[TopicPartition, CommittedOffset],
    committer: Committer | None = None,
    *,
    timeout_ms: int | None = None,
) -> dict[TopicPartition, KafkaError]:
    """The partitions whose offset was not committed, with the error; empty on success."""
    member = committer or Committer()
    topics: dict[str, OffsetCommitRequestTopic] = {}
    for partition, committed in offsets.items():
        topics.setdefault(partition.topic, OffsetCommitRequestTopic(name=partition.topic)).partitions.append(
            OffsetCommitRequestPartition(
                partition.partition, committed.offset, committed.leader_epoch, committed.metadata
            )
        )
    request = OffsetCommitRequest(
        group_id=group_id,
        generation_id_or_member_epoch=member.generation,
        member_id=member.member_id,
        group_instance_id=member.instance_id,
        topics=list(topics.values()),
    )
    response = await coordinators.call(
        KeyType.GROUP,
        group_id,
        request,
        OffsetCommitResponse,
        newest=_NEWEST_BY_NAME,
        timeout_ms=timeout_ms,
        errors=lambda response: [each.error_code for topic in response.topics for each in topic.partitions],
    )
    return {
        TopicPartition(topic.name, each.partition_index): error_of(
            each.error_code, f"committing offsets of group {group_id!r}"
        )
        for topic in response.topics
        for each in topic.partitions
        if each.error_code
    }


async def delete_committed(
    coordinators: Coordinators, group_id: str, partitions: Iterable[TopicPartition]
) -> dict[TopicPartition, KafkaError]:
    """The partitions whose committed offset was not deleted, with the error."""
    topics = [
        OffsetDeleteRequestTopic(name, [OffsetDeleteRequestPartition(index) for index in indexes])
        for name, indexes in _by_topic(partitions).items()
    ]
    request = OffsetDeleteRequest(group_id=group_id, topics=topics)
    response = await coordinators.call(KeyType.GROUP, group_id, request, OffsetDeleteResponse)
    if response.error_code:
        raise error_of(response.error_code, f"group {group_id!r}")
    return {
        TopicPartition(topic.name, each.partition_index): error_of(each.error_code, f"group {group_id!r}")
        for topic in response.topics
        for each in topic.partitions
        if each.error_code
    }


def _by_topic(partitions: Iterable[TopicPartition]) -> dict[str, list[int]]:
    topics: dict[str, list[int]] = {}
    for each in partitions:
        topics.setdefault(each.topic, []).append(each.partition)
    return topics
