"""The blocking client with a real node: what a script or a Spark task does."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from strandline.client.admin.committed_offsets import CommittedOffset
from strandline.client.admin.raw_fetch import RawBatches, RawFetchSettings
from strandline.client.blocking import BlockingClient, Outgoing
from strandline.client.settings import FetcherSettings, GroupSettings
from strandline.launch.cluster import Cluster
from strandline.model.errors import ErrorCode, KafkaError
from strandline.model.ids import TopicPartition
from strandline.protocol.messages.list_offsets import EARLIEST, LATEST
from strandline.records.batch import batches, decode_batch

SETTINGS = {
    "offsets.topic.num.partitions": "3",
    "transaction.state.log.num.partitions": "3",
    "group.initial.rebalance.delay.ms": "0",
}


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BlockingClient]:
    with (
        Cluster.started(tmp_path_factory.mktemp("node"), settings=SETTINGS) as cluster,
        BlockingClient(cluster.bootstrap) as client,
    ):
        yield client


def created(client: BlockingClient, topic: str) -> TopicPartition:
    client.run(lambda each: each.topics.create(topic, partitions=1))
    return TopicPartition(topic, 0)


def raw(client: BlockingClient, partition: TopicPartition, offset: int, *, read_committed: bool) -> RawBatches:
    found = client.fetch_raw({partition: offset}, RawFetchSettings(max_wait_ms=0, read_committed=read_committed))
    assert isinstance(found[partition], RawBatches)
    return found[partition]


def test_raw_batches_hold_the_bytes_that_were_produced(client: BlockingClient) -> None:
    partition = created(client, "raw")
    with client.producer() as producer:
        sent = producer.send("raw", [Outgoing(b"%d" % number, key=b"k") for number in range(100)])
        assert [each.offset for each in sent.result()] == list(range(100))
    assert getattr(client.list_offsets({partition: LATEST})[partition], "offset", None) == 100
    assert getattr(client.list_offsets({partition: EARLIEST})[partition], "offset", None) == 0
    found = raw(client, partition, 60, read_committed=False)
    data = found.batches
    values = [record.value for position, _ in batches(data) for record in decode_batch(data, position)]
    assert values[-40:] == [b"%d" % number for number in range(60, 100)]
    decoded = found.decoded(read_committed=False)
    assert [record.offset for record in decoded.records()] == list(range(60, 100))
    assert (decoded.next_offset, found.high_watermark) == (100, 100)


def test_an_offset_that_does_not_exist_is_an_error_of_its_partition(client: BlockingClient) -> None:
    partition = created(client, "short")
    found = client.fetch_raw({partition: 7})[partition]
    assert isinstance(found, KafkaError) and found.code is ErrorCode.OFFSET_OUT_OF_RANGE


def test_records_and_offsets_of_a_transaction_are_committed_together(client: BlockingClient) -> None:
    partition = created(client, "copies")
    with client.transactional_producer("copier") as producer:
        with producer.transaction():
            producer.send("copies", [Outgoing(b"1"), Outgoing(b"2")])
            producer.send_offsets({partition: CommittedOffset(2)}, "copying")
        with pytest.raises(ZeroDivisionError), producer.transaction():
            producer.send("copies", [Outgoing(b"3")]).result()
            producer.send_offsets({partition: CommittedOffset(3)}, "copying")
            raise ZeroDivisionError
        producer.begin()
        producer.send("copies", [Outgoing(b"4")])
        producer.commit()
    seen: list[bytes | None] = []
    offset = 0
    while b"4" not in seen:
        decoded = raw(client, partition, offset, read_committed=True).decoded(read_committed=True)
        seen += [record.value for record in decoded.records()]
        offset = decoded.next_offset
    assert seen == [b"1", b"2", b"4"]
    assert client.committed("copying", [partition]) == {partition: CommittedOffset(2)}


def test_offsets_are_committed_for_a_group_without_members(client: BlockingClient) -> None:
    partition = created(client, "positions")
    client.commit("spark", {partition: CommittedOffset(5, 0, "checkpoint 7")})
    assert client.committed("spark") == {partition: CommittedOffset(5, 0, "checkpoint 7")}
    with pytest.raises(KafkaError, match="UNKNOWN_TOPIC_OR_PARTITION"):
        client.commit("spark", {TopicPartition("missing", 0): CommittedOffset(5)})


def test_a_group_member_in_a_script(client: BlockingClient) -> None:
    partition = created(client, "events")
    with client.producer() as producer:
        producer.send("events", [Outgoing(b"%d" % number) for number in range(10)])
    settings = GroupSettings(offset_reset="earliest", auto_commit=False)
    values: list[bytes | None] = []
    with client.consumer("script", ["events"], settings, FetcherSettings(read_committed=True)) as consumer:
        while len(values) < 10:
            values += [record.value for fetched in consumer.poll(500) for record in fetched.records()]
        assert consumer.assignment == (partition,) and consumer.position(partition) == 10
        consumer.commit({partition: CommittedOffset(4)})
        assert consumer.committed([partition]) == {partition: CommittedOffset(4)}
    assert values == [b"%d" % number for number in range(10)]


def test_several_threads_share_a_client(client: BlockingClient) -> None:
    partition = created(client, "shared")
    with client.producer() as producer:
        threads = [
            threading.Thread(target=lambda: producer.send("shared", [Outgoing(b"v")] * 50).result()) for _ in range(4)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert getattr(client.list_offsets({partition: LATEST})[partition], "offset", None) == 200


def test_without_a_broker_the_call_fails_and_the_thread_ends() -> None:
    from strandline.client.settings import ClientSettings

    before = threading.active_count()
    with (
        BlockingClient("127.0.0.1:1", ClientSettings(bootstrap_timeout_ms=0)) as lonely,
        pytest.raises(KafkaError),
    ):
        lonely.list_offsets({TopicPartition("t", 0): LATEST})
        error = lonely.run(lambda each: each.cluster.describe())
        raise AssertionError(f"nothing listens there: {error}")
    assert threading.active_count() <= before
