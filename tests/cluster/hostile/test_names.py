"""Names that would leave their place: no file is made outside the data directory, whoever is asked for it."""

from __future__ import annotations

from pathlib import Path

import pytest

from cluster.handlers.talk import Wire, batch, produce
from cluster.hostile.siege import Besieged, Bystander
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

pytestmark = pytest.mark.xdist_group("besieged")

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


def surroundings(besieged: Besieged) -> set[str]:
    """What lies beside and above the data, and inside it, by name."""
    around = besieged.data.parent
    names = {str(path) for path in around.parent.iterdir()} | {str(path) for path in around.iterdir()}
    return names | {path.name for path in besieged.data.iterdir() if "bystander" not in path.name}


@pytest.mark.parametrize("name", NAMES, ids=lambda name: repr(name[:20]))
def test_a_topic_cannot_have_a_name_that_leaves_its_place(name: str, besieged: Besieged, bystander: Bystander) -> None:
    before = surroundings(besieged)
    wire = besieged.wire()
    for validate in (True, False):
        made = wire.ask(
            CreateTopicsRequest(
                topics=[CreatableTopic(name=name, num_partitions=1, replication_factor=1)],
                timeout_ms=5000,
                validate_only=validate,
            ),
            7,
        )
        assert made.topics[0].error_code == ErrorCode.INVALID_TOPIC_EXCEPTION
    assert _on_demand(wire, name) == ErrorCode.INVALID_TOPIC_EXCEPTION
    for code in _others(wire, name):
        assert code in (ErrorCode.INVALID_TOPIC_EXCEPTION, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    wire.close()
    assert surroundings(besieged) == before
    assert not Path("/etc/passwd-0").exists()


def _on_demand(wire: Wire, name: str) -> ErrorCode:
    answer = wire.ask(MetadataRequest(topics=[MetadataRequestTopic(name=name)], allow_auto_topic_creation=True), 9)
    return ErrorCode(answer.topics[0].error_code)


def _others(wire: Wire, name: str) -> list[int]:
    """The error of every other API that takes a name."""
    wanted = FetchTopic(topic=name, partitions=[FetchPartition(partition_max_bytes=1)])
    offsets = ListOffsetsTopic(name=name, partitions=[ListOffsetsPartition(timestamp=-1)])
    change = IncrementalAlterConfigsRequestAlterableConfig(name="retention.ms", value="1")
    altered = IncrementalAlterConfigsRequestAlterConfigsResource(resource_type=2, resource_name=name, configs=[change])
    codes: list[int] = [
        wire.ask(produce(name, batch()), 9).responses[0].partition_responses[0].error_code,
        wire.ask(FetchRequest(topics=[wanted]), 12).responses[0].partitions[0].error_code,
        wire.ask(ListOffsetsRequest(replica_id=-1, topics=[offsets]), 7).topics[0].partitions[0].error_code,
        wire.ask(DeleteTopicsRequest(topics=[DeleteTopicState(name=name)], timeout_ms=5000), 6).responses[0].error_code,
        wire.ask(CreatePartitionsRequest(topics=[CreatePartitionsTopic(name=name, count=2)], timeout_ms=5000), 3)
        .results[0]
        .error_code,
    ]
    if name:  # no name at all is an invalid request to those who also know resources without one
        resource = DescribeConfigsResource(resource_type=2, resource_name=name, configuration_keys=None)
        codes.append(wire.ask(DescribeConfigsRequest(resources=[resource]), 4).results[0].error_code)
        codes.append(wire.ask(IncrementalAlterConfigsRequest(resources=[altered]), 1).responses[0].error_code)
    return codes
