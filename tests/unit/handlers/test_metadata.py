"""Metadata as clients of a cluster see it: who is alive, and on which listener."""

from __future__ import annotations

import pytest

from strandline.handlers.metadata import handle_metadata
from strandline.handlers.topics import handle_describe_topic_partitions
from strandline.model.errors import ErrorCode
from strandline.protocol.apis import ApiKey
from strandline.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from strandline.protocol.messages.topics import DescribeTopicPartitionsRequest, TopicRequest
from unit.handlers.metadata_broker import BROKERS, CLIENTS, FakeCall, MetadataBroker, beside, run


def asked(scene: MetadataBroker, *names: str, version: int = 12, listener: str = CLIENTS) -> MetadataResponse:
    request = MetadataRequest(topics=[MetadataRequestTopic(name=name) for name in names] if names else None)
    return run(handle_metadata(scene.broker, FakeCall(ApiKey.METADATA, version, listener), request))


def three_brokers() -> MetadataBroker:
    """1 is alive, 2 is fenced, 3 cannot be reached by clients."""
    scene = MetadataBroker()
    scene.add_broker(1)
    scene.add_broker(2, fenced=True)
    scene.add_broker(3, listeners=[BROKERS])
    scene.add_topic("t", [1, 2, 3], [2, 1], [3, 1], [9, 1])
    return scene


def test_brokers_are_told_with_their_address_on_the_listener_that_was_used() -> None:
    scene = three_brokers()
    assert [(each.node_id, each.host) for each in asked(scene).brokers] == [(1, "CLIENTS-1")]
    among_brokers = asked(scene, listener=BROKERS).brokers
    assert [(each.node_id, each.host) for each in among_brokers] == [(1, "BROKERS-1"), (3, "BROKERS-3")]


@pytest.mark.parametrize(
    ("version", "unreachable"), [(5, ErrorCode.LEADER_NOT_AVAILABLE), (6, ErrorCode.LISTENER_NOT_FOUND)]
)
def test_a_leader_must_be_alive_and_in_reach(version: int, unreachable: ErrorCode) -> None:
    partitions = asked(three_brokers(), "t", version=version).topics[0].partitions
    assert [(each.error_code, each.leader_id) for each in partitions] == [
        (ErrorCode.NONE, 1),
        (ErrorCode.LEADER_NOT_AVAILABLE, -1),
        (unreachable, -1),
        (ErrorCode.LEADER_NOT_AVAILABLE, -1),
    ]
    assert [each.offline_replicas for each in partitions] == [[2], [2], [], [9]]
    assert {each.leader_epoch for each in partitions} == {3}


def test_topics_are_described_partition_by_partition_with_the_same_eyes() -> None:
    request = DescribeTopicPartitionsRequest(topics=[TopicRequest(name="t")])
    scene = three_brokers()
    scene.broker.settings._values["max.request.partition.size.limit"] = 3  # type: ignore[attr-defined]
    call = FakeCall(ApiKey.DESCRIBE_TOPIC_PARTITIONS, 0)
    described = run(handle_describe_topic_partitions(scene.broker, call, request))
    assert [(each.error_code, each.leader_id) for each in described.topics[0].partitions] == [
        (ErrorCode.NONE, 1),
        (ErrorCode.LEADER_NOT_AVAILABLE, -1),
        (ErrorCode.LISTENER_NOT_FOUND, -1),
    ]
    assert described.next_cursor is not None
    assert (described.next_cursor.topic_name, described.next_cursor.partition_index) == ("t", 3)


def test_a_broker_that_is_not_let_in_yet_names_another_as_the_one_to_send_admin_requests_to() -> None:
    scene = MetadataBroker(node_id=2)
    assert asked(scene).controller_id == -1
    scene.add_broker(1)
    scene.add_broker(2, fenced=True)
    assert asked(scene).controller_id == 1
    scene.add_broker(2)
    assert asked(scene).controller_id == 2


def test_twenty_thousand_partitions_are_told_in_turns_and_encoded_elsewhere() -> None:
    scene = MetadataBroker()
    scene.add_broker(1)
    scene.add_topic("t", *[[1]] * 20_000)
    call = FakeCall(ApiKey.METADATA, 12)
    response, turns = run(beside(handle_metadata(scene.broker, call, MetadataRequest(topics=None))))
    assert len(response.topics[0].partitions) == 20_000
    assert turns >= 50 and call.offload_encoding


def test_a_few_partitions_are_told_at_once() -> None:
    scene = MetadataBroker()
    scene.add_broker(1)
    scene.add_topic("t", *[[1]] * 50)
    call = FakeCall(ApiKey.METADATA, 12)
    response, turns = run(beside(handle_metadata(scene.broker, call, MetadataRequest(topics=None))))
    assert len(response.topics[0].partitions) == 50
    assert turns <= 1 and not call.offload_encoding
