"""Metadata: brokers and partition leaders that a client can reach on its listener."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from strandline.handlers.metadata import handle_metadata
from strandline.handlers.topics import handle_describe_topic_partitions
from strandline.model.errors import ErrorCode
from strandline.protocol.apis import ApiKey
from strandline.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from strandline.protocol.messages.topics import (
    CreateTopicsRequest,
    CreateTopicsResponse,
    DescribeTopicPartitionsRequest,
    TopicRequest,
)
from unit.handlers.metadata_broker import BROKERS, CLIENTS, FakeCall, MetadataBroker, count_yields, run


def describe(metadata: MetadataBroker, *names: str, version: int = 12, listener: str = CLIENTS) -> MetadataResponse:
    request = MetadataRequest(topics=[MetadataRequestTopic(name=name) for name in names] if names else None)
    return run(handle_metadata(metadata.broker, FakeCall(ApiKey.METADATA, version, listener), request))


def three_brokers() -> MetadataBroker:
    """Broker 1 is unfenced, 2 is fenced, 3 has no address for clients."""
    metadata = MetadataBroker()
    metadata.add_broker(1)
    metadata.add_broker(2, fenced=True)
    metadata.add_broker(3, listeners=[BROKERS])
    metadata.add_topic("t", [1, 2, 3], [2, 1], [3, 1], [9, 1])
    return metadata


def test_brokers_have_their_address_on_the_listener_of_the_request() -> None:
    metadata = three_brokers()
    assert [(each.node_id, each.host) for each in describe(metadata).brokers] == [(1, "CLIENTS-1")]
    among_brokers = describe(metadata, listener=BROKERS).brokers
    assert [(each.node_id, each.host) for each in among_brokers] == [(1, "BROKERS-1"), (3, "BROKERS-3")]


@pytest.mark.parametrize(
    ("version", "unreachable"), [(5, ErrorCode.LEADER_NOT_AVAILABLE), (6, ErrorCode.LISTENER_NOT_FOUND)]
)
def test_a_leader_must_be_unfenced_and_have_an_address_on_the_listener_of_the_request(
    version: int, unreachable: ErrorCode
) -> None:
    partitions = describe(three_brokers(), "t", version=version).topics[0].partitions
    assert [(each.error_code, each.leader_id) for each in partitions] == [
        (ErrorCode.NONE, 1),
        (ErrorCode.LEADER_NOT_AVAILABLE, -1),
        (unreachable, -1),
        (ErrorCode.LEADER_NOT_AVAILABLE, -1),
    ]
    assert [each.offline_replicas for each in partitions] == [[2], [2], [], [9]]
    assert {each.leader_epoch for each in partitions} == {3}


def test_describe_topic_partitions_returns_the_same_leaders_and_errors() -> None:
    request = DescribeTopicPartitionsRequest(topics=[TopicRequest(name="t")])
    metadata = three_brokers()
    metadata.broker.config._values["max.request.partition.size.limit"] = 3  # type: ignore[attr-defined]
    call = FakeCall(ApiKey.DESCRIBE_TOPIC_PARTITIONS, 0)
    described = run(handle_describe_topic_partitions(metadata.broker, call, request))
    assert [(each.error_code, each.leader_id) for each in described.topics[0].partitions] == [
        (ErrorCode.NONE, 1),
        (ErrorCode.LEADER_NOT_AVAILABLE, -1),
        (ErrorCode.LISTENER_NOT_FOUND, -1),
    ]
    assert described.next_cursor is not None
    assert (described.next_cursor.topic_name, described.next_cursor.partition_index) == ("t", 3)


def test_a_fenced_broker_names_another_broker_as_the_controller() -> None:
    metadata = MetadataBroker(node_id=2)
    assert describe(metadata).controller_id == -1
    metadata.add_broker(1)
    metadata.add_broker(2, fenced=True)
    assert describe(metadata).controller_id == 1
    metadata.add_broker(2)
    assert describe(metadata).controller_id == 2


def test_describing_twenty_thousand_partitions_yields_to_the_event_loop_and_is_encoded_in_a_thread() -> None:
    metadata = MetadataBroker()
    metadata.add_broker(1)
    metadata.add_topic("t", *[[1]] * 20_000)
    call = FakeCall(ApiKey.METADATA, 12)
    response, yields = run(count_yields(handle_metadata(metadata.broker, call, MetadataRequest(topics=None))))
    assert len(response.topics[0].partitions) == 20_000
    assert yields >= 50 and call.offload_encoding


def test_describing_a_few_partitions_does_not_yield() -> None:
    metadata = MetadataBroker()
    metadata.add_broker(1)
    metadata.add_topic("t", *[[1]] * 50)
    call = FakeCall(ApiKey.METADATA, 12)
    response, yields = run(count_yields(handle_metadata(metadata.broker, call, MetadataRequest(topics=None))))
    assert len(response.topics[0].partitions) == 50
    assert yields <= 1 and not call.offload_encoding


class CreatingController:
    """Creates the topics of a request in the metadata of a broker, after some time."""

    def __init__(self, metadata: MetadataBroker, delay_s: float = 0) -> None:
        self.metadata = metadata
        self.delay_s = delay_s

    async def forward(self, call: Any, request: CreateTopicsRequest, response: Any, *, version: int) -> Any:
        await asyncio.sleep(self.delay_s)
        for topic in request.topics:
            self.metadata.add_topic(topic.name, [1])
        return CreateTopicsResponse()


def auto_creating(delay_s: float = 0) -> MetadataBroker:
    metadata = MetadataBroker(auto_create_topics_enable=True, request_timeout_ms=30_000)
    metadata.add_broker(1)
    metadata.broker.controller = CreatingController(metadata, delay_s)
    return metadata


def test_a_topic_that_a_request_creates_is_unknown_in_its_response_and_described_in_the_next() -> None:
    metadata = auto_creating()
    (first,) = describe(metadata, "fresh").topics
    assert (first.error_code, first.partitions) == (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, [])
    (second,) = describe(metadata, "fresh").topics
    assert (second.error_code, len(second.partitions)) == (ErrorCode.NONE, 1)


def test_a_controller_that_does_not_respond_delays_the_response_for_a_second() -> None:
    async def took_s() -> float:
        loop = asyncio.get_running_loop()
        began = loop.time()
        request = MetadataRequest(topics=[MetadataRequestTopic(name="fresh")])
        response = await handle_metadata(auto_creating(60).broker, FakeCall(ApiKey.METADATA, 12), request)
        assert response.topics[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        return loop.time() - began

    assert run(took_s()) == 1.0
