"""Offsets by timestamp (ListOffsets), requested from each partition's leader."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from strandline.client.connection import Connection
from strandline.client.errors import error_of
from strandline.client.routing import Router
from strandline.model.errors import ErrorCode, KafkaError
from strandline.model.ids import TopicPartition
from strandline.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)


class ListedOffset(msgspec.Struct, frozen=True):
    """Offset -1: the partition has no record with such a timestamp or a later one."""

    offset: int
    timestamp_ms: int
    leader_epoch: int


async def list_offsets(
    router: Router,
    wanted: Mapping[TopicPartition, int],
    *,
    read_committed: bool = False,
    timeout_ms: int | None = None,
) -> dict[TopicPartition, ListedOffset | KafkaError]:
    """Lists for each partition the first offset at or after a timestamp, or the offset of a special one (`LATEST`)."""

    async def attempt(
        connection: Connection, partitions: list[TopicPartition]
    ) -> dict[TopicPartition, ListedOffset | KafkaError]:
        topics: dict[str, ListOffsetsTopic] = {}
        for partition in partitions:
            leader = router.metadata.leader_of(partition)
            topics.setdefault(partition.topic, ListOffsetsTopic(name=partition.topic)).partitions.append(
                ListOffsetsPartition(
                    partition_index=partition.partition,
                    current_leader_epoch=leader[1] if leader is not None else -1,
                    timestamp=wanted[partition],
                )
            )
        request = ListOffsetsRequest(
            replica_id=-1,
            isolation_level=int(read_committed),
            topics=list(topics.values()),
            timeout_ms=router.settings.request_timeout_ms,
        )
        return _results(await connection.call(request, ListOffsetsResponse), partitions)

    return await router.per_leader(wanted, attempt, timeout_ms)


def _results(
    response: ListOffsetsResponse, partitions: list[TopicPartition]
) -> dict[TopicPartition, ListedOffset | KafkaError]:
    missing = error_of(ErrorCode.UNKNOWN_SERVER_ERROR, "the response lacks this partition")
    results: dict[TopicPartition, ListedOffset | KafkaError] = dict.fromkeys(partitions, missing)
    for topic in response.topics:
        for entry in topic.partitions:
            partition = TopicPartition(topic.name, entry.partition_index)
            if entry.error_code:
                results[partition] = error_of(entry.error_code, f"listing offsets of {partition}")
            else:
                results[partition] = ListedOffset(entry.offset, entry.timestamp, entry.leader_epoch)
    return results
