"""The format language of `consume -f`, which is rpk's: percent verbs with modifiers in braces.

Owns the grammar and the rendering of one record. A format is compiled once into a list of functions, so that rendering
parses nothing. `%h{…}` contains a format in which `%k` and `%v` are the key and value of a header.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TypeVar

import msgspec

from strandline.cli.format_modifiers import Encode, number_modifier, text_modifier, timestamp_modifier
from strandline.records.compression import Codec


class RecordFields(msgspec.Struct, frozen=True):
    """The values that verbs print: one record with its batch and partition."""

    topic: bytes = b""
    partition: int = 0
    offset: int = 0
    timestamp_ms: int = -1
    key: bytes | None = None
    value: bytes | None = None
    headers: list[tuple[bytes, bytes | None]] = msgspec.field(default_factory=list)
    leader_epoch: int = -1
    attributes: int = 0
    producer_id: int = -1
    producer_epoch: int = -1
    log_start_offset: int = -1
    last_stable_offset: int = -1
    high_watermark: int = -1
    count: int = 0


T = TypeVar("T")
Piece = Callable[[RecordFields], bytes]


class InvalidFormat(ValueError):
    """The text is not a valid format; the message says where and why."""


_TEXTS: dict[str, Callable[[RecordFields], bytes]] = {
    "t": lambda record: record.topic,
    "k": lambda record: record.key or b"",
    "v": lambda record: record.value or b"",
}
_NUMBERS: dict[str, Callable[[RecordFields], int]] = {
    "T": lambda record: len(record.topic),
    "K": lambda record: len(record.key or b""),
    "V": lambda record: len(record.value or b""),
    "H": lambda record: len(record.headers),
    "p": lambda record: record.partition,
    "o": lambda record: record.offset,
    "e": lambda record: record.leader_epoch,
    "x": lambda record: record.producer_id,
    "y": lambda record: record.producer_epoch,
    "[": lambda record: record.log_start_offset,
    "|": lambda record: record.last_stable_offset,
    "]": lambda record: record.high_watermark,
    "i": lambda record: record.count,
}
_LITERALS = {"%": b"%", "{": b"{", "}": b"}"}
_ESCAPES = {"t": b"\t", "n": b"\n", "r": b"\r", "\\": b"\\"}
_CODECS = {int(codec): codec.name.lower().encode() for codec in Codec}
_ATTRIBUTES: dict[str, Callable[[int], int]] = {
    "compression": lambda attributes: attributes & 7,
    "timestamp-type": lambda attributes: attributes >> 3 & 1,
    "transactional-bit": lambda attributes: attributes >> 4 & 1,
    "control-bit": lambda attributes: attributes >> 5 & 1,
}
_WRAPPED = re.compile(r"(strftime|go|unpack)(\[+|\{+|#+)")
_CLOSERS = {"[": "]", "{": "}", "#": "#"}


class RecordFormat:
    """A compiled format: `render(record)` returns the bytes to print."""

    def __init__(self, text: str) -> None:
        self._pieces = _compile(text)

    def render(self, record: RecordFields) -> bytes:
        return b"".join([piece(record) for piece in self._pieces])


def _compile(text: str) -> list[Piece]:
    pieces: list[Piece] = []
    literal = bytearray()
    position = 0

    def end_literal() -> None:
        if literal:
            constant = bytes(literal)
            pieces.append(lambda _record: constant)
            literal.clear()

    while position < len(text):
        character = text[position]
        if character == "\\":
            escaped, position = _escape(text, position)
            literal += escaped
        elif character != "%":
            literal += character.encode()
            position += 1
        else:
            verb = text[position + 1 : position + 2]
            position += 2
            if verb in _LITERALS and verb:
                literal += _LITERALS[verb]
                continue
            modifier, position = _modifier(text, position)
            end_literal()
            pieces.append(_piece(verb, modifier))
    end_literal()
    return pieces


def _escape(text: str, position: int) -> tuple[bytes, int]:
    letter = text[position + 1 : position + 2]
    if letter == "x":
        digits = text[position + 2 : position + 4]
        if re.fullmatch(r"[0-9a-fA-F]{2}", digits):
            return bytes.fromhex(digits), position + 4
        raise InvalidFormat(f"\\x must be followed by two hexadecimal digits, not {digits!r}")
    if letter not in _ESCAPES or not letter:
        raise InvalidFormat(f"unknown escape \\{letter}: use \\t \\n \\r \\\\ or \\xNN")
    return _ESCAPES[letter], position + 2


def _modifier(text: str, position: int) -> tuple[str | None, int]:
    """The text in the braces after a verb, if there are any: (modifier, position after it)."""
    if text[position : position + 1] != "{":
        return None, position
    wrapped = _WRAPPED.match(text, position + 1)
    if wrapped:
        opening = wrapped[2]
        closing = _CLOSERS[opening[0]] * len(opening) + "}"
        end = text.find(closing, wrapped.end())
        if end < 0:
            raise InvalidFormat(f"{wrapped[0]!r} is never closed: {closing!r} is missing")
        return text[position + 1 : end + len(closing) - 1], end + len(closing)
    depth = 0
    end = position
    while end < len(text):
        if text[end] == "%":
            end += 1  # %{ and %} are literal braces; %% does not escape a brace that follows it
        elif text[end] == "{":
            depth += 1
        elif text[end] == "}":
            depth -= 1
            if depth == 0:
                return text[position + 1 : end], end + 1
        end += 1
    raise InvalidFormat(f"the brace opened in {text[position - 2 :]!r} is never closed")


def _piece(verb: str, modifier: str | None) -> Piece:
    if verb in _TEXTS and verb:
        return _text_piece(_TEXTS[verb], modifier)
    if verb in _NUMBERS and verb:
        return _number_piece(_NUMBERS[verb], modifier)
    if verb == "d":
        write = _timestamp_writer(modifier)
        return lambda record: write(record.timestamp_ms)
    if verb == "a":
        return _attribute_piece(modifier)
    if verb == "h":
        return _header_piece(modifier)
    raise InvalidFormat(
        f"unknown verb %{verb}: one of %t %p %o %k %v %h{{…}} %d %e %a %x %y %i %T %K %V %H %[ %| %] %%"
    )


def _text_piece(read: Callable[[RecordFields], bytes], modifier: str | None) -> Piece:
    if modifier is None:
        return read
    encode: Encode = _known(text_modifier(_unwrapped(modifier)), modifier, "hex, base64, base64raw, unpack[…]")
    return lambda record: encode(read(record))


def _number_piece(read: Callable[[RecordFields], int], modifier: str | None) -> Piece:
    if modifier is None:
        return lambda record: b"%d" % read(record)
    write = _known(number_modifier(modifier), modifier, "ascii, hex64…hex4, big64…big8, little64…little8, byte, bool")
    return lambda record: write(read(record))


def _timestamp_writer(modifier: str | None) -> Callable[[int], bytes]:
    if modifier is None:
        return lambda timestamp_ms: b"%d" % timestamp_ms
    write = number_modifier(modifier) or timestamp_modifier(_unwrapped(modifier))
    return _known(write, modifier, "go[2006-01-02T15:04:05Z07:00], strftime[%F %T], or a number modifier")


def _attribute_piece(modifier: str | None) -> Piece:
    name, _, number = (modifier or "").partition(";")
    if name not in _ATTRIBUTES:
        raise InvalidFormat(f"%a needs one of {{{'}, {'.join(_ATTRIBUTES)}}}")
    select = _ATTRIBUTES[name]
    if name == "compression" and not number:
        return lambda record: _CODECS.get(select(record.attributes), b"unknown")
    plain = "ascii" if number in ("", "number") else number
    write = _known(number_modifier(plain), number, "a number modifier such as big64, hex8 or bool")
    return lambda record: write(select(record.attributes))


def _header_piece(modifier: str | None) -> Piece:
    if modifier is None:
        raise InvalidFormat("%h needs a format for each header in braces, such as %h{ %k=%v }")
    inner = RecordFormat(modifier)

    def render(record: RecordFields) -> bytes:
        return b"".join([inner.render(RecordFields(key=key, value=value)) for key, value in record.headers])

    return render


def _unwrapped(modifier: str) -> tuple[str, str]:
    """`strftime##%F##` → ("strftime", "%F"); a modifier without a wrapped text → (modifier, "")."""
    wrapped = _WRAPPED.match(modifier)
    if wrapped is None:
        return modifier, ""
    return wrapped[1], modifier[wrapped.end() : len(modifier) - len(wrapped[2])]


def _known(writer: T | None, modifier: str, choices: str) -> T:
    if writer is None:
        raise InvalidFormat(f"unknown modifier {{{modifier}}}: one of {choices}")
    return writer
