"""DescribeProducers is served by every replica."""

from __future__ import annotations

import asyncio

from strandline.handlers.produce import handle_produce
from strandline.handlers.producers import handle_describe_producers
from strandline.model.errors import ErrorCode
from strandline.protocol.apis import ApiKey
from strandline.protocol.messages.metadata_records import PartitionChangeRecord
from strandline.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from strandline.protocol.messages.producers import DescribeProducersRequest, PartitionResponse, TopicRequest
from strandline.records.batch import Record, encode_batch
from unit.handlers.metadata_broker import FakeCall
from unit.replication.three_brokers import TOPIC, TOPIC_ID, Cluster, on_virtual_time


async def described(cluster: Cluster, broker_id: int) -> PartitionResponse:
    request = DescribeProducersRequest(topics=[TopicRequest(name=TOPIC, partition_indexes=[0])])
    call = FakeCall(ApiKey.DESCRIBE_PRODUCERS, 0)
    response = await handle_describe_producers(cluster.brokers[broker_id].context, call, request)
    return response.topics[0].partitions[0]


def test_leader_and_followers_describe_the_same_producers_and_other_brokers_none() -> None:
    async def scenario(cluster: Cluster) -> None:
        cluster.create()
        wall_ms = cluster.world.clock.wall_ms()
        batch = encode_batch([Record(0, wall_ms, None, b"a", ())], producer_id=7, producer_epoch=2, base_sequence=0)
        data = TopicProduceData(
            topic_id=TOPIC_ID, partition_data=[PartitionProduceData(index=0, records=memoryview(batch))]
        )
        produce = ProduceRequest(acks=-1, timeout_ms=5_000, topic_data=[data])
        await handle_produce(cluster.brokers[1].context, FakeCall(ApiKey.PRODUCE, 13), produce)
        await asyncio.sleep(1)
        of_leader = await described(cluster, 1)
        assert [(each.producer_id, each.producer_epoch) for each in of_leader.active_producers] == [(7, 2)]
        assert await described(cluster, 2) == of_leader
        assert await described(cluster, 3) == of_leader
        cluster.write(PartitionChangeRecord(partition_id=0, topic_id=TOPIC_ID, replicas=[1, 2], isr=[1, 2]))
        cluster.brokers[3].table.drop(TOPIC_ID, 0)
        assert (await described(cluster, 3)).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER

    on_virtual_time(scenario)
