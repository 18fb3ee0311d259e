"""The same records offered to Kafka's log and to ours: the same answer, the same bytes written, or a difference that
`strandline.log.validation` declares."""

from __future__ import annotations

import struct
import subprocess
from pathlib import Path
from typing import NamedTuple

import cramjam
import pytest

from strandline.log.settings import LogSettings
from strandline.log.validation import InvalidRecords, Origin, assign_offset, validate
from strandline.records.batch import (
    HEADER_SIZE,
    Codec,
    Record,
    decode_batch,
    encode_batch,
    end_transaction_marker,
    read_header,
    write_crc,
)
from strandline.records.compression import compress

# Kafka is asked once, by one worker.
pytestmark = pytest.mark.xdist_group("kafka-appends")

HERE = Path(__file__).resolve().parent
NOW = 1_700_000_000_000
HOUR = 3_600_000
TARGETS = ("uncompressed", "gzip", "snappy", "lz4", "zstd")


class Question(NamedTuple):
    name: str
    batch: bytes
    config: str = ""
    version: int = 13
    origin: str = "CLIENT"
    # What we answer where we differ on purpose.
    ours: str | None = None


class Answer(NamedTuple):
    code: str
    detail: str
    batch: bytes


def records(count: int, first: int = NOW, keyed: bool = True) -> list[Record]:
    return [
        Record(-1, first + n, b"k%d" % n if keyed else None, b"value %d " % n * 5, (("h", b"x"),) if n % 2 else ())
        for n in range(count)
    ]


def patched(batch: bytes | bytearray, at: int, layout: str, value: int) -> bytes:
    out = bytearray(batch)
    struct.pack_into(layout, out, at, value)
    write_crc(out)
    return bytes(out)


def with_body(batch: bytes | bytearray, body: bytes) -> bytes:
    out = bytearray(batch[:HEADER_SIZE]) + body
    struct.pack_into(">i", out, 8, len(out) - 12)
    write_crc(out)
    return bytes(out)


def counted(batch: bytes | bytearray, count: int) -> bytes:
    return patched(patched(batch, 57, ">i", count), 23, ">i", count - 1)


def of_codec(codec: Codec) -> list[Question]:
    name = codec.name.lower()
    good = encode_batch(records(5), codec=codec)
    body = bytes(encode_batch(records(1))[HEADER_SIZE:])
    trailing = with_body(encode_batch(records(1), codec=codec), bytes(compress(codec, body + b"xx")))
    compressed = codec is not Codec.NONE
    gaps = patched(encode_batch([Record(0, NOW, b"a"), Record(2, NOW, b"b")], codec=codec), 23, ">i", 1)
    questions = [
        Question(f"{name}: good", good),
        Question(f"{name}: keys", good, "cleanup.policy=compact"),
        Question(f"{name}: no keys", encode_batch(records(5, keyed=False), codec=codec), "cleanup.policy=compact"),
        Question(f"{name}: append time", good, "message.timestamp.type=LogAppendTime"),
        Question(f"{name}: version 6", good, version=6),
        Question(f"{name}: in the future", encode_batch(records(3, NOW + HOUR), codec=codec)),
        Question(f"{name}: flagged", patched(good, 21, ">h", 8 | codec)),
        Question(f"{name}: flagged twice", patched(good, 21, ">h", 8 | codec), "message.timestamp.type=LogAppendTime"),
        Question(f"{name}: overstated timestamp", patched(good, 35, ">q", NOW + 10 * HOUR)),
        Question(f"{name}: understated timestamp", patched(good, 35, ">q", NOW - HOUR), "cleanup.policy=compact"),
        Question(f"{name}: understated, not looked at", patched(good, 35, ">q", NOW - HOUR), ours="NONE"),
        Question(f"{name}: no timestamp", encode_batch([Record(0, -1, b"a", b"b")], codec=codec)),
        Question(f"{name}: trailing bytes", trailing, "cleanup.policy=compact"),
        Question(f"{name}: trailing, not looked at", trailing, ours="NONE" if compressed else None),
        Question(f"{name}: too few", counted(good, 6), "cleanup.policy=compact"),
        Question(f"{name}: too many", counted(good, 4), "cleanup.policy=compact"),
        Question(f"{name}: gaps", gaps, "cleanup.policy=compact", ours="INVALID_RECORD" if compressed else None),
        Question(f"{name}: gaps converted", gaps, f"compression.type={'gzip' if codec != Codec.GZIP else 'zstd'}"),
    ]
    for target in TARGETS:
        for kind in ("CreateTime", "LogAppendTime"):
            config = f"compression.type={target};message.timestamp.type={kind}"
            questions.append(Question(f"{name} to {target}, {kind}", good, config))
    return questions


def about_headers() -> list[Question]:
    good = encode_batch(records(3))
    marker = end_transaction_marker(commit=True, producer_id=5, producer_epoch=1, coordinator_epoch=2, timestamp=NOW)
    wrong = bytearray(good)
    wrong[30] ^= 1
    past = "message.timestamp.before.max.ms=1000"
    mixed = [Record(0, NOW, None), Record(1, NOW + 2 * HOUR, b"k"), Record(2, NOW + 2 * HOUR, None)]
    linked = with_body(
        encode_batch(records(3), codec=Codec.LZ4), bytes(cramjam.lz4.compress(bytes(good[HEADER_SIZE:])))
    )
    return [
        Question("nothing", b""),
        Question("twenty zeros", bytes(20)),
        Question("two batches", good + good),
        Question("a few bytes behind", good + b"abcdef"),
        Question("a cut batch behind", good + good[:40]),
        Question("zeros behind", good + bytes(40)),
        Question("base offset", patched(good, 0, ">q", 5)),
        Question("checksum", bytes(wrong)),
        *(Question(f"magic {magic}", patched(good, 16, ">b", magic)) for magic in (-1, 0, 1, 3)),
        *(Question(f"length {length}", patched(good, 8, ">i", length)) for length in (-5, 10, 30, 10_000)),
        Question("length and bytes 30", patched(good, 8, ">i", 30)[:42]),
        Question("control", encode_batch(records(1), control=True)),
        Question("marker of a client", marker),
        Question("marker", marker, origin="COORDINATOR"),
        Question("marker on zstd", marker, "compression.type=zstd", origin="COORDINATOR"),
        Question("producer without sequence", encode_batch(records(1), producer_id=5, producer_epoch=0)),
        Question("producer", encode_batch(records(1), producer_id=5, producer_epoch=0, base_sequence=0)),
        *(Question(f"count {count}", patched(good, 57, ">i", count)) for count in (-1, 0, 2)),
        Question("negative delta", patched(good, 23, ">i", -1)),
        Question("negative delta of none", patched(patched(good, 23, ">i", -1), 57, ">i", 0)),
        Question("too large", encode_batch(records(200)), "max.message.bytes=500"),
        Question(
            "larger than a segment", encode_batch(records(40_000)), "max.message.bytes=9000000;segment.bytes=1048576"
        ),
        Question(
            "too large when unfolded",
            encode_batch(records(200), codec=Codec.ZSTD),
            "max.message.bytes=3000;compression.type=uncompressed",
        ),
        Question("too old", encode_batch(records(3, NOW - 5000)), past),
        Question("as old as may be", encode_batch(records(3, NOW - 1000)), past),
        Question("without a time, none too old", encode_batch([Record(0, -1, b"k")]), past),
        Question("keys and times", encode_batch(mixed), "cleanup.policy=compact"),
        Question("unknown codec", patched(good, 21, ">h", 5), ours="UNSUPPORTED_COMPRESSION_TYPE"),
        Question("linked lz4", linked, ours="INVALID_RECORD"),
        Question(
            "snappy without framing",
            with_body(
                encode_batch(records(3), codec=Codec.SNAPPY),
                bytes(cramjam.snappy.compress_raw(bytes(good[HEADER_SIZE:]))),
            ),
            "compression.type=gzip",
        ),
    ]


def of_levels() -> list[Question]:
    """What we compress at any level, Kafka can read."""
    values = [Record(-1, NOW, b"k%d" % n, b"value %d " % (n % 7) * 30) for n in range(2000)]
    levels = [
        (Codec.GZIP, -1),
        (Codec.GZIP, 9),
        *((Codec.LZ4, n) for n in (1, 9, 12, 17)),
        (Codec.ZSTD, -100),
        (Codec.ZSTD, 22),
    ]
    return [
        Question(
            f"{codec.name} {level}", encode_batch(values, codec=codec, level=level), "compression.type=uncompressed"
        )
        for codec, level in levels
    ]


QUESTIONS = [*(question for codec in Codec for question in of_codec(codec)), *about_headers(), *of_levels()]


@pytest.fixture(scope="module")
def kafkas_answers(kafka_classpath: str, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Answer]:
    text = "".join(f"{q.version}|{NOW}|{q.config}|{q.origin}|{bytes(q.batch).hex()}\n" for q in QUESTIONS)
    directory = tmp_path_factory.mktemp("appended")
    run = subprocess.run(
        ["java", "-cp", kafka_classpath, str(HERE / "KafkaLog.java"), "append", str(directory)],
        input=text, capture_output=True, text=True, timeout=300, check=True,
    )  # fmt: skip
    lines = [line.removeprefix("ANSWER ") for line in run.stdout.splitlines() if line.startswith("ANSWER ")]
    assert len(lines) == len(QUESTIONS)
    answers = [line.split("|") for line in lines]
    return {
        question.name: Answer(code, detail, bytes.fromhex(written))
        for question, (code, detail, written) in zip(QUESTIONS, answers, strict=True)
    }


def our_answer(question: Question) -> Answer:
    settings = LogSettings.of(dict(pair.split("=") for pair in question.config.split(";") if pair))
    try:
        validated = validate(
            memoryview(bytearray(question.batch)),
            settings,
            wall_ms=NOW,
            api_version=question.version,
            origin=Origin[question.origin],
        )
    except InvalidRecords as refused:
        return Answer(refused.code.name, " ".join(str(index) for index, _ in refused.record_errors), b"")
    assign_offset(validated, 0, 7)
    return Answer("NONE", str(validated.log_append_time), bytes(validated.buffer))


def meaning(batch: bytes) -> tuple[object, ...]:
    """Everything but how the records are compressed and which timestamp they are counted from."""
    header = read_header(batch)
    return header[2:4], header[5:7], header[8:], decode_batch(batch)


@pytest.mark.parametrize("question", QUESTIONS, ids=lambda question: question.name)
def test_the_same_answer(question: Question, kafkas_answers: dict[str, Answer]) -> None:
    ours = our_answer(question)
    kafkas = kafkas_answers[question.name]
    if question.ours is not None:
        assert ours.code == question.ours
        assert ours != kafkas, "no difference any more: say so in the documentation"
        return
    assert (ours.code, ours.detail) == (kafkas.code, kafkas.detail)
    if ours.code == "NONE" and ours.batch != kafkas.batch:
        assert "compression.type" in question.config, "only recompression may give other bytes"
        assert meaning(ours.batch) == meaning(kafkas.batch)
