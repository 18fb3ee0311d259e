"""OffsetForLeaderEpoch (23), versions 2-4: the end offset of an epoch, from which a client detects that its position
was truncated. Left out: requests of followers, which truncate by the diverging epoch of a Fetch response (KIP-595).
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
        responses = []
        for wanted in topic.partitions:
            if yields.due():
                await yield_to_loop()
            response = EpochEndOffset(partition=wanted.partition, leader_epoch=-1, end_offset=-1)
            try:
                _, _, log = await broker.partitions.find_leading(
                    topic.topic, ZERO_UUID, wanted.partition, wanted.current_leader_epoch
                )
                end = log.epochs.end_offset_for(wanted.leader_epoch, log.log_end_offset)
                response.leader_epoch, response.end_offset = end
            except KafkaError as error:
                response.error_code = error.code
            responses.append(response)
        topics.append(OffsetForLeaderTopicResult(topic=topic.topic, partitions=responses))
    return OffsetForLeaderEpochResponse(topics=topics)
