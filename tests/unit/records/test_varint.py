from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from strandline.records.errors import CorruptBatch, OverlongVarint
from strandline.records.varint import (
    append_varint,
    read_uvarint,
    read_varint,
    read_varlong,
    uvarint,
    varint_bytes,
)


@pytest.mark.parametrize(("value", "hexadecimal"), [(0, "00"), (127, "7f"), (128, "8001"), (300, "ac02")])
def test_unsigned_numbers_are_encoded_as_in_kafka(value: int, hexadecimal: str) -> None:
    out = uvarint(value)
    assert out.hex() == hexadecimal
    assert read_uvarint(out, 0) == (value, len(out))


@pytest.mark.parametrize(
    ("value", "hexadecimal"),
    [
        (0, "00"),
        (-1, "01"),
        (1, "02"),
        (-2, "03"),
        (300, "d804"),
        (-300, "d704"),
        (2147483647, "feffffff0f"),
        (-2147483648, "ffffffff0f"),
    ],
)
def test_zigzag_numbers_are_encoded_as_in_kafka(value: int, hexadecimal: str) -> None:
    assert varint_bytes(value).hex() == hexadecimal
    assert read_varint(varint_bytes(value), 0) == (value, len(hexadecimal) // 2)


@given(st.integers(-(1 << 63), (1 << 63) - 1))
def test_every_64_bit_number_survives_the_round_trip(value: int) -> None:
    out = bytearray(b"before")
    append_varint(out, value)
    assert read_varlong(out, 6) == (value, len(out))
    assert varint_bytes(value) == out[6:]


@given(st.binary(max_size=12), st.integers(0, 14))
def test_any_bytes_give_a_number_or_corrupt_batch(data: bytes, position: int) -> None:
    for read, limit in ((read_varint, 32), (read_varlong, 64)):
        try:
            value, after = read(data, position)
        except CorruptBatch:
            continue
        assert position < after <= len(data)
        assert -(1 << limit) < value < 1 << limit


def test_a_number_that_continues_past_its_bounds_is_corrupt() -> None:
    with pytest.raises(CorruptBatch):
        read_varint(b"\x80\x01", 0, 1)


@pytest.mark.parametrize(("read", "length"), [(read_varint, 5), (read_varlong, 10)])
def test_a_number_longer_than_its_type_is_corrupt(read: object, length: int) -> None:
    assert callable(read)
    assert read(b"\x80" * (length - 1) + b"\x01", 0)[1] == length
    with pytest.raises(CorruptBatch):
        read(b"\x80" * length + b"\x01", 0)


@given(st.binary(max_size=8))
def test_any_bytes_give_an_unsigned_number_of_32_bits_or_an_error(data: bytes) -> None:
    try:
        value, after = read_uvarint(data, 0)
    except (IndexError, OverlongVarint):
        return
    assert 0 < after <= min(5, len(data))
    assert 0 <= value < 1 << 32


@pytest.mark.parametrize("data", [b"\xff\xff\xff\xff\x1f", b"\x80\x80\x80\x80\x80\x00"])
def test_an_unsigned_number_of_more_than_32_bits_is_rejected(data: bytes) -> None:
    with pytest.raises(OverlongVarint):
        read_uvarint(data, 0)
