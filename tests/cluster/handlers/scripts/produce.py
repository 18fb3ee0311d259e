"""Produce: what is taken, and every way in which a batch can be wrong."""

from __future__ import annotations

import struct
from collections.abc import Callable

from cluster.handlers.scripts.running import script
from cluster.handlers.talk import EPOCH_MS, Talk, batch, produce, records
from strandline.model.ids import ZERO_UUID, Uuid
from strandline.protocol.apis import ApiKey
from strandline.protocol.messages.produce import PartitionProduceData, ProduceRequest, ProduceResponse, TopicProduceData
from strandline.records.batch import encode_batch, write_crc
from strandline.records.compression import Codec

STRANGER = Uuid(b"nobody's topic i")
DAY_MS = 24 * 3600 * 1000

UNOPENED = "records that need not be opened are not (docs/SUPPORTED.md)"
UNSTAMPED = "a duplicate has a log append time only where the topic stamps records"
NAMED = "an error that has a name is told by it"
# Records in batches that are taken as they are, where our node does not look, and errors for which Kafka has no name.
ANSWERED_OTHERWISE = {
    "codec 5": NAMED,
    "codec 7": NAMED,
    "says gzip and is not": UNOPENED,
    "says snappy and is not": UNOPENED,
    "says lz4 and is not": NAMED,
    "says zstd and is not": UNOPENED,
    "a record's length that leaves the batch": UNOPENED,
    "a record's length below zero": UNOPENED,
    "a record's length too small": UNOPENED,
    "a key that leaves its record": UNOPENED,
    "count too small": UNOPENED,
    "count too large": UNOPENED,
}


def damaged(
    change: Callable[[bytearray], object], *, recount: bool = True, count: int = 3, codec: Codec = Codec.NONE
) -> bytearray:
    """A batch with one thing wrong, and a right checksum over it unless told."""
    data = batch(count, codec=codec)
    change(data)
    if recount:
        write_crc(data)
    return data


def put(format: str, at: int, value: int) -> Callable[[bytearray], object]:
    return lambda data: struct.pack_into(format, data, at, value)


def _forget_log_start(answer: ProduceResponse) -> None:
    """With some errors Kafka tells it and with some it does not, even for the same code; no client looks."""
    for topic in answer.responses:
        for partition in topic.partition_responses:
            partition.log_start_offset = -1


class Sender:
    """Produces to one topic in the version of the talk, by name or by id as the version has it."""

    def __init__(self, talk: Talk, name: str, *, log_starts: bool = True) -> None:
        self.talk = talk
        self.name = name
        self.log_starts = log_starts
        self.topic_id = talk.topic_id(name) if talk.version >= 13 else None

    def ask(
        self, label: str, data: bytes | bytearray, *, partition: int = 0, acks: int = -1, differs: str | None = None
    ) -> None:
        request = produce(self.name, data, partition=partition, acks=acks, topic_id=self.topic_id)
        self.talk.ask(label, request, differs=differs, change=None if self.log_starts else _forget_log_start)


@script(ApiKey.PRODUCE)
def records_taken(talk: Talk) -> None:
    sender = Sender(talk, talk.topic("t", 2), log_starts=False)
    sender.ask("three records", batch(3))
    sender.ask("one more, acks=1", batch(1), acks=1)
    sender.ask("to another partition", batch(1), partition=1)
    for codec in (Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD):
        sender.ask(f"{codec.name.lower()}", batch(10, codec=codec))
    sender.ask("a leader epoch of the client's invention", batch(1, leader_epoch=77))
    sender.ask("records with headers and nulls", encode_batch([records(1)[0]._replace(key=None, value=None)]))
    name = sender.name
    answer = talk.quietly(produce(name, batch(1)), 9)
    talk.note("where that left the log", str(answer.responses[0].partition_responses[0].base_offset))


@script(ApiKey.PRODUCE)
def several_partitions(talk: Talk) -> None:
    name = talk.topic("t", 3)
    topic_id = talk.topic_id(name)

    def topic(topic_name: str, an_id: Uuid, *data: tuple[int, bytes | bytearray]) -> TopicProduceData:
        return TopicProduceData(
            name=topic_name,
            topic_id=an_id,
            partition_data=[PartitionProduceData(index=index, records=each) for index, each in data],
        )

    def ask(label: str, *topics: TopicProduceData) -> None:
        request = ProduceRequest(acks=-1, timeout_ms=5000, topic_data=list(topics))
        talk.ask(label, request, unordered={"responses", "partition_responses"})

    ask("nothing")
    ask("a topic without partitions", topic(name, topic_id))
    ask("two partitions", topic(name, topic_id, (0, batch()), (1, batch())))
    ask(
        "one good, one bad, one missing",
        topic(name, topic_id, (0, batch()), (1, damaged(put(">I", 17, 1), recount=False)), (9, batch())),
        topic(talk.name("nowhere"), STRANGER, (0, batch())),
    )


@script(ApiKey.PRODUCE)
def records_not_where_they_belong(talk: Talk) -> None:
    name = talk.topic("t")
    topic_id = talk.topic_id(name)
    talk.ask("a topic that is not there", produce(talk.name("nowhere"), batch(), topic_id=STRANGER))
    talk.ask("a topic with an illegal name", produce("../x", batch(), topic_id=STRANGER))
    talk.ask("no topic at all", produce("", batch(), topic_id=ZERO_UUID))
    talk.ask("a partition that is not there", produce(name, batch(), partition=5, topic_id=topic_id))
    talk.ask("a partition below zero", produce(name, batch(), partition=-1, topic_id=topic_id))
    for acks in (2, -2, 32767):
        talk.ask(f"acks={acks}", produce(name, batch(), acks=acks, topic_id=topic_id))


@script(ApiKey.PRODUCE)
def nothing_to_hear(talk: Talk) -> None:
    name = talk.topic("t")
    topic_id = talk.topic_id(name)
    talk.tell("acks=0", produce(name, batch(), acks=0, topic_id=topic_id))
    talk.tell("acks=0, again", produce(name, batch(), acks=0, topic_id=topic_id))
    talk.tell("acks=0 and nothing to append", ProduceRequest(acks=0, timeout_ms=1))
    talk.ask("three more, which shows where those went", produce(name, batch(), topic_id=topic_id))
    talk.tell("acks=0 to nowhere", produce(talk.name("nowhere"), batch(), acks=0, topic_id=STRANGER))
    corrupt = damaged(put(">I", 17, 1), recount=False)
    talk.tell("acks=0 and a wrong checksum", produce(name, corrupt, acks=0, topic_id=topic_id))


@script(ApiKey.PRODUCE)
def batches_that_are_wrong(talk: Talk) -> None:
    """Every one to a partition of its own, so that one which is taken does not move the others. Null is not among
    them: Kafka trips over it and never answers."""
    good = batch(3)
    wrong: dict[str, bytes | bytearray] = {
        "good": good,
        "empty": b"",
        "a few bytes": b"\0" * 5,
        "sixty zeros": b"\0" * 60,
        "a header of zeros": b"\0" * 61,
        "noise": bytes(range(256)),
        **{f"cut after {cut} bytes": bytes(good[:cut]) for cut in (11, 17, 40, 61)},
        "cut before its last byte": bytes(good[:-1]),
        "one byte too many": bytes(good) + b"\0",
        "two batches": bytes(good) + bytes(batch(1)),
        "half of a second batch": bytes(good) + bytes(good[:30]),
        "wrong checksum": damaged(put(">I", 17, 12345), recount=False),
        "base offset 5": damaged(put(">q", 0, 5)),
        "base offset -1": damaged(put(">q", 0, -1)),
        "length 0": damaged(put(">i", 8, 0), recount=False),
        "length -1": damaged(put(">i", 8, -1), recount=False),
        "length too large": damaged(put(">i", 8, 2**30), recount=False),
        "length shorter than a header": damaged(put(">i", 8, 40), recount=False),
        "magic 0": damaged(put(">b", 16, 0)),
        "magic 1": damaged(put(">b", 16, 1)),
        "magic 3": damaged(put(">b", 16, 3)),
        "magic -1": damaged(put(">b", 16, -1)),
        "codec 5": damaged(put(">h", 21, 5)),
        "codec 7": damaged(put(">h", 21, 7)),
        "says gzip and is not": damaged(put(">h", 21, 1)),
        "says snappy and is not": damaged(put(">h", 21, 2)),
        "says lz4 and is not": damaged(put(">h", 21, 3)),
        "says zstd and is not": damaged(put(">h", 21, 4)),
        "log append time": damaged(put(">h", 21, 8)),
        "transactional without an id": damaged(put(">h", 21, 16)),
        "control": damaged(put(">h", 21, 32)),
        "delete horizon": damaged(put(">h", 21, 64)),
        "an attribute of the future": damaged(put(">h", 21, 128)),
        "last offset delta too small": damaged(put(">i", 23, 1)),
        "last offset delta too large": damaged(put(">i", 23, 9)),
        "last offset delta below zero": damaged(put(">i", 23, -1)),
        "max timestamp too small": damaged(put(">q", 35, EPOCH_MS)),
        "max timestamp below the base": damaged(put(">q", 35, 5)),
        "max timestamp too large": damaged(put(">q", 35, EPOCH_MS + 10)),
        "count too small": damaged(put(">i", 57, 2)),
        "count too large": damaged(put(">i", 57, 4)),
        "count 0": damaged(put(">i", 57, 0)),
        "count below zero": damaged(put(">i", 57, -1)),
        "no records": encode_batch([]),
        "a record's length that leaves the batch": damaged(put(">b", 61, 126)),
        "a record's length below zero": damaged(put(">b", 61, 1)),
        "a record's length too small": damaged(put(">b", 61, 2)),
        "a record's offset delta": damaged(put(">b", 64, 6)),
        "a key that leaves its record": damaged(put(">b", 65, 126)),
        "the only record's length leaves the batch": damaged(put(">b", 61, 126), count=1),
    }
    sender = Sender(talk, talk.topic("t", len(wrong)), log_starts=False)
    for partition, (label, data) in enumerate(wrong.items()):
        sender.ask(label, data, partition=partition, differs=ANSWERED_OTHERWISE.get(label))


@script(ApiKey.PRODUCE)
def records_that_are_wrong(talk: Talk) -> None:
    """Looked at one by one where the broker compresses them anew."""
    sender = Sender(talk, talk.topic("t", 4, compression_type="gzip"))
    sender.ask("good", batch(3))
    sender.ask("a length that leaves the batch", damaged(put(">b", 61, 126)), partition=1)
    sender.ask("an offset delta of 3 for the first", damaged(put(">b", 64, 6)), partition=2)
    sender.ask("a key that leaves its record", damaged(put(">b", 65, 126)), partition=3)


@script(ApiKey.PRODUCE)
def rules_of_the_topic(talk: Talk) -> None:
    compacted = Sender(talk, talk.topic("compacted", cleanup_policy="compact"))
    keyless = [record._replace(key=None) if record.offset % 2 else record for record in records(4)]
    compacted.ask("keys", batch(3))
    compacted.ask("two of four without a key", encode_batch(keyless))
    compacted.ask("two of four without a key, gzip", encode_batch(keyless, codec=Codec.GZIP))
    compacted.ask("an empty key", encode_batch([records(1)[0]._replace(key=b"")]))
    small = Sender(talk, talk.topic("small", max_message_bytes="200"))
    small.ask("small enough", batch(3))
    small.ask("too large", batch(3, size=300))
    tiny = Sender(talk, talk.topic("tiny", segment_bytes="1048576", max_message_bytes="3000000"))
    tiny.ask("larger than a segment", batch(2, size=1_000_000))
    strict = Sender(talk, talk.topic("strict", message_timestamp_before_max_ms="1000"))
    strict.ask("too old", batch(3))
    strict = Sender(talk, talk.topic("punctual", message_timestamp_after_max_ms="1000"))
    strict.ask("too far ahead", batch(3, first_ms=EPOCH_MS + 3650 * DAY_MS))
    strict.ask("no timestamp", batch(1, first_ms=-1))
    lonely = Sender(talk, talk.topic("lonely", min_insync_replicas="3"))
    lonely.ask("more replicas wanted in sync than there are", batch(1))
    plain = Sender(talk, talk.topic("plain"))
    plain.ask("two hours ahead, as far as topics allow by default", batch(1, first_ms=EPOCH_MS + 3650 * DAY_MS))
    stamped = Sender(talk, talk.topic("stamped", message_timestamp_type="LogAppendTime"))
    stamped.ask("stamped by the broker", batch(3))
    stamped.ask("stamped by the broker, gzip", batch(3, codec=Codec.GZIP))
    stamped.ask("stamped by the client", damaged(put(">h", 21, 8)))
    squeezed = Sender(talk, talk.topic("squeezed", compression_type="zstd"))
    squeezed.ask("recompressed", batch(3))


@script(ApiKey.PRODUCE)
def idempotent_producers(talk: Talk) -> None:
    sender = Sender(talk, talk.topic("t", 2))
    producer = 1_000_000 + talk.version

    def numbered(sequence: int, count: int = 3, epoch: int = 0) -> bytearray:
        return batch(count, producer_id=producer, producer_epoch=epoch, base_sequence=sequence)

    sender.ask("first", numbered(0))
    sender.ask("second", numbered(3))
    sender.ask("the second again", numbered(3), differs=UNSTAMPED)
    sender.ask("the first again", numbered(0), differs=UNSTAMPED)
    sender.ask("a gap", numbered(9))
    sender.ask("an overlap", numbered(4))
    sender.ask("no sequence", numbered(-1))
    sender.ask("a sequence below -1", numbered(-7))
    sender.ask("a new epoch that does not begin at 0", numbered(6, epoch=1))
    sender.ask("a new epoch", numbered(0, epoch=1))
    sender.ask("the old epoch", numbered(3))
    sender.ask("an epoch below zero", numbered(3, epoch=-1))
    for sequence in range(3, 21, 3):
        sender.ask(f"{sequence} onwards", numbered(sequence, epoch=1))
    sender.ask("one that is out of the window of five", numbered(0, epoch=1))
    sender.ask("the oldest inside the window", numbered(6, epoch=1), differs=UNSTAMPED)
    sender.ask("another partition, not from 0", numbered(5, epoch=1), partition=1)


@script(ApiKey.PRODUCE)
def internal_topics(talk: Talk) -> None:
    from strandline.protocol.messages.topics import CreatableTopic, CreateTopicsRequest

    name = "__consumer_offsets"
    topic = CreatableTopic(name=name, num_partitions=1, replication_factor=1)
    talk.quietly(CreateTopicsRequest(topics=[topic], timeout_ms=10_000))
    talk.wait_for(name, 1)
    topic_id = talk.topic_id(name) if talk.version >= 13 else None
    talk.ask("written by a client", produce(name, batch(), topic_id=topic_id))
