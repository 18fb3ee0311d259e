"""DescribeQuorum."""

from __future__ import annotations

from cluster.handlers.scripts.running import Asked, script
from cluster.handlers.talk import Talk
from strandline.protocol.apis import ApiKey
from strandline.protocol.messages.quorum import (
    DescribeQuorumRequest,
    DescribeQuorumRequestPartitionData,
    DescribeQuorumRequestTopicData,
)

MOVING = frozenset(
    {
        "high_watermark",
        "last_caught_up_timestamp",
        "last_fetch_timestamp",
        "leader_epoch",
        "log_end_offset",
        "replica_directory_id",
    }
)


def of(name: str, partition: int) -> DescribeQuorumRequest:
    one = DescribeQuorumRequestPartitionData(partition_index=partition)
    return DescribeQuorumRequest(topics=[DescribeQuorumRequestTopicData(topic_name=name, partitions=[one])])


@script(ApiKey.DESCRIBE_QUORUM, Asked.BOTH)
def the_quorum(talk: Talk) -> None:
    talk.ask("of the metadata log", of("__cluster_metadata", 0), mask=MOVING)
    talk.ask("of a partition that is not there", of("__cluster_metadata", 1), mask=MOVING)
    talk.ask("of another topic", of("t", 0), mask=MOVING)
    talk.ask("of nothing", DescribeQuorumRequest())
