"""Responses that would name a leader to which the broker has just lost its connection wait for the controller."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable

from strandline.handlers.fetch import handle_fetch
from strandline.handlers.metadata import handle_metadata
from strandline.handlers.produce import handle_produce
from strandline.handlers.topics import handle_describe_topic_partitions
from strandline.protocol.apis import ApiKey
from strandline.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from strandline.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from strandline.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from strandline.protocol.messages.topics import DescribeTopicPartitionsRequest, TopicRequest
from unit.handlers.metadata_broker import FakeCall
from unit.replication.three_brokers import LISTENER, SETTINGS, TOPIC, TOPIC_ID, Cluster, on_virtual_time

MAX_WAIT_S = SETTINGS.lost_leader_max_wait_ms / 1000


async def metadata_leader(cluster: Cluster, broker_id: int = 2) -> int:
    request = MetadataRequest(topics=[MetadataRequestTopic(name=TOPIC)], allow_auto_topic_creation=False)
    call = FakeCall(ApiKey.METADATA, 12, LISTENER)
    response = await handle_metadata(cluster.brokers[broker_id].context, call, request)
    return response.topics[0].partitions[0].leader_id


async def described_leader(cluster: Cluster) -> int:
    request = DescribeTopicPartitionsRequest(topics=[TopicRequest(name=TOPIC)])
    call = FakeCall(ApiKey.DESCRIBE_TOPIC_PARTITIONS, 0, LISTENER)
    response = await handle_describe_topic_partitions(cluster.brokers[2].context, call, request)
    return response.topics[0].partitions[0].leader_id


async def leader_in_produce_response(cluster: Cluster) -> int:
    data = TopicProduceData(topic_id=TOPIC_ID, partition_data=[PartitionProduceData(index=0, records=memoryview(b""))])
    request = ProduceRequest(acks=1, timeout_ms=1_000, topic_data=[data])
    response = await handle_produce(cluster.brokers[2].context, FakeCall(ApiKey.PRODUCE, 13, LISTENER), request)
    assert response is not None
    assert [each.node_id for each in response.node_endpoints] == [3]
    return response.responses[0].partition_responses[0].current_leader.leader_id


async def leader_in_fetch_response(cluster: Cluster) -> int:
    topic = FetchTopic(topic_id=TOPIC_ID, partitions=[FetchPartition(partition=0, fetch_offset=0)])
    request = FetchRequest(max_wait_ms=0, min_bytes=1, max_bytes=1 << 20, topics=[topic])
    response = await handle_fetch(cluster.brokers[2].context, FakeCall(ApiKey.FETCH, 17, LISTENER), request)
    assert [each.node_id for each in response.node_endpoints] == [3]
    return response.responses[0].partitions[0].current_leader.leader_id


async def seconds(awaited: Awaitable[int]) -> tuple[int, float]:
    loop = asyncio.get_running_loop()
    began = loop.time()
    result = await awaited
    return result, loop.time() - began


async def fail_leader(cluster: Cluster, *, refuses: bool = True) -> None:
    """The followers lose their connections to broker 1, and have noticed it when this returns."""
    cluster.create()
    assert await cluster.brokers[1].produce("a") == 0
    cluster.unreachable.add(1)
    if refuses:
        cluster.refusing.add(1)
    while 1 not in cluster.brokers[2].context.lost_leaders:
        await asyncio.sleep(0.001)


def test_a_client_that_notices_the_loss_before_the_broker_gets_the_next_leader_too() -> None:
    async def scenario(cluster: Cluster) -> None:
        cluster.create()
        assert await cluster.brokers[1].produce("a") == 0
        cluster.unreachable.add(1)
        cluster.refusing.add(1)
        lost = cluster.brokers[2].context.lost_leaders
        asked = asyncio.ensure_future(metadata_leader(cluster))
        await asyncio.sleep(0)
        assert 1 not in lost
        cluster.brokers[2].replication._on_connection_lost(1)
        elect_after(cluster, 0.2)
        assert await asked == 3

    on_virtual_time(scenario)


def test_a_response_that_waited_for_the_election_lists_the_failed_leader_and_later_ones_do_not() -> None:
    async def listed(cluster: Cluster) -> list[int]:
        request = MetadataRequest(topics=[MetadataRequestTopic(name=TOPIC)], allow_auto_topic_creation=False)
        call = FakeCall(ApiKey.METADATA, 12, LISTENER)
        response = await handle_metadata(cluster.brokers[2].context, call, request)
        assert response.topics[0].partitions[0].leader_id == 3
        return [each.node_id for each in response.brokers]

    async def scenario(cluster: Cluster) -> None:
        await fail_leader(cluster)
        elect_after(cluster, 0.2)
        assert await listed(cluster) == [1, 2, 3]
        assert await listed(cluster) == [2, 3]

    on_virtual_time(scenario)


def elect_after(cluster: Cluster, delay_s: float) -> None:
    def elect() -> None:
        cluster.fence(1)
        cluster.elect(3, [2, 3])

    asyncio.get_running_loop().call_later(delay_s, elect)


def test_responses_wait_until_the_controller_has_elected_another_leader() -> None:
    async def scenario(cluster: Cluster) -> None:
        await fail_leader(cluster)
        elect_after(cluster, 0.2)
        answers = await asyncio.gather(
            *(
                seconds(request(cluster))
                for request in (metadata_leader, described_leader, leader_in_produce_response, leader_in_fetch_response)
            )
        )
        assert [leader for leader, _ in answers] == [3, 3, 3, 3]
        assert all(0.19 < took < 0.21 for _, took in answers), answers

    on_virtual_time(scenario)


def test_responses_wait_for_a_limited_time_only_and_later_ones_not_at_all() -> None:
    async def scenario(cluster: Cluster) -> None:
        await fail_leader(cluster)
        leader, took = await seconds(metadata_leader(cluster))
        assert leader == 1
        assert MAX_WAIT_S - 0.05 < took <= MAX_WAIT_S
        leader, took = await seconds(metadata_leader(cluster))
        assert leader == 1 and took < 0.011

    on_virtual_time(scenario)


def test_a_leader_that_accepts_new_connections_is_named_after_two_probes() -> None:
    async def scenario(cluster: Cluster) -> None:
        await fail_leader(cluster, refuses=False)
        leader, took = await seconds(metadata_leader(cluster))
        assert leader == 1
        assert took < 0.08

    on_virtual_time(scenario)


def test_a_response_that_names_no_lost_leader_does_not_wait() -> None:
    async def scenario(cluster: Cluster) -> None:
        await fail_leader(cluster)
        request = MetadataRequest(topics=[], allow_auto_topic_creation=False)
        call = FakeCall(ApiKey.METADATA, 12, LISTENER)
        await asyncio.wait_for(handle_metadata(cluster.brokers[2].context, call, request), 0.001)
        assert not call.parked
        assert await seconds(metadata_leader(cluster, broker_id=1)) == (1, 0)  # the leader has lost no connection

    on_virtual_time(scenario)
