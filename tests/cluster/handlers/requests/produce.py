"""Produce: batches that are appended, and invalid batches of every kind."""

from __future__ import annotations

import struct
from collections.abc import Callable

from cluster.handlers.script_run import SPECIFIC_ERROR, UNKNOWN_TOPIC_ID, ScriptRun
from cluster.handlers.script_runner import script
from cluster.record_batches import EPOCH_MS, batch, produce, records
from strandline.model.ids import ZERO_UUID, Uuid
from strandline.protocol.apis import ApiKey
from strandline.protocol.messages.produce import PartitionProduceData, ProduceRequest, ProduceResponse, TopicProduceData
from strandline.records.batch import encode_batch, write_crc
from strandline.records.compression import Codec

DAY_MS = 24 * 3600 * 1000

NOT_DECOMPRESSED = "batches that need no conversion are not decompressed (docs/SUPPORTED.md)"
NO_APPEND_TIME = "a duplicate has a log append time only with message.timestamp.type=LogAppendTime"
# Records in batches that our node appends without decompressing them, and errors for which Kafka has no code.
DIFFERENCES = {
    "codec 5": SPECIFIC_ERROR,
    "codec 7": SPECIFIC_ERROR,
    "marked gzip but not compressed": NOT_DECOMPRESSED,
    "marked snappy but not compressed": NOT_DECOMPRESSED,
    "marked lz4 but not compressed": SPECIFIC_ERROR,
    "marked zstd but not compressed": NOT_DECOMPRESSED,
    "a record's length beyond the batch": NOT_DECOMPRESSED,
    "a negative record length": NOT_DECOMPRESSED,
    "a record's length too small": NOT_DECOMPRESSED,
    "a key beyond its record": NOT_DECOMPRESSED,
    "count too small": NOT_DECOMPRESSED,
    "count too large": NOT_DECOMPRESSED,
}


def damaged(
    change: Callable[[bytearray], object], *, checksum: bool = True, count: int = 3, codec: Codec = Codec.NONE
) -> bytearray:
    """A batch with one change; its checksum is corrected if `checksum`."""
    data = batch(count, codec=codec)
    change(data)
    if checksum:
        write_crc(data)
    return data


def put(format: str, at: int, value: int) -> Callable[[bytearray], object]:
    return lambda data: struct.pack_into(format, data, at, value)


def _mask_log_start_offset(response: ProduceResponse) -> None:
    """Kafka sets log_start_offset with some errors only, even for the same code; no client reads it."""
    for topic in response.responses:
        for partition in topic.partition_responses:
            partition.log_start_offset = -1


class TopicProducer:
    """Produces to one topic, by name or by id depending on the version."""

    def __init__(self, run: ScriptRun, name: str, *, log_starts: bool = True) -> None:
        self.run = run
        self.name = name
        self.log_starts = log_starts
        self.topic_id = run.topic_id(name) if run.version >= 13 else None

    def record(
        self, label: str, data: bytes | bytearray, *, partition: int = 0, acks: int = -1, differs: str | None = None
    ) -> None:
        request = produce(self.name, data, partition=partition, acks=acks, topic_id=self.topic_id)
        self.run.record(label, request, differs=differs, change=None if self.log_starts else _mask_log_start_offset)


@script(ApiKey.PRODUCE)
def records_appended(run: ScriptRun) -> None:
    producer = TopicProducer(run, run.topic("t", 2), log_starts=False)
    producer.record("three records", batch(3))
    producer.record("one more, acks=1", batch(1), acks=1)
    producer.record("to another partition", batch(1), partition=1)
    for codec in (Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD):
        producer.record(f"{codec.name.lower()}", batch(10, codec=codec))
    producer.record("a leader epoch set by the client", batch(1, leader_epoch=77))
    producer.record("records with headers and nulls", encode_batch([records(1)[0]._replace(key=None, value=None)]))
    name = producer.name
    response = run.call(produce(name, batch(1)), 9)
    run.add("the next base offset", str(response.responses[0].partition_responses[0].base_offset))


@script(ApiKey.PRODUCE)
def several_partitions(run: ScriptRun) -> None:
    name = run.topic("t", 3)
    topic_id = run.topic_id(name)

    def topic(topic_name: str, an_id: Uuid, *data: tuple[int, bytes | bytearray]) -> TopicProduceData:
        return TopicProduceData(
            name=topic_name,
            topic_id=an_id,
            partition_data=[PartitionProduceData(index=index, records=each) for index, each in data],
        )

    def record(label: str, *topics: TopicProduceData) -> None:
        request = ProduceRequest(acks=-1, timeout_ms=5000, topic_data=list(topics))
        run.record(label, request, unordered={"responses", "partition_responses"})

    record("an empty request")
    record("a topic without partitions", topic(name, topic_id))
    record("two partitions", topic(name, topic_id, (0, batch()), (1, batch())))
    record(
        "one good, one bad, one missing",
        topic(name, topic_id, (0, batch()), (1, damaged(put(">I", 17, 1), checksum=False)), (9, batch())),
        topic(run.name("nowhere"), UNKNOWN_TOPIC_ID, (0, batch())),
    )


@script(ApiKey.PRODUCE)
def invalid_partitions_and_acks(run: ScriptRun) -> None:
    name = run.topic("t")
    topic_id = run.topic_id(name)
    run.record("an unknown topic", produce(run.name("nowhere"), batch(), topic_id=UNKNOWN_TOPIC_ID))
    run.record("a topic with an invalid name", produce("../x", batch(), topic_id=UNKNOWN_TOPIC_ID))
    run.record("no topic at all", produce("", batch(), topic_id=ZERO_UUID))
    run.record("an unknown partition", produce(name, batch(), partition=5, topic_id=topic_id))
    run.record("a negative partition", produce(name, batch(), partition=-1, topic_id=topic_id))
    for acks in (2, -2, 32767):
        run.record(f"acks={acks}", produce(name, batch(), acks=acks, topic_id=topic_id))


@script(ApiKey.PRODUCE)
def acks_0(run: ScriptRun) -> None:
    name = run.topic("t")
    topic_id = run.topic_id(name)
    run.record_without_response("acks=0", produce(name, batch(), acks=0, topic_id=topic_id))
    run.record_without_response("acks=0, again", produce(name, batch(), acks=0, topic_id=topic_id))
    run.record_without_response("acks=0 and nothing to append", ProduceRequest(acks=0, timeout_ms=1))
    run.record("three more records, which follow those", produce(name, batch(), topic_id=topic_id))
    run.record_without_response(
        "acks=0 to an unknown topic", produce(run.name("nowhere"), batch(), acks=0, topic_id=UNKNOWN_TOPIC_ID)
    )
    corrupt = damaged(put(">I", 17, 1), checksum=False)
    run.record_without_response("acks=0 and a wrong checksum", produce(name, corrupt, acks=0, topic_id=topic_id))


@script(ApiKey.PRODUCE)
def invalid_batches(run: ScriptRun) -> None:
    """Each batch goes to its own partition, so that an appended batch does not change the offsets of others. Null
    records are left out: Kafka fails on them and sends no response."""
    good = batch(3)
    invalid: dict[str, bytes | bytearray] = {
        "good": good,
        "empty": b"",
        "a few bytes": b"\0" * 5,
        "sixty zeros": b"\0" * 60,
        "a header of zeros": b"\0" * 61,
        "random bytes": bytes(range(256)),
        **{f"truncated after {cut} bytes": bytes(good[:cut]) for cut in (11, 17, 40, 61)},
        "truncated before its last byte": bytes(good[:-1]),
        "one byte too many": bytes(good) + b"\0",
        "two batches": bytes(good) + bytes(batch(1)),
        "half of a second batch": bytes(good) + bytes(good[:30]),
        "wrong checksum": damaged(put(">I", 17, 12345), checksum=False),
        "base offset 5": damaged(put(">q", 0, 5)),
        "base offset -1": damaged(put(">q", 0, -1)),
        "length 0": damaged(put(">i", 8, 0), checksum=False),
        "length -1": damaged(put(">i", 8, -1), checksum=False),
        "length too large": damaged(put(">i", 8, 2**30), checksum=False),
        "length shorter than a header": damaged(put(">i", 8, 40), checksum=False),
        "magic 0": damaged(put(">b", 16, 0)),
        "magic 1": damaged(put(">b", 16, 1)),
        "magic 3": damaged(put(">b", 16, 3)),
        "magic -1": damaged(put(">b", 16, -1)),
        "codec 5": damaged(put(">h", 21, 5)),
        "codec 7": damaged(put(">h", 21, 7)),
        "marked gzip but not compressed": damaged(put(">h", 21, 1)),
        "marked snappy but not compressed": damaged(put(">h", 21, 2)),
        "marked lz4 but not compressed": damaged(put(">h", 21, 3)),
        "marked zstd but not compressed": damaged(put(">h", 21, 4)),
        "log append time": damaged(put(">h", 21, 8)),
        "transactional without an id": damaged(put(">h", 21, 16)),
        "control": damaged(put(">h", 21, 32)),
        "delete horizon": damaged(put(">h", 21, 64)),
        "an unknown attribute": damaged(put(">h", 21, 128)),
        "last offset delta too small": damaged(put(">i", 23, 1)),
        "last offset delta too large": damaged(put(">i", 23, 9)),
        "negative last offset delta": damaged(put(">i", 23, -1)),
        "max timestamp too small": damaged(put(">q", 35, EPOCH_MS)),
        "max timestamp below the base": damaged(put(">q", 35, 5)),
        "max timestamp too large": damaged(put(">q", 35, EPOCH_MS + 10)),
        "count too small": damaged(put(">i", 57, 2)),
        "count too large": damaged(put(">i", 57, 4)),
        "count 0": damaged(put(">i", 57, 0)),
        "negative count": damaged(put(">i", 57, -1)),
        "no records": encode_batch([]),
        "a record's length beyond the batch": damaged(put(">b", 61, 126)),
        "a negative record length": damaged(put(">b", 61, 1)),
        "a record's length too small": damaged(put(">b", 61, 2)),
        "a record's offset delta": damaged(put(">b", 64, 6)),
        "a key beyond its record": damaged(put(">b", 65, 126)),
        "the only record's length beyond the batch": damaged(put(">b", 61, 126), count=1),
    }
    producer = TopicProducer(run, run.topic("t", len(invalid)), log_starts=False)
    for partition, (label, data) in enumerate(invalid.items()):
        producer.record(label, data, partition=partition, differs=DIFFERENCES.get(label))


@script(ApiKey.PRODUCE)
def invalid_records(run: ScriptRun) -> None:
    """A broker that recompresses a batch validates every record."""
    producer = TopicProducer(run, run.topic("t", 4, compression_type="gzip"))
    producer.record("good", batch(3))
    producer.record("a length beyond the batch", damaged(put(">b", 61, 126)), partition=1)
    producer.record("an offset delta of 3 for the first", damaged(put(">b", 64, 6)), partition=2)
    producer.record("a key beyond its record", damaged(put(">b", 65, 126)), partition=3)


@script(ApiKey.PRODUCE)
def topic_configs_applied(run: ScriptRun) -> None:
    compacted = TopicProducer(run, run.topic("compacted", cleanup_policy="compact"))
    keyless = [record._replace(key=None) if record.offset % 2 else record for record in records(4)]
    compacted.record("keys", batch(3))
    compacted.record("two of four without a key", encode_batch(keyless))
    compacted.record("two of four without a key, gzip", encode_batch(keyless, codec=Codec.GZIP))
    compacted.record("an empty key", encode_batch([records(1)[0]._replace(key=b"")]))
    small = TopicProducer(run, run.topic("small", max_message_bytes="200"))
    small.record("small enough", batch(3))
    small.record("too large", batch(3, size=300))
    tiny = TopicProducer(run, run.topic("tiny", segment_bytes="1048576", max_message_bytes="3000000"))
    tiny.record("larger than a segment", batch(2, size=1_000_000))
    strict = TopicProducer(run, run.topic("strict", message_timestamp_before_max_ms="1000"))
    strict.record("too old", batch(3))
    strict = TopicProducer(run, run.topic("punctual", message_timestamp_after_max_ms="1000"))
    strict.record("too far ahead", batch(3, first_ms=EPOCH_MS + 3650 * DAY_MS))
    strict.record("no timestamp", batch(1, first_ms=-1))
    under_replicated = TopicProducer(run, run.topic("lonely", min_insync_replicas="3"))
    under_replicated.record("min.insync.replicas above the replication factor", batch(1))
    plain = TopicProducer(run, run.topic("plain"))
    plain.record("years ahead, with the default limit", batch(1, first_ms=EPOCH_MS + 3650 * DAY_MS))
    append_time = TopicProducer(run, run.topic("stamped", message_timestamp_type="LogAppendTime"))
    append_time.record("timestamps set by the broker", batch(3))
    append_time.record("timestamps set by the broker, gzip", batch(3, codec=Codec.GZIP))
    append_time.record("marked LogAppendTime by the client", damaged(put(">h", 21, 8)))
    recompressed = TopicProducer(run, run.topic("squeezed", compression_type="zstd"))
    recompressed.record("recompressed", batch(3))


@script(ApiKey.PRODUCE)
def idempotent_producers(run: ScriptRun) -> None:
    producer = TopicProducer(run, run.topic("t", 2))
    producer_id = 1_000_000 + run.version

    def numbered(sequence: int, count: int = 3, epoch: int = 0) -> bytearray:
        return batch(count, producer_id=producer_id, producer_epoch=epoch, base_sequence=sequence)

    producer.record("first", numbered(0))
    producer.record("second", numbered(3))
    producer.record("the second again", numbered(3), differs=NO_APPEND_TIME)
    producer.record("the first again", numbered(0), differs=NO_APPEND_TIME)
    producer.record("a gap", numbered(9))
    producer.record("an overlap", numbered(4))
    producer.record("no sequence", numbered(-1))
    producer.record("a sequence below -1", numbered(-7))
    producer.record("a new epoch that does not begin at 0", numbered(6, epoch=1))
    producer.record("a new epoch", numbered(0, epoch=1))
    producer.record("the old epoch", numbered(3))
    producer.record("a negative epoch", numbered(3, epoch=-1))
    for sequence in range(3, 21, 3):
        producer.record(f"{sequence} onwards", numbered(sequence, epoch=1))
    producer.record("a duplicate older than the last five batches", numbered(0, epoch=1))
    producer.record("the oldest of the last five batches", numbered(6, epoch=1), differs=NO_APPEND_TIME)
    producer.record("another partition, not from 0", numbered(5, epoch=1), partition=1)


@script(ApiKey.PRODUCE)
def internal_topics(run: ScriptRun) -> None:
    from strandline.protocol.messages.topics import CreatableTopic, CreateTopicsRequest

    name = "__consumer_offsets"
    topic = CreatableTopic(name=name, num_partitions=1, replication_factor=1)
    run.call(CreateTopicsRequest(topics=[topic], timeout_ms=10_000))
    run.wait_for_leaders(name, 1)
    topic_id = run.topic_id(name) if run.version >= 13 else None
    run.record("written by a client", produce(name, batch(), topic_id=topic_id))
