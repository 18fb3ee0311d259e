from __future__ import annotations

import random
import struct
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from strandline.records.batch import (
    Codec,
    CorruptBatch,
    DecompressionLimit,
    Record,
    batches,
    decode_batch,
    encode_batch,
)
from strandline.records.columns import Columns, decode_columns
from strandline.records.record_spans import read_spans

NOW = 1_700_000_000_000


def some_records(seed: int, count: int) -> list[Record]:
    rng = random.Random(seed)
    values = []
    for index in range(count):
        key = None if rng.random() < 0.1 else rng.randbytes(rng.choice([0, 1, 5, 70, 200]))
        value = None if rng.random() < 0.1 else rng.randbytes(rng.choice([0, 3, 64, 500, 9000]))
        headers = tuple((f"h{n}", rng.choice([None, b"", b"x" * 100])) for n in range(rng.choice([0, 0, 0, 1, 3])))
        values.append(Record(index, NOW + rng.choice([0, 1, -70_000, 5_000_000_000]), key, value, headers))
    return values


def rows(columns: Columns) -> list[tuple[int, int, bytes | None, bytes | None, int]]:
    return [
        (int(columns.offset[row]), int(columns.timestamp[row]), columns.key(row), columns.value(row), int(n))
        for row, n in enumerate(columns.header_count)
    ]


def expected(buffer: bytes) -> list[tuple[int, int, bytes | None, bytes | None, int]]:
    return [
        (record.offset, record.timestamp, record.key, record.value, len(record.headers))
        for position, _ in batches(buffer)
        for record in decode_batch(buffer, position)
    ]


@pytest.mark.parametrize("codecs", [[Codec.NONE], [Codec.ZSTD], list(Codec)], ids=str)
@pytest.mark.parametrize(
    "counts", [[1], [300], [3, 0, 5], [2] * 150, [*([7, 3, 0] * 60), 8]], ids=lambda c: str(len(c))
)
def test_columns_hold_the_fields_of_the_records(codecs: list[Codec], counts: list[int]) -> None:
    out = bytearray()
    base = 1000
    for index, count in enumerate(counts):
        values = [record._replace(offset=-1) for record in some_records(index, count)]
        append_time = NOW + 9 if index % 5 == 4 else None
        out += encode_batch(values, base_offset=base, codec=codecs[index % len(codecs)], log_append_time=append_time)
        base += count + 1
    buffer = bytes(out)
    columns = decode_columns(buffer)
    assert rows(columns) == expected(buffer)
    assert len(columns) == sum(counts)
    assert columns.batch.tolist() == [index for index, count in enumerate(counts) for _ in range(count)]


def test_rows_are_adjacent_and_cover_all_bytes() -> None:
    batch = bytes(encode_batch(some_records(7, 200)))
    columns = decode_columns(batch)
    pieces = [batch[start:end] for start, end in zip(columns.start, columns.end, strict=True)]
    assert b"".join(pieces) == batch[61:]


def test_no_batches_give_no_rows() -> None:
    assert len(decode_columns(b"")) == 0
    assert len(decode_columns(encode_batch([]))) == 0


def test_only_the_given_batches_are_decoded() -> None:
    first = encode_batch([Record(0, NOW, b"a")])
    second = encode_batch([Record(1, NOW, b"b"), Record(2, NOW, b"c")], base_offset=1)
    buffer = bytes(first + second)
    found = list(batches(buffer))[1:]
    assert decode_columns(buffer, found).offset.tolist() == [1, 2]


def test_the_limit_applies_to_all_batches_together() -> None:
    batch = encode_batch([Record(0, NOW, None, bytes(1000))], codec=Codec.GZIP)
    assert len(decode_columns(batch * 3, limit_bytes=3100)) == 3
    with pytest.raises(DecompressionLimit):
        decode_columns(batch * 3, limit_bytes=2500)


def test_a_record_with_very_many_headers_is_decoded() -> None:
    values = [Record(0, NOW, b"k", b"v", tuple((str(n), b"") for n in range(20_000))), *some_records(3, 100)[1:]]
    batch = bytes(encode_batch(values))
    assert rows(decode_columns(batch)) == expected(batch)


@given(st.lists(st.integers(0, 12), min_size=1, max_size=4), st.sampled_from([1, 40]), st.data())
def test_columns_and_spans_agree_about_damaged_batches(counts: list[int], times: int, data: st.DataObject) -> None:
    """Both parsers must reject and accept the same bytes."""
    pieces = [bytearray(encode_batch(some_records(index, count))) for index, count in enumerate(counts * times)]
    victim = data.draw(st.integers(0, len(pieces) - 1))
    batch = pieces[victim]
    if len(batch) == 61:
        return
    for _ in range(data.draw(st.integers(1, 3))):
        batch[data.draw(st.integers(61, min(len(batch), 400) - 1))] = data.draw(st.integers(0, 255))
    buffer = bytes(b"".join(pieces))
    start = sum(len(piece) for piece in pieces[:victim])
    count = struct.unpack_from(">i", batch, 57)[0]
    try:
        spans = read_spans(buffer, start + 61, start + len(batch), count)
    except CorruptBatch:
        with pytest.raises(CorruptBatch):
            decode_columns(buffer)
        return
    columns = decode_columns(buffer)
    mine = columns.batch == victim
    assert columns.key_start[mine].tolist() == [span.key_start for span in spans]
    assert columns.value_length[mine].tolist() == [span.value_length for span in spans]
    assert columns.timestamp_delta[mine].tolist() == [span.timestamp_delta for span in spans]


def test_numpy_is_not_loaded_before_it_is_needed() -> None:
    code = "import sys, strandline.records.columns, strandline.log.validation; print('numpy' in sys.modules)"
    run = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, check=True, env={"PYTHONPATH": ":".join(sys.path)}
    )
    assert run.stdout.strip() == b"False"
