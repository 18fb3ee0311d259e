"""Topic names with path traversal: no API creates a file outside the data directory."""

from __future__ import annotations

from pathlib import Path

import pytest

from cluster.connection import Connection
from cluster.hostile.node_under_attack import NodeUnderAttack, OrdinaryClient
from cluster.record_batches import batch, produce
from strandline.model.errors import ErrorCode
from strandline.protocol.messages.configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsRequestAlterableConfig,
    IncrementalAlterConfigsRequestAlterConfigsResource,
)
from strandline.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from strandline.protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from strandline.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from strandline.protocol.messages.topics import (
    CreatableTopic,
    CreatePartitionsRequest,
    CreatePartitionsTopic,
    CreateTopicsRequest,
    DeleteTopicsRequest,
    DeleteTopicState,
)

pytestmark = pytest.mark.xdist_group("hostile")

NAMES = [
    "../../x",
    "..",
    ".",
    "/etc/passwd",
    "a/b",
    "a\\b",
    "a\0b",
    "a\nb",
    "x" * 250,
    "x" * 32_000,
    "",
    "‮evil",
    "%2e%2e%2f",
    "$(reboot)",
    "a b",
    "topic-0/../../y",
]


def files_around(node: NodeUnderAttack) -> set[str]:
    """The files beside, above and inside the data directory."""
    around = node.data.parent
    names = {str(path) for path in around.parent.iterdir()} | {str(path) for path in around.iterdir()}
    return names | {path.name for path in node.data.iterdir() if "ordinary-client" not in path.name}


@pytest.mark.parametrize("name", NAMES, ids=lambda name: repr(name[:20]))
def test_an_invalid_topic_name_is_rejected_by_every_api_and_creates_no_file(
    name: str, node: NodeUnderAttack, ordinary_client: OrdinaryClient
) -> None:
    before = files_around(node)
    connection = node.connection()
    for validate in (True, False):
        made = connection.call(
            CreateTopicsRequest(
                topics=[CreatableTopic(name=name, num_partitions=1, replication_factor=1)],
                timeout_ms=5000,
                validate_only=validate,
            ),
            7,
        )
        assert made.topics[0].error_code == ErrorCode.INVALID_TOPIC_EXCEPTION
    assert _auto_created(connection, name) == ErrorCode.INVALID_TOPIC_EXCEPTION
    for code in _error_codes(connection, name):
        assert code in (ErrorCode.INVALID_TOPIC_EXCEPTION, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    connection.close()
    assert files_around(node) == before
    assert not Path("/etc/passwd-0").exists()


def _auto_created(connection: Connection, name: str) -> ErrorCode:
    response = connection.call(
        MetadataRequest(topics=[MetadataRequestTopic(name=name)], allow_auto_topic_creation=True), 9
    )
    return ErrorCode(response.topics[0].error_code)


def _error_codes(connection: Connection, name: str) -> list[int]:
    """The error codes of every other API with a topic name."""
    wanted = FetchTopic(topic=name, partitions=[FetchPartition(partition_max_bytes=1)])
    offsets = ListOffsetsTopic(name=name, partitions=[ListOffsetsPartition(timestamp=-1)])
    change = IncrementalAlterConfigsRequestAlterableConfig(name="retention.ms", value="1")
    altered = IncrementalAlterConfigsRequestAlterConfigsResource(resource_type=2, resource_name=name, configs=[change])
    codes: list[int] = [
        connection.call(produce(name, batch()), 9).responses[0].partition_responses[0].error_code,
        connection.call(FetchRequest(topics=[wanted]), 12).responses[0].partitions[0].error_code,
        connection.call(ListOffsetsRequest(replica_id=-1, topics=[offsets]), 7).topics[0].partitions[0].error_code,
        connection.call(DeleteTopicsRequest(topics=[DeleteTopicState(name=name)], timeout_ms=5000), 6)
        .responses[0]
        .error_code,
        connection.call(CreatePartitionsRequest(topics=[CreatePartitionsTopic(name=name, count=2)], timeout_ms=5000), 3)
        .results[0]
        .error_code,
    ]
    if name:  # config APIs reject an empty name as INVALID_REQUEST
        resource = DescribeConfigsResource(resource_type=2, resource_name=name, configuration_keys=None)
        codes.append(connection.call(DescribeConfigsRequest(resources=[resource]), 4).results[0].error_code)
        codes.append(connection.call(IncrementalAlterConfigsRequest(resources=[altered]), 1).responses[0].error_code)
    return codes
