"""DescribeLogDirs (35), versions 1-5: the replicas of each log directory, its free space, and whether it is offline or
cordoned (KIP-1066). Future replicas (moves between directories) do not exist yet.
"""

from __future__ import annotations

from collections.abc import Callable

from strandline.handlers.context import BrokerContext, Call
from strandline.model.errors import ErrorCode
from strandline.protocol.messages.log_dirs import (
    DescribeLogDirsPartition,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
    DescribeLogDirsTopic,
)
from strandline.runtime.tasks import YieldCounter, yield_to_loop


async def handle_describe_log_dirs(
    broker: BrokerContext, call: Call, request: DescribeLogDirsRequest
) -> DescribeLogDirsResponse:
    wanted = _filter(request)
    yields = YieldCounter(call)
    results = []
    for directory in await broker.world.offload.run(broker.log_directories):
        result = DescribeLogDirsResult(
            log_dir=directory.path,
            total_bytes=directory.total_bytes,
            usable_bytes=directory.usable_bytes,
            is_cordoned=directory.cordoned,
        )
        if directory.offline:
            result.error_code = ErrorCode.KAFKA_STORAGE_ERROR
        topics: dict[str, DescribeLogDirsTopic] = {}
        for replica, size_bytes in directory.replicas:
            if yields.due():
                await yield_to_loop()
            if wanted(replica.topic, replica.partition):
                topic = topics.setdefault(replica.topic, DescribeLogDirsTopic(name=replica.topic))
                topic.partitions.append(
                    DescribeLogDirsPartition(partition_index=replica.partition, partition_size=size_bytes, offset_lag=0)
                )
        result.topics = list(topics.values())
        results.append(result)
    return DescribeLogDirsResponse(results=results)


def _filter(request: DescribeLogDirsRequest) -> Callable[[str, int], bool]:
    if request.topics is None:
        return lambda topic, partition: True
    named = {(topic.topic, partition) for topic in request.topics for partition in topic.partitions}
    return lambda topic, partition: (topic, partition) in named
