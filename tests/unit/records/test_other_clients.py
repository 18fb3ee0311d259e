"""Our batches decoded by other clients, and theirs by us."""

from __future__ import annotations

from typing import Any

import pytest
from aiokafka.record.default_records import DefaultRecordBatchBuilder as AiokafkaBuilder
from aiokafka.record.memory_records import MemoryRecords as AiokafkaRecords
from kafka.record.default_records import DefaultRecordBatchBuilder as KafkaPythonBuilder
from kafka.record.memory_records import MemoryRecords as KafkaPythonRecords

from strandline.records.batch import Codec, Record, crc_ok, decode_batch, encode_batch, read_header

NOW = 1_700_000_000_000
VALUES = [
    Record(
        index, NOW + 3 * index, None if index % 7 == 0 else b"key-%d" % index, b"v" * index, (("h", b"x"), ("n", None))
    )
    for index in range(150)
] + [Record(150, NOW - 5, b"tombstone", None)]

BUILDERS: dict[str, Any] = {"aiokafka": AiokafkaBuilder, "kafka-python": KafkaPythonBuilder}
READERS: dict[str, Any] = {"aiokafka": AiokafkaRecords, "kafka-python": KafkaPythonRecords}
# For codecs other than gzip, kafka-python needs packages that are not installed.
CASES = [("aiokafka", codec) for codec in Codec] + [("kafka-python", Codec.NONE), ("kafka-python", Codec.GZIP)]


@pytest.mark.parametrize(("client", "codec"), CASES)
def test_other_clients_read_our_batches(client: str, codec: Codec) -> None:
    batch = encode_batch(
        VALUES, codec=codec, producer_id=9, producer_epoch=2, base_sequence=40, transactional=True, leader_epoch=3
    )
    theirs = READERS[client](bytes(batch)).next_batch()
    assert theirs.validate_crc()
    read = [
        Record(record.offset, record.timestamp, _bytes(record.key), _bytes(record.value), tuple(record.headers))
        for record in theirs
    ]
    assert read == VALUES
    assert (theirs.producer_id, theirs.producer_epoch, theirs.base_sequence) == (9, 2, 40)
    assert theirs.is_transactional


@pytest.mark.parametrize(("client", "codec"), CASES)
def test_our_reader_reads_batches_of_other_clients(client: str, codec: Codec) -> None:
    builder = BUILDERS[client](
        magic=2,
        compression_type=int(codec),
        is_transactional=0,
        producer_id=5,
        producer_epoch=1,
        base_sequence=7,
        batch_size=1 << 20,
    )
    for record in VALUES:
        builder.append(record.offset, record.timestamp, record.key, record.value, list(record.headers))
    batch = bytes(builder.build())
    header = read_header(batch)
    assert crc_ok(batch, 0, len(batch))
    assert header.codec == codec
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (5, 1, 7)
    assert decode_batch(batch) == VALUES


def test_uncompressed_batches_have_the_same_bytes_in_all_clients() -> None:
    ours = encode_batch(VALUES, producer_id=5, producer_epoch=1, base_sequence=7)
    for build in BUILDERS.values():
        builder = build(
            magic=2,
            compression_type=0,
            is_transactional=0,
            producer_id=5,
            producer_epoch=1,
            base_sequence=7,
            batch_size=1 << 20,
        )
        for record in VALUES:
            builder.append(record.offset, record.timestamp, record.key, record.value, list(record.headers))
        theirs = bytearray(builder.build())
        # The leader epoch is set by the broker; clients write different values.
        theirs[12:16] = ours[12:16]
        assert theirs == ours


def _bytes(value: Any) -> bytes | None:
    return None if value is None else bytes(value)
