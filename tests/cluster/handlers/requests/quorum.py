"""DescribeQuorum."""

from __future__ import annotations

from cluster.handlers.script_run import ScriptRun
from cluster.handlers.script_runner import Listeners, script
from strandline.protocol.apis import ApiKey
from strandline.protocol.messages.quorum import (
    DescribeQuorumRequest,
    DescribeQuorumRequestPartitionData,
    DescribeQuorumRequestTopicData,
)

VARYING = frozenset(
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


@script(ApiKey.DESCRIBE_QUORUM, Listeners.BOTH)
def quorum_described(run: ScriptRun) -> None:
    run.record("of the metadata log", of("__cluster_metadata", 0), mask=VARYING)
    run.record("of an unknown partition", of("__cluster_metadata", 1), mask=VARYING)
    run.record("of another topic", of("t", 0), mask=VARYING)
    run.record("an empty request", DescribeQuorumRequest())
