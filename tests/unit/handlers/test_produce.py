"""Produce: the same validation sequence with and without a wait before the append."""

from __future__ import annotations

import pytest

from strandline.handlers.produce import handle_produce
from strandline.log.settings import LogSettings
from strandline.model.errors import ErrorCode
from strandline.protocol.apis import ApiKey
from strandline.protocol.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from strandline.records.batch import Codec, Record, encode_batch
from unit.handlers.metadata_broker import FakeCall
from unit.replication.three_brokers import TOPIC_ID, Cluster, on_virtual_time

COMPACTED = LogSettings(min_insync_replicas=1, cleanup_compact=True, cleanup_delete=False)


def request(cluster: Cluster, key: bytes | None, codec: Codec = Codec.NONE, acks: int = 1) -> ProduceRequest:
    records = [Record(index, cluster.world.clock.wall_ms(), key, b"value", ()) for index in range(3)]
    data = PartitionProduceData(index=0, records=memoryview(encode_batch(records, codec=codec)))
    return ProduceRequest(
        acks=acks, timeout_ms=1_000, topic_data=[TopicProduceData(topic_id=TOPIC_ID, partition_data=[data])]
    )


async def produce(cluster: Cluster, sent: ProduceRequest) -> PartitionProduceResponse:
    response = await handle_produce(cluster.brokers[1].context, FakeCall(ApiKey.PRODUCE, 13), sent)
    assert response is not None
    return response.responses[0].partition_responses[0]


def test_a_produce_to_an_open_log_ends_without_a_wait() -> None:
    async def scenario(cluster: Cluster) -> None:
        cluster.create(isr=[1])
        await cluster.brokers[1].partition.ready()
        handling = handle_produce(cluster.brokers[1].context, FakeCall(ApiKey.PRODUCE, 13), request(cluster, b"key"))
        with pytest.raises(StopIteration) as ended:
            handling.send(None)
        response: ProduceResponse = ended.value.value
        assert response.responses[0].partition_responses[0].base_offset == 0

    on_virtual_time(scenario)


def test_a_produce_waits_until_its_log_is_open() -> None:
    async def scenario(cluster: Cluster) -> None:
        cluster.create(isr=[1])
        assert cluster.brokers[1].partition.log is None
        response = await produce(cluster, request(cluster, b"key"))
        assert (response.error_code, response.base_offset) == (ErrorCode.NONE, 0)

    on_virtual_time(scenario)


@pytest.mark.parametrize("is_open", [True, False])
def test_a_batch_that_must_be_decoded_is_validated_in_a_thread_and_appended(is_open: bool) -> None:
    async def scenario(cluster: Cluster) -> None:
        cluster.create(isr=[1])
        if is_open:
            await cluster.brokers[1].partition.ready()
        response = await produce(cluster, request(cluster, b"key", Codec.GZIP))
        assert (response.error_code, response.base_offset) == (ErrorCode.NONE, 0)
        log = await cluster.brokers[1].partition.ready()
        assert log.log_end_offset == 3

    on_virtual_time(scenario, COMPACTED)


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP])
def test_a_rejected_batch_is_answered_with_its_record_errors_and_the_log_start_offset(codec: Codec) -> None:
    async def scenario(cluster: Cluster) -> None:
        cluster.create(isr=[1])
        log = await cluster.brokers[1].partition.ready()
        response = await produce(cluster, request(cluster, None, codec))
        assert (response.error_code, response.base_offset) == (ErrorCode.INVALID_RECORD, -1)
        assert response.log_start_offset == 0
        assert [error.batch_index for error in response.record_errors] == [0, 1, 2]
        assert log.log_end_offset == 0

    on_virtual_time(scenario, COMPACTED)


def test_a_leader_change_during_validation_fails_the_append() -> None:
    async def scenario(cluster: Cluster) -> None:
        cluster.create(isr=[1, 2])
        log = await cluster.brokers[1].partition.ready()
        handling = handle_produce(
            cluster.brokers[1].context, FakeCall(ApiKey.PRODUCE, 13), request(cluster, b"key", Codec.GZIP)
        )
        waiting = cluster.world.offload.run
        elected = False

        async def elect_first(work, *arguments):  # type: ignore[no-untyped-def]
            nonlocal elected
            result = await waiting(work, *arguments)
            if not elected:
                elected = True
                cluster.elect(2)
            return result

        cluster.world.offload.run = elect_first  # type: ignore[method-assign]
        response = await handling
        assert response is not None
        assert response.responses[0].partition_responses[0].error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert log.log_end_offset == 0

    on_virtual_time(scenario, COMPACTED)
