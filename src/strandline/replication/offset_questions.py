"""What a follower asks whose log has nothing in common with its leader's: where that one begins and where it ends."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from strandline.model.errors import ErrorCode, KafkaError, code_of
from strandline.model.ids import TopicPartition
from strandline.protocol.messages.list_offsets import (
    EARLIEST,
    LATEST,
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from strandline.protocol.types import Message


async def fetch_leader_offsets(
    ask: Callable[[Message], Awaitable[Message]], broker_id: int, topic_partition: TopicPartition, leader_epoch: int
) -> tuple[int, int]:
    """(log start, log end) of the leader. Raises KafkaError, or OSError when there is no answer."""
    found = []
    for timestamp in (EARLIEST, LATEST):
        wanted = ListOffsetsPartition(
            partition_index=topic_partition.partition, current_leader_epoch=leader_epoch, timestamp=timestamp
        )
        topic = ListOffsetsTopic(name=topic_partition.topic, partitions=[wanted])
        response = await ask(ListOffsetsRequest(replica_id=broker_id, topics=[topic]))
        assert isinstance(response, ListOffsetsResponse)
        answer = response.topics[0].partitions[0]
        if answer.error_code != ErrorCode.NONE:
            raise KafkaError(code_of(answer.error_code), f"the leader does not tell the offsets of {topic_partition}")
        found.append(answer.offset)
    return found[0], found[1]
