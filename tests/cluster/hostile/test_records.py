"""Record batches that lie: a typed error for each, and what is in the log stays readable."""

from __future__ import annotations

import random
import threading
from collections.abc import Iterator

import cramjam
import pytest

from cluster.handlers.talk import EPOCH_MS, Wire, batch, produce
from cluster.hostile.siege import MIB, Besieged, Bystander
from strandline.model.errors import ErrorCode
from strandline.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from strandline.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from strandline.records.batch import HEADER_SIZE, BatchHeader, batches, crc_ok, decode_batch, encode_batch, write_crc
from strandline.records.compression import Codec

pytestmark = pytest.mark.xdist_group("besieged")

TYPED = frozenset(
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


def sent(wire: Wire, topic: str, data: bytes | bytearray | None) -> ErrorCode:
    answer = wire.ask(produce(topic, data), 9)
    return ErrorCode(answer.responses[0].partition_responses[0].error_code)


def stored(besieged: Besieged, topic: str) -> Iterator[tuple[bytes, int, BatchHeader]]:
    """Every batch of the log, as a consumer gets it."""
    wire = besieged.wire()
    offset = 0
    while True:
        wanted = FetchPartition(fetch_offset=offset, partition_max_bytes=MIB)
        answer = wire.ask(FetchRequest(topics=[FetchTopic(topic=topic, partitions=[wanted])]), 12)
        partition = answer.responses[0].partitions[0]
        assert partition.error_code == 0
        if offset >= partition.high_watermark:
            wire.close()
            return
        for position, header in batches(partition.records):
            yield partition.records, position, header
            offset = header.next_offset


def test_null_where_records_should_be_is_refused(besieged: Besieged, bystander: Bystander) -> None:
    topic = besieged.talk("null").topic("t")
    wire = besieged.wire()
    assert sent(wire, topic, None) == ErrorCode.INVALID_RECORD
    assert sent(wire, topic, batch()) == ErrorCode.NONE
    wire.close()


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP, Codec.LZ4], ids=lambda codec: codec.name)
def test_every_byte_of_a_header_may_be_wrong(codec: Codec, besieged: Besieged, bystander: Bystander) -> None:
    topic = besieged.talk("header").topic(codec.name)
    good = bytes(batch(3, codec=codec))
    wire = besieged.wire()
    for at in range(HEADER_SIZE):
        for value in (0, 1, 0x7F, 0x80, 0xFF, good[at] ^ 1):
            wrong = bytearray(good)
            wrong[at] = value
            assert sent(wire, topic, wrong) in TYPED
            if wrong[16] == 2 and 17 <= at < 21:
                continue
            write_crc(wrong)
            assert sent(wire, topic, wrong) in TYPED
    assert sent(wire, topic, good) == ErrorCode.NONE
    wire.close()
    expected = 0
    for data, position, header in stored(besieged, topic):
        assert crc_ok(data, position, header.size_bytes)
        assert header.base_offset == expected and header.record_count == header.last_offset_delta + 1
        expected = header.next_offset
    assert expected > 3


@pytest.mark.parametrize("compacted", [False, True], ids=["plain", "compacted"])
def test_batches_changed_at_random_are_refused_or_kept_whole(
    compacted: bool, besieged: Besieged, bystander: Bystander
) -> None:
    topic = besieged.talk("random").topic(f"{compacted}", cleanup_policy="compact" if compacted else "delete")
    source = random.Random(30)
    wire = besieged.wire()
    for number in range(1500):
        codec = source.choice(list(Codec))
        wrong = batch(source.randrange(1, 6), codec=codec, size=source.randrange(40))
        for _ in range(source.randrange(1, 4)):
            wrong[source.randrange(len(wrong))] = source.randrange(256)
        if source.random() < 0.3:
            del wrong[source.randrange(len(wrong)) :]
        if len(wrong) > HEADER_SIZE and number % 5:
            write_crc(wrong)
        assert sent(wire, topic, wrong) in TYPED
    wire.close()
    for data, position, header in stored(besieged, topic):
        assert crc_ok(data, position, header.size_bytes)
        if compacted:
            assert all(record.key is not None for record in decode_batch(data, position))


def bomb(size: int) -> bytearray:
    """A batch of three records whose compressed records unfold to so many zeros."""
    packed = bytes(cramjam.zstd.compress(bytes(size), level=3))
    assert len(packed) < MIB
    data = batch(3, codec=Codec.ZSTD)[:HEADER_SIZE] + packed
    data[8:12] = (len(data) - 12).to_bytes(4, "big")
    write_crc(data)
    return data


def test_a_bomb_is_not_unfolded_beyond_its_ceiling(besieged: Besieged, bystander: Bystander) -> None:
    """To a compacted topic, where keys are looked at; and where the broker compresses anew; several at a time."""
    talk = besieged.talk("bomb")
    topics = [talk.topic("compacted", cleanup_policy="compact"), talk.topic("gzip", compression_type="gzip")]
    data = bomb(2000 * MIB)
    besieged.forget_peak()
    before = besieged.rss_mib()

    def attack(topic: str) -> None:
        wire = Wire(besieged.target.host, besieged.target.port, 60)
        codes.extend(sent(wire, topic, data) for _ in range(3))
        wire.close()

    codes: list[ErrorCode] = []
    threads = [threading.Thread(target=attack, args=(topic,)) for topic in topics * 4]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    assert len(codes) == 24 and set(codes) <= {ErrorCode.INVALID_RECORD, ErrorCode.MESSAGE_TOO_LARGE}
    assert besieged.peak_mib() < before + 600, besieged.peak_mib()


def test_records_from_the_future_are_opened_away_from_the_event_loop(besieged: Besieged, bystander: Bystander) -> None:
    topic = besieged.talk("future").topic("t")
    future = bytearray(bomb(50 * MIB))
    future[27:35] = future[35:43] = (EPOCH_MS * 3).to_bytes(8, "big")
    write_crc(future)
    wire = besieged.wire()
    for _ in range(5):
        assert sent(wire, topic, future) in (ErrorCode.INVALID_RECORD, ErrorCode.MESSAGE_TOO_LARGE)
    wire.close()


def test_keyless_records_by_the_hundred_thousand_are_refused_in_good_time(
    besieged: Besieged, bystander: Bystander
) -> None:
    """Each is named in the answer: the answer is large, and must not hold others up."""
    topic = besieged.talk("keyless").topic("t", cleanup_policy="compact")
    keyless = [record._replace(key=None) for record in _many_records(200_000)]
    data = encode_batch(keyless, codec=Codec.ZSTD)
    assert len(data) < MIB
    besieged.forget_peak()
    before = besieged.rss_mib()
    wire = besieged.wire(60)
    answer = wire.ask(produce(topic, data), 9).responses[0].partition_responses[0]
    wire.close()
    assert answer.error_code == ErrorCode.INVALID_RECORD and answer.record_errors
    assert besieged.peak_mib() < before + 300


def _many_records(count: int):  # type: ignore[no-untyped-def]
    from cluster.handlers.talk import records

    return records(count, size=0)


def test_transactional_records_are_not_let_in_before_there_are_transactions(besieged: Besieged) -> None:
    """Nobody could end the transaction that they begin, and committed readers would wait for ever."""
    talk = besieged.talk("transactional")
    topic = talk.topic("t")
    data = batch(1, producer_id=5, producer_epoch=0, base_sequence=0, transactional=True)
    request = ProduceRequest(
        transactional_id="tx",
        acks=-1,
        timeout_ms=1000,
        topic_data=[TopicProduceData(name=topic, partition_data=[PartitionProduceData(records=data)])],
    )
    answer = talk.quietly(request, 9).responses[0].partition_responses[0]
    assert answer.error_code == ErrorCode.INVALID_TXN_STATE
