"""Metadata records as bytes: the message after a frame of frame version (1), record type and record version.

These are the values of the records of `__cluster_metadata`. A record of an unknown type or version raises
MalformedMessage, which must stop the node: it cannot be skipped.
"""

from __future__ import annotations

from functools import cache
from typing import Final

from strandline.protocol.codec import decode, encode_bytes
from strandline.protocol.errors import EncodeError, MalformedMessage
from strandline.protocol.types import Message
from strandline.records.errors import OverlongVarint
from strandline.records.varint import read_uvarint, uvarint
from strandline.runtime.disk import Buffer

FRAME_VERSION: Final = 1


@cache
def record_types() -> dict[int, type[Message]]:
    """Record type → message class."""
    from strandline.protocol.messages import metadata_records

    return {
        cls.api_key: cls
        for cls in vars(metadata_records).values()
        if isinstance(cls, type) and issubclass(cls, Message) and cls.api_key is not None
    }


def encode_record(message: Message, version: int) -> bytes:
    if message.api_key is None:
        raise EncodeError(f"{type(message).__name__} is not a metadata record")
    return b"".join(
        (uvarint(FRAME_VERSION), uvarint(message.api_key), uvarint(version), encode_bytes(message, version))
    )


def decode_record(data: Buffer) -> Message:
    return decode_record_and_version(data)[0]


def decode_record_and_version(data: Buffer) -> tuple[Message, int]:
    try:
        frame_version, position = read_uvarint(data, 0)
        record_type, position = read_uvarint(data, position)
        version, position = read_uvarint(data, position)
    except IndexError:
        raise MalformedMessage("a metadata record ends inside its frame") from None
    except OverlongVarint as error:
        raise MalformedMessage(f"the frame of a metadata record: {error}") from None
    if frame_version != FRAME_VERSION:
        raise MalformedMessage(f"a metadata record has frame version {frame_version}")
    cls = record_types().get(record_type)
    if cls is None:
        raise MalformedMessage(f"a metadata record of unknown type {record_type}")
    message, end = decode(cls, version, data, position)
    if end != len(data):
        raise MalformedMessage(f"{len(data) - end} bytes after a {cls.__name__}")
    return message, version
