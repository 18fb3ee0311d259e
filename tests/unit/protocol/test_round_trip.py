"""Every message at every version: encoded and decoded again, and decoded from damaged bytes."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from strandline.protocol.codec import MalformedMessage, decode, encode_bytes
from strandline.protocol.types import Message
from unit.protocol.random_messages import every_message, every_version, random_message

# Hypothesis draws from one module of declarations at a time; the other tests cover every version.
MODULES: dict[str, list[type[Message]]] = {}
for _cls in every_message():
    MODULES.setdefault(_cls.__module__.rpartition(".")[2], []).append(_cls)


def test_every_message_round_trips_at_every_version() -> None:
    for cls, version in every_version():
        for seed in range(4):
            message = random_message(cls, version, Random(f"{cls.__name__} {version} {seed}"))
            data = encode_bytes(message, version)
            assert decode(cls, version, data) == (message, len(data))


@pytest.mark.parametrize("module", MODULES)
@settings(max_examples=40, deadline=None, database=None)
@given(data=st.data())
def test_a_random_message_round_trips_from_any_kind_of_buffer(module: str, data: st.DataObject) -> None:
    cls = data.draw(st.sampled_from(MODULES[module]))
    version = data.draw(st.integers(*cls.versions))
    message = random_message(cls, version, data.draw(st.randoms(use_true_random=False)))
    encoded = encode_bytes(message, version)
    before, after = b"\x07" * 3, b"\xff" * 5
    for buffer in (before + encoded + after, bytearray(before + encoded + after), memoryview(before + encoded + after)):
        assert decode(cls, version, buffer, 3) == (message, 3 + len(encoded))


def test_damaged_bytes_of_any_message_give_a_message_or_malformed_message() -> None:
    for cls, version in every_version():
        random = Random(f"{cls.__name__} {version}")
        data = encode_bytes(random_message(cls, version, random), version)
        for _ in range(12):
            damaged = bytearray(data)
            damage(damaged, random)
            decode_and_encode_again(cls, version, damaged)


@pytest.mark.parametrize("module", MODULES)
@settings(max_examples=40, deadline=None, database=None)
@given(data=st.data())
def test_bytes_damaged_several_times_give_a_message_or_malformed_message(module: str, data: st.DataObject) -> None:
    cls = data.draw(st.sampled_from(MODULES[module]))
    version = data.draw(st.integers(*cls.versions))
    message = random_message(cls, version, Random(data.draw(st.integers(0, 1000))))
    damaged = bytearray(encode_bytes(message, version))
    for _ in range(data.draw(st.integers(1, 4))):
        damage(damaged, Random(data.draw(st.integers(0, 1 << 30))))
    decode_and_encode_again(cls, version, damaged)


def test_every_truncation_of_a_message_is_malformed() -> None:
    for cls, version in every_version():
        data = encode_bytes(random_message(cls, version, Random(f"{cls.__name__} {version}")), version)
        for size in range(len(data)):
            with pytest.raises(MalformedMessage):
                decode(cls, version, data[:size])


def test_random_bytes_give_a_message_or_malformed_message() -> None:
    random = Random(7)
    for cls, version in every_version():
        for alphabet in (b"\x00", b"\xff", b"\x00\x01\x02", b"\x7f\x80\x81\xff\x01"):
            noise = bytearray(random.choice(alphabet) for _ in range(random.randrange(60)))
            decode_and_encode_again(cls, version, noise)


def decode_and_encode_again(cls: type[Message], version: int, data: bytearray) -> None:
    """If the bytes can be decoded, the message can be encoded, and its bytes round trip."""
    try:
        message, end = decode(cls, version, data)
    except MalformedMessage:
        return
    assert 0 <= end <= len(data)
    written = encode_bytes(message, version)
    again, _ = decode(cls, version, written)
    assert encode_bytes(again, version) == written


def damage(data: bytearray, random: Random) -> None:
    where = random.randrange(len(data) + 1)
    what = random.randrange(5)
    if what == 0:
        del data[where:]
    elif what == 1:
        data[where:where] = random.randbytes(random.randrange(1, 6))
    elif what == 2:
        data[where : where + 4] = random.choice([b"\xff\xff\xff\xff", b"\x7f\xff\xff\xff", b"\xff\xff\xff\xff\x0f"])
    elif what == 3:
        del data[where : where + random.randrange(1, 4)]
    elif where < len(data):
        data[where] = random.choice([0, 1, 0x7F, 0x80, 0xFF, random.randrange(256)])
