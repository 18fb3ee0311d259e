"""DescribeTopicPartitions (75), version 0, from committed metadata; DeleteRecords (21), versions 0-2, by the leader of
the partition. CreateTopics (19), DeleteTopics (20) and CreatePartitions (37) are forwarded to the active controller.
"""

from __future__ import annotations

from strandline.handlers.authorized_operations import ALL_TOPIC_OPERATIONS
from strandline.handlers.context import BrokerContext, Call
from strandline.handlers.metadata import absence
from strandline.handlers.reachable_leaders import ReachableBrokers, election_decided
from strandline.metadata.values import PartitionInfo, TopicInfo
from strandline.model.errors import ErrorCode, KafkaError
from strandline.model.ids import INTERNAL_TOPICS, ZERO_UUID
from strandline.protocol.messages.topics import (
    Cursor,
    DeleteRecordsPartitionResult,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopicResult,
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    DescribeTopicPartitionsResponsePartition,
    DescribeTopicPartitionsResponseTopic,
)
from strandline.runtime.tasks import YieldCounter, yield_to_loop
from strandline.runtime.watermark import Wait, WaitCondition


async def handle_describe_topic_partitions(
    broker: BrokerContext, call: Call, request: DescribeTopicPartitionsRequest
) -> DescribeTopicPartitionsResponse:
    """Topics ordered by name, up to the limit of partitions, with a cursor for the next page."""
    response = await _describe_page(broker, call, request)
    if broker.lost_leaders:
        leaders = (partition.leader_id for topic in response.topics for partition in topic.partitions)
        if await election_decided(broker, call, leaders):
            response = await _describe_page(broker, call, request)
    return response


async def _describe_page(
    broker: BrokerContext, call: Call, request: DescribeTopicPartitionsRequest
) -> DescribeTopicPartitionsResponse:
    names, first = _page(broker, request)
    left = max(1, min(request.response_partition_limit, broker.config.get("max.request.partition.size.limit")))
    reachable = ReachableBrokers(broker.view, call.listener)
    yields = YieldCounter(call)
    response = DescribeTopicPartitionsResponse(next_cursor=None)
    for name in names:
        if left == 0:
            response.next_cursor = Cursor(topic_name=name, partition_index=0)
            break
        if yields.due():
            await yield_to_loop()
        known = broker.view.topic(name)
        if known is None:
            response.topics.append(
                DescribeTopicPartitionsResponseTopic(
                    error_code=absence(name), name=name, topic_authorized_operations=ALL_TOPIC_OPERATIONS
                )
            )
            continue
        described = _describe(broker, reachable, known, first, left)
        response.topics.append(described)
        left -= len(described.partitions)
        if first + len(described.partitions) < known.partition_count:
            response.next_cursor = Cursor(topic_name=name, partition_index=first + len(described.partitions))
            break
        first = 0
    return response


def _page(broker: BrokerContext, request: DescribeTopicPartitionsRequest) -> tuple[list[str], int]:
    """The topic names from the cursor on, and the first partition to describe of the first of them."""
    named = dict.fromkeys(topic.name for topic in request.topics)
    names = sorted(named or (topic.name for topic in broker.view.topics()))
    cursor = request.cursor
    if cursor is None:
        return names, 0
    if cursor.partition_index < 0 or (named and cursor.topic_name not in named):
        where = f"{cursor.topic_name}-{cursor.partition_index}"
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"the cursor is at {where}, which the request does not name")
    names = [name for name in names if name >= cursor.topic_name]
    # Without a list of topics, the one at the cursor may have been deleted since the last page.
    return names, cursor.partition_index if names and names[0] == cursor.topic_name else 0


def _describe(
    broker: BrokerContext, reachable: ReachableBrokers, topic: TopicInfo, first: int, limit: int
) -> DescribeTopicPartitionsResponseTopic:
    indexes = range(first, min(first + limit, topic.partition_count))
    partitions = [(index, broker.view.partition(topic.id, index)) for index in indexes]
    return DescribeTopicPartitionsResponseTopic(
        name=topic.name,
        topic_id=topic.id,
        is_internal=topic.name in INTERNAL_TOPICS,
        partitions=[_partition(reachable, index, info) for index, info in partitions if info is not None],
        topic_authorized_operations=ALL_TOPIC_OPERATIONS,
    )


def _partition(
    reachable: ReachableBrokers, index: int, info: PartitionInfo
) -> DescribeTopicPartitionsResponsePartition:
    code, leader = reachable.leader(info)
    return DescribeTopicPartitionsResponsePartition(
        error_code=code,
        partition_index=index,
        leader_id=leader,
        leader_epoch=info.leader_epoch,
        replica_nodes=list(info.replicas),
        isr_nodes=list(info.isr),
        eligible_leader_replicas=list(info.elr),
        last_known_elr=list(info.last_known_elr),
        offline_replicas=reachable.offline(info.replicas),
    )


async def handle_delete_records(
    broker: BrokerContext, call: Call, request: DeleteRecordsRequest
) -> DeleteRecordsResponse:
    """Raises the log start offsets, then waits until the low watermarks have followed, that is until every replica in
    the ISR has deleted the records. Of a partition that the request names twice the last offset counts."""
    offsets = {(topic.name, each.partition_index): each.offset for topic in request.topics for each in topic.partitions}
    topics: dict[str, DeleteRecordsTopicResult] = {}
    waits: list[tuple[DeleteRecordsPartitionResult, WaitCondition]] = []
    wait = Wait(len(offsets))
    yields = YieldCounter(call)
    for (name, index), offset in offsets.items():
        if yields.due():
            await yield_to_loop()
        result = DeleteRecordsPartitionResult(partition_index=index, low_watermark=-1)
        topics.setdefault(name, DeleteRecordsTopicResult(name=name)).partitions.append(result)
        try:
            waits.append((result, await _delete_before(broker, wait, name, index, offset)))
        except KafkaError as error:
            result.error_code = error.code
            wait.gained(1)
    call.park()
    await wait.done(request.timeout_ms)
    for result, condition in waits:
        if condition.reached:
            result.low_watermark = condition.watermark.value
        else:
            lost = condition.lost is not None
            result.error_code = ErrorCode.NOT_LEADER_OR_FOLLOWER if lost else ErrorCode.REQUEST_TIMED_OUT
    return DeleteRecordsResponse(topics=list(topics.values()))


async def _delete_before(broker: BrokerContext, wait: Wait, topic: str, index: int, offset: int) -> WaitCondition:
    if topic in INTERNAL_TOPICS:
        raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, "records of internal topics cannot be deleted")
    _, leader, log = await broker.partitions.find_leading(topic, ZERO_UUID, index)
    if not log.settings.cleanup_delete:
        raise KafkaError(ErrorCode.POLICY_VIOLATION, f"{topic} has no cleanup.policy=delete")
    before = leader.high_watermark.value if offset == -1 else offset
    if before < 0 or before > leader.high_watermark.value:
        raise KafkaError(ErrorCode.OFFSET_OUT_OF_RANGE, f"the high watermark is {leader.high_watermark.value}")
    if before > log.log_start_offset:
        log.delete_records_before(before)
        leader.on_log_start_moved()
    return wait.reach(leader.low_watermark, before)
