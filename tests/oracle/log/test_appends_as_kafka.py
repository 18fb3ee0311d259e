"""The same batches appended to Kafka's log and to ours: the same result and the same bytes, or a difference that
`strandline.log.validation` declares."""

from __future__ import annotations

import struct
from typing import NamedTuple

import cramjam
import pytest

from compat.java.jvm import java
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

# One worker runs Kafka once for all cases.
pytestmark = pytest.mark.xdist_group("kafka-appends")

NOW = 1_700_000_000_000
HOUR = 3_600_000
TARGETS = ("uncompressed", "gzip", "snappy", "lz4", "zstd")


class Case(NamedTuple):
    name: str
    batch: bytes
    config: str = ""
    version: int = 13
    origin: str = "CLIENT"
    ours: str | None = None
    """Our error code where we differ from Kafka on purpose."""


class Result(NamedTuple):
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


def of_codec(codec: Codec) -> list[Case]:
    name = codec.name.lower()
    good = encode_batch(records(5), codec=codec)
    body = bytes(encode_batch(records(1))[HEADER_SIZE:])
    trailing = with_body(encode_batch(records(1), codec=codec), bytes(compress(codec, body + b"xx")))
    compressed = codec is not Codec.NONE
    gaps = patched(encode_batch([Record(0, NOW, b"a"), Record(2, NOW, b"b")], codec=codec), 23, ">i", 1)
    cases = [
        Case(f"{name}: good", good),
        Case(f"{name}: keys", good, "cleanup.policy=compact"),
        Case(f"{name}: no keys", encode_batch(records(5, keyed=False), codec=codec), "cleanup.policy=compact"),
        Case(f"{name}: append time", good, "message.timestamp.type=LogAppendTime"),
        Case(f"{name}: version 6", good, version=6),
        Case(f"{name}: in the future", encode_batch(records(3, NOW + HOUR), codec=codec)),
        Case(f"{name}: flagged", patched(good, 21, ">h", 8 | codec)),
        Case(f"{name}: flagged twice", patched(good, 21, ">h", 8 | codec), "message.timestamp.type=LogAppendTime"),
        Case(f"{name}: overstated timestamp", patched(good, 35, ">q", NOW + 10 * HOUR)),
        Case(f"{name}: understated timestamp", patched(good, 35, ">q", NOW - HOUR), "cleanup.policy=compact"),
        Case(f"{name}: understated, not validated", patched(good, 35, ">q", NOW - HOUR), ours="NONE"),
        Case(f"{name}: no timestamp", encode_batch([Record(0, -1, b"a", b"b")], codec=codec)),
        Case(f"{name}: trailing bytes", trailing, "cleanup.policy=compact"),
        Case(f"{name}: trailing, not validated", trailing, ours="NONE" if compressed else None),
        Case(f"{name}: too few", counted(good, 6), "cleanup.policy=compact"),
        Case(f"{name}: too many", counted(good, 4), "cleanup.policy=compact"),
        Case(f"{name}: gaps", gaps, "cleanup.policy=compact", ours="INVALID_RECORD" if compressed else None),
        Case(f"{name}: gaps converted", gaps, f"compression.type={'gzip' if codec != Codec.GZIP else 'zstd'}"),
    ]
    for target in TARGETS:
        for kind in ("CreateTime", "LogAppendTime"):
            config = f"compression.type={target};message.timestamp.type={kind}"
            cases.append(Case(f"{name} to {target}, {kind}", good, config))
    return cases


def about_headers() -> list[Case]:
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
        Case("nothing", b""),
        Case("twenty zeros", bytes(20)),
        Case("two batches", good + good),
        Case("a few bytes behind", good + b"abcdef"),
        Case("a truncated batch behind", good + good[:40]),
        Case("zeros behind", good + bytes(40)),
        Case("base offset", patched(good, 0, ">q", 5)),
        Case("checksum", bytes(wrong)),
        *(Case(f"magic {magic}", patched(good, 16, ">b", magic)) for magic in (-1, 0, 1, 3)),
        *(Case(f"length {length}", patched(good, 8, ">i", length)) for length in (-5, 10, 30, 10_000)),
        Case("length and bytes 30", patched(good, 8, ">i", 30)[:42]),
        Case("control", encode_batch(records(1), control=True)),
        Case("marker of a client", marker),
        Case("marker", marker, origin="COORDINATOR"),
        Case("marker on zstd", marker, "compression.type=zstd", origin="COORDINATOR"),
        Case("producer without sequence", encode_batch(records(1), producer_id=5, producer_epoch=0)),
        Case("producer", encode_batch(records(1), producer_id=5, producer_epoch=0, base_sequence=0)),
        *(Case(f"count {count}", patched(good, 57, ">i", count)) for count in (-1, 0, 2)),
        Case("negative delta", patched(good, 23, ">i", -1)),
        Case("negative delta of none", patched(patched(good, 23, ">i", -1), 57, ">i", 0)),
        Case("too large", encode_batch(records(200)), "max.message.bytes=500"),
        Case("larger than a segment", encode_batch(records(40_000)), "max.message.bytes=9000000;segment.bytes=1048576"),
        Case(
            "too large when decompressed",
            encode_batch(records(200), codec=Codec.ZSTD),
            "max.message.bytes=3000;compression.type=uncompressed",
        ),
        Case("too old", encode_batch(records(3, NOW - 5000)), past),
        Case("as old as allowed", encode_batch(records(3, NOW - 1000)), past),
        Case("without a time, none too old", encode_batch([Record(0, -1, b"k")]), past),
        Case("keys and times", encode_batch(mixed), "cleanup.policy=compact"),
        Case("unknown codec", patched(good, 21, ">h", 5), ours="UNSUPPORTED_COMPRESSION_TYPE"),
        Case("linked lz4", linked, ours="INVALID_RECORD"),
        Case(
            "snappy without framing",
            with_body(
                encode_batch(records(3), codec=Codec.SNAPPY),
                bytes(cramjam.snappy.compress_raw(bytes(good[HEADER_SIZE:]))),
            ),
            "compression.type=gzip",
        ),
    ]


def of_levels() -> list[Case]:
    """Kafka reads what we compress at any level."""
    values = [Record(-1, NOW, b"k%d" % n, b"value %d " % (n % 7) * 30) for n in range(2000)]
    levels = [
        (Codec.GZIP, -1),
        (Codec.GZIP, 9),
        *((Codec.LZ4, n) for n in (1, 9, 12, 17)),
        (Codec.ZSTD, -100),
        (Codec.ZSTD, 22),
    ]
    return [
        Case(f"{codec.name} {level}", encode_batch(values, codec=codec, level=level), "compression.type=uncompressed")
        for codec, level in levels
    ]


CASES = [*(case for codec in Codec for case in of_codec(codec)), *about_headers(), *of_levels()]


@pytest.fixture(scope="module")
def kafka_results(oracle_programs: str, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Result]:
    text = "".join(f"{q.version}|{NOW}|{q.config}|{q.origin}|{bytes(q.batch).hex()}\n" for q in CASES)
    directory = tmp_path_factory.mktemp("appended")
    done = java(oracle_programs, "KafkaLog", "append", str(directory), text=text, timeout=300)
    assert done.returncode == 0, done.stderr[-3000:]
    lines = [line.removeprefix("ANSWER ") for line in done.stdout.splitlines() if line.startswith("ANSWER ")]
    assert len(lines) == len(CASES)
    results = [line.split("|") for line in lines]
    return {
        case.name: Result(code, detail, bytes.fromhex(written))
        for case, (code, detail, written) in zip(CASES, results, strict=True)
    }


def our_result(case: Case) -> Result:
    settings = LogSettings.of(dict(pair.split("=") for pair in case.config.split(";") if pair))
    try:
        validated = validate(
            memoryview(bytearray(case.batch)),
            settings,
            wall_ms=NOW,
            api_version=case.version,
            origin=Origin[case.origin],
        )
    except InvalidRecords as rejected:
        return Result(rejected.code.name, " ".join(str(index) for index, _ in rejected.record_errors), b"")
    assign_offset(validated, 0, 7)
    return Result("NONE", str(validated.log_append_time), bytes(validated.buffer))


def meaning(batch: bytes) -> tuple[object, ...]:
    """Everything except the compressed bytes and the base timestamp."""
    header = read_header(batch)
    return header[2:4], header[5:7], header[8:], decode_batch(batch)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_the_result_and_the_bytes_are_those_of_kafka(case: Case, kafka_results: dict[str, Result]) -> None:
    ours = our_result(case)
    kafkas = kafka_results[case.name]
    if case.ours is not None:
        assert ours.code == case.ours
        assert ours != kafkas, "no difference any more: remove it from the documentation"
        return
    assert (ours.code, ours.detail) == (kafkas.code, kafkas.detail)
    if ours.code == "NONE" and ours.batch != kafkas.batch:
        assert "compression.type" in case.config, "only recompression may result in other bytes"
        assert meaning(ours.batch) == meaning(kafkas.batch)
