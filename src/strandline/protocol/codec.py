"""Encodes and decodes messages. The codec of a (message, version) is compiled on first use and cached.

`decode` is total: any bytes give a message or MalformedMessage. It returns where the message ended and ignores bytes
after it; the caller decides what trailing bytes mean (Kafka ignores them in requests and rejects them in metadata
records).
"""

from __future__ import annotations

import struct
import sys
from typing import Any, TypeVar

from strandline.protocol.decoding import compile_decoder
from strandline.protocol.encoding import Encoder, compile_encoder
from strandline.protocol.errors import EncodeError, MalformedMessage, TooManyElements
from strandline.protocol.types import Message
from strandline.records.errors import OverlongVarint
from strandline.runtime.disk import Buffer
from strandline.runtime.file_slice import FileSlice, Part

__all__ = ["EncodeError", "MalformedMessage", "TooManyElements", "decode", "encode", "encode_bytes", "encode_into"]

M = TypeVar("M", bound=Message)

_decoders: dict[tuple[type[Message], int], Any] = {}
_encoders: dict[tuple[type[Message], int], Encoder] = {}


def decode(
    cls: type[M], version: int, buffer: Buffer, position: int = 0, *, max_elements: int = sys.maxsize
) -> tuple[M, int]:
    """The message that begins at `position`, and the position after it.

    `records` fields are views of `buffer`; everything else is a copy. Raises TooManyElements for a message whose lists
    and tags have more than `max_elements` elements in total."""
    read = _decoders.get((cls, version))
    if read is None:
        if not cls.versions[0] <= version <= cls.versions[1]:
            raise MalformedMessage(f"{cls.__name__} has no version {version}")
        read = _decoders[cls, version] = compile_decoder(cls, version)
    try:
        return read(buffer, position, max_elements)
    except (IndexError, struct.error):
        raise MalformedMessage(f"{cls.__name__} v{version} ends in the middle of a field") from None
    except UnicodeDecodeError as error:
        raise MalformedMessage(f"{cls.__name__} v{version} has text that is not UTF-8: {error}") from None
    except OverlongVarint as error:
        raise MalformedMessage(f"{cls.__name__} v{version}: {error}") from None
    except MalformedMessage as error:
        raise type(error)(f"{cls.__name__} v{version}: {error}") from None


def encode_into(message: Message, version: int, out: list[Any], parts: list[Part]) -> None:
    """Appends small buffers to `out`. Before a large value becomes a part, `out` is joined and moved to `parts`."""
    cls = type(message)
    write = _encoders.get((cls, version))
    if write is None:
        if not cls.versions[0] <= version <= cls.versions[1]:
            raise EncodeError(f"{cls.__name__} has no version {version}")
        write = _encoders[cls, version] = compile_encoder(cls, version)
    try:
        write(message, out, parts)
    except (struct.error, TypeError, AttributeError, ValueError) as error:
        raise EncodeError(f"{cls.__name__} v{version}: {error}") from error


def encode(message: Message, version: int) -> list[Part]:
    """The message as buffers and file slices in order."""
    out: list[Any] = []
    parts: list[Part] = []
    encode_into(message, version, out, parts)
    if out:
        parts.append(b"".join(out))
    return parts


def encode_bytes(message: Message, version: int) -> bytes:
    """The message as one buffer; file slices are read."""
    return b"".join(part.read() if isinstance(part, FileSlice) else part for part in encode(message, version))
