"""OffsetForLeaderEpoch (23), versions 2-4: where an epoch ended, so that a client sees whether its position is lost.
Left out: being asked by a follower, which truncates by what Fetch tells it (KIP-595).
"""

from __future__ import annotations

from strandline.handlers.context import BrokerContext, Call
from strandline.model.errors import KafkaError
from strandline.model.ids import ZERO_UUID
from strandline.protocol.messages.epochs import (
    EpochEndOffset,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderTopicResult,
)
from strandline.runtime.tasks import YieldCounter, yield_to_loop


async def handle_offset_for_leader_epoch(
    broker: BrokerContext, call: Call, request: OffsetForLeaderEpochRequest
) -> OffsetForLeaderEpochResponse:
    topics = []
    yields = YieldCounter(call)
    for topic in request.topics:
        answers = []
        for one in topic.partitions:
            if yields.due():
                await yield_to_loop()
            answer = EpochEndOffset(partition=one.partition, leader_epoch=-1, end_offset=-1)
            try:
                partition = broker.partitions.find(topic.topic, ZERO_UUID, one.partition)
                log = partition.log or await partition.ready()
                partition.leading(one.current_leader_epoch)
                answer.leader_epoch, answer.end_offset = log.epochs.end_offset_for(one.leader_epoch, log.log_end_offset)
            except KafkaError as error:
                answer.error_code = error.code
            answers.append(answer)
        topics.append(OffsetForLeaderTopicResult(topic=topic.topic, partitions=answers))
    return OffsetForLeaderEpochResponse(topics=topics)
