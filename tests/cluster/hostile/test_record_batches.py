"""Invalid record batches: each gets a specific error code, and the log stays readable."""

from __future__ import annotations

import random
import threading
from collections.abc import Iterator

import cramjam
import pytest

from cluster.connection import Connection
from cluster.hostile.node_under_attack import MIB, NodeUnderAttack, OrdinaryClient
from cluster.record_batches import EPOCH_MS, batch, produce, records
from strandline.model.errors import ErrorCode
from strandline.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from strandline.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from strandline.records.batch import HEADER_SIZE, BatchHeader, batches, crc_ok, decode_batch, encode_batch, write_crc
from strandline.records.compression import Codec

pytestmark = pytest.mark.xdist_group("hostile")

EXPECTED_ERRORS = frozenset(
    {
        ErrorCode.NONE,
        ErrorCode.CORRUPT_MESSAGE,
        ErrorCode.INVALID_RECORD,
        ErrorCode.INVALID_TIMESTAMP,
        ErrorCode.INVALID_PRODUCER_EPOCH,
        ErrorCode.MESSAGE_TOO_LARGE,
        ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
        ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
        ErrorCode.UNSUPPORTED_COMPRESSION_TYPE,
    }
)


def sent(connection: Connection, topic: str, data: bytes | bytearray | None) -> ErrorCode:
    response = connection.call(produce(topic, data), 9)
    return ErrorCode(response.responses[0].partition_responses[0].error_code)


def stored(node: NodeUnderAttack, topic: str) -> Iterator[tuple[bytes, int, BatchHeader]]:
    """Every batch of the log, as a consumer fetches it."""
    connection = node.connection()
    offset = 0
    while True:
        wanted = FetchPartition(fetch_offset=offset, partition_max_bytes=MIB)
        response = connection.call(FetchRequest(topics=[FetchTopic(topic=topic, partitions=[wanted])]), 12)
        partition = response.responses[0].partitions[0]
        assert partition.error_code == 0
        if offset >= partition.high_watermark:
            connection.close()
            return
        for position, header in batches(partition.records):
            yield partition.records, position, header
            offset = header.next_offset


def test_null_records_are_rejected(node: NodeUnderAttack, ordinary_client: OrdinaryClient) -> None:
    topic = node.script_run("null").topic("t")
    connection = node.connection()
    assert sent(connection, topic, None) == ErrorCode.INVALID_RECORD
    assert sent(connection, topic, batch()) == ErrorCode.NONE
    connection.close()


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP, Codec.LZ4], ids=lambda codec: codec.name)
def test_a_change_of_any_header_byte_gets_a_specific_error(
    codec: Codec, node: NodeUnderAttack, ordinary_client: OrdinaryClient
) -> None:
    topic = node.script_run("header").topic(codec.name)
    good = bytes(batch(3, codec=codec))
    connection = node.connection()
    for at in range(HEADER_SIZE):
        for value in (0, 1, 0x7F, 0x80, 0xFF, good[at] ^ 1):
            wrong = bytearray(good)
            wrong[at] = value
            assert sent(connection, topic, wrong) in EXPECTED_ERRORS
            if wrong[16] == 2 and 17 <= at < 21:
                continue
            write_crc(wrong)
            assert sent(connection, topic, wrong) in EXPECTED_ERRORS
    assert sent(connection, topic, good) == ErrorCode.NONE
    connection.close()
    expected = 0
    for data, position, header in stored(node, topic):
        assert crc_ok(data, position, header.size_bytes)
        assert header.base_offset == expected and header.record_count == header.last_offset_delta + 1
        expected = header.next_offset
    assert expected > 3


@pytest.mark.parametrize("compacted", [False, True], ids=["plain", "compacted"])
def test_randomly_changed_batches_are_rejected_or_stored_intact(
    compacted: bool, node: NodeUnderAttack, ordinary_client: OrdinaryClient
) -> None:
    topic = node.script_run("random").topic(f"{compacted}", cleanup_policy="compact" if compacted else "delete")
    source = random.Random(30)
    connection = node.connection()
    for number in range(1500):
        codec = source.choice(list(Codec))
        wrong = batch(source.randrange(1, 6), codec=codec, size=source.randrange(40))
        for _ in range(source.randrange(1, 4)):
            wrong[source.randrange(len(wrong))] = source.randrange(256)
        if source.random() < 0.3:
            del wrong[source.randrange(len(wrong)) :]
        if len(wrong) > HEADER_SIZE and number % 5:
            write_crc(wrong)
        assert sent(connection, topic, wrong) in EXPECTED_ERRORS
    connection.close()
    for data, position, header in stored(node, topic):
        assert crc_ok(data, position, header.size_bytes)
        if compacted:
            assert all(record.key is not None for record in decode_batch(data, position))


def bomb(size: int) -> bytearray:
    """A batch of three records whose compressed body decompresses to this many zeros."""
    packed = bytes(cramjam.zstd.compress(bytes(size), level=3))
    assert len(packed) < MIB
    data = batch(3, codec=Codec.ZSTD)[:HEADER_SIZE] + packed
    data[8:12] = (len(data) - 12).to_bytes(4, "big")
    write_crc(data)
    return data


def test_a_decompression_bomb_is_not_decompressed_beyond_the_limit(
    node: NodeUnderAttack, ordinary_client: OrdinaryClient
) -> None:
    """To a compacted topic, where keys are validated, and to a topic that is recompressed; eight at a time."""
    run = node.script_run("bomb")
    topics = [run.topic("compacted", cleanup_policy="compact"), run.topic("gzip", compression_type="gzip")]
    data = bomb(2000 * MIB)
    node.reset_peak_memory()
    before = node.memory_mib()

    def attack(topic: str) -> None:
        connection = Connection(node.address.host, node.address.port, 60)
        codes.extend(sent(connection, topic, data) for _ in range(3))
        connection.close()

    codes: list[ErrorCode] = []
    threads = [threading.Thread(target=attack, args=(topic,)) for topic in topics * 4]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    assert len(codes) == 24 and set(codes) <= {ErrorCode.INVALID_RECORD, ErrorCode.MESSAGE_TOO_LARGE}
    assert node.peak_memory_mib() < before + 600, node.peak_memory_mib()


def test_records_with_future_timestamps_are_decompressed_outside_the_event_loop(
    node: NodeUnderAttack, ordinary_client: OrdinaryClient
) -> None:
    topic = node.script_run("future").topic("t")
    future = bytearray(bomb(50 * MIB))
    future[27:35] = future[35:43] = (EPOCH_MS * 3).to_bytes(8, "big")
    write_crc(future)
    connection = node.connection()
    for _ in range(5):
        assert sent(connection, topic, future) in (ErrorCode.INVALID_RECORD, ErrorCode.MESSAGE_TOO_LARGE)
    connection.close()


def test_200_000_records_without_keys_are_rejected_without_delaying_other_clients(
    node: NodeUnderAttack, ordinary_client: OrdinaryClient
) -> None:
    """The response lists each of them, so it is large; it must not delay other clients."""
    topic = node.script_run("keyless").topic("t", cleanup_policy="compact")
    keyless = [record._replace(key=None) for record in records(200_000, size=0)]
    data = encode_batch(keyless, codec=Codec.ZSTD)
    assert len(data) < MIB
    node.reset_peak_memory()
    before = node.memory_mib()
    connection = node.connection(60)
    response = connection.call(produce(topic, data), 9).responses[0].partition_responses[0]
    connection.close()
    assert response.error_code == ErrorCode.INVALID_RECORD and response.record_errors
    assert node.peak_memory_mib() < before + 300


def test_transactional_records_of_an_unknown_transactional_id_are_rejected(node: NodeUnderAttack) -> None:
    """Their transaction could never end, and the last stable offset would stay below it. Before the first transactional
    producer there is no coordinator to ask, and the client may try again."""
    run = node.script_run("transactional")
    topic = run.topic("t")
    data = batch(1, producer_id=5, producer_epoch=0, base_sequence=0, transactional=True)
    request = ProduceRequest(
        transactional_id="tx",
        acks=-1,
        timeout_ms=1000,
        topic_data=[TopicProduceData(name=topic, partition_data=[PartitionProduceData(records=data)])],
    )
    response = run.call(request, 9).responses[0].partition_responses[0]
    assert response.error_code in (ErrorCode.INVALID_PRODUCER_ID_MAPPING, ErrorCode.NOT_ENOUGH_REPLICAS)
