"""Modifiers of format verbs: numbers in a fixed width, text as hex or base64, timestamps by a layout.

Called by `cli/record_format` while it compiles a format; each function returns None for an unknown modifier.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Callable
from datetime import UTC, datetime

Encode = Callable[[bytes], bytes]
WriteNumber = Callable[[int], bytes]

_HEX = {"hex64": 16, "hex32": 8, "hex16": 4, "hex8": 2, "hex4": 1}
_FIXED = {
    "big64": (8, "big"),
    "big32": (4, "big"),
    "big16": (2, "big"),
    "big8": (1, "big"),
    "little64": (8, "little"),
    "little32": (4, "little"),
    "little16": (2, "little"),
    "little8": (1, "little"),
    "byte": (1, "big"),
}


def number_modifier(name: str) -> WriteNumber | None:
    """Numbers keep only the low bits that fit the requested width."""
    if name == "ascii":
        return lambda number: b"%d" % number
    if name == "bool":
        return lambda number: b"true" if number else b"false"
    if name in _HEX:
        digits = _HEX[name]
        return lambda number: f"{number & (1 << 4 * digits) - 1:0{digits}x}".encode()
    if name not in _FIXED:
        return None
    size, order = _FIXED[name]
    if order == "big":
        return lambda number: (number & (1 << 8 * size) - 1).to_bytes(size, "big")
    return lambda number: (number & (1 << 8 * size) - 1).to_bytes(size, "little")


def text_modifier(modifier: tuple[str, str]) -> Encode | None:
    name, layout = modifier
    if name == "hex":
        return lambda text: text.hex().encode()
    if name == "base64":
        return base64.b64encode
    if name == "base64raw":
        return lambda text: base64.b64encode(text).rstrip(b"=")
    if name == "unpack" and layout and not re.search(r"[^x<>bBhHiIqQc.s$]", layout):
        return lambda text: _unpack(layout, text)
    return None


_UNPACKED_SIZES = {"b": 1, "h": 2, "i": 4, "q": 8, "c": 1, ".": 1}


def _unpack(layout: str, text: bytes) -> bytes:
    """Little endian until a `>`, as in rpk."""
    written = bytearray()
    big, position = False, 0
    for step in layout:
        if step in "<>":
            big = step == ">"
        elif step == "x":
            written += b" "
        elif step == "s":
            written += text[position:]
            position = len(text)
        elif step == "$":
            if position != len(text):
                return bytes(written) + b"unpack error: %d bytes are left" % (len(text) - position)
        else:
            size = _UNPACKED_SIZES[step.lower()]
            piece = text[position : position + size]
            if len(piece) < size:
                return bytes(written) + b"unpack error: %d bytes are missing" % (size - len(piece))
            position += size
            number = int.from_bytes(piece, "big" if big else "little", signed=step.islower())
            written += piece if step in "c." else b"%d" % number
    return bytes(written)


def timestamp_modifier(modifier: tuple[str, str]) -> WriteNumber | None:
    name, layout = modifier
    if name == "strftime":
        return lambda timestamp_ms: _instant(timestamp_ms).strftime(layout).encode()
    if name == "go":
        steps = _go_steps(layout)
        return lambda timestamp_ms: "".join([step(_instant(timestamp_ms)) for step in steps]).encode()
    return None


def _instant(timestamp_ms: int) -> datetime:
    seconds, milliseconds = divmod(max(timestamp_ms, -62_135_596_800_000), 1_000)
    try:
        return datetime.fromtimestamp(seconds, UTC).replace(microsecond=milliseconds * 1_000)
    except (OverflowError, ValueError, OSError):
        return datetime.max.replace(tzinfo=UTC)


GoStep = Callable[[datetime], str]

# A Go layout is one reference time as Go would print it; longer tokens come first so that they match first.
_GO_WORDS: dict[str, GoStep] = {
    "January": lambda at: at.strftime("%B"),
    "Jan": lambda at: at.strftime("%b"),
    "Monday": lambda at: at.strftime("%A"),
    "Mon": lambda at: at.strftime("%a"),
    "MST": lambda _at: "UTC",
    "2006": lambda at: f"{at.year:04}",
    "Z07:00": lambda _at: "Z",
    "Z0700": lambda _at: "Z",
    "Z07": lambda _at: "Z",
    "-07:00": lambda _at: "+00:00",
    "-0700": lambda _at: "+0000",
    "-07": lambda _at: "+00",
    "002": lambda at: at.strftime("%j"),
    "01": lambda at: f"{at.month:02}",
    "02": lambda at: f"{at.day:02}",
    "03": lambda at: f"{at.hour % 12 or 12:02}",
    "04": lambda at: f"{at.minute:02}",
    "05": lambda at: f"{at.second:02}",
    "06": lambda at: f"{at.year % 100:02}",
    "15": lambda at: f"{at.hour:02}",
    "_2": lambda at: f"{at.day:2}",
    "PM": lambda at: "PM" if at.hour >= 12 else "AM",
    "pm": lambda at: "pm" if at.hour >= 12 else "am",
    "1": lambda at: str(at.month),
    "2": lambda at: str(at.day),
    "3": lambda at: str(at.hour % 12 or 12),
    "4": lambda at: str(at.minute),
    "5": lambda at: str(at.second),
}
_GO_TOKEN = re.compile(r"[.,]0+(?!\d)|[.,]9+(?!\d)|" + "|".join(re.escape(word) for word in _GO_WORDS))


def _go_steps(layout: str) -> list[GoStep]:
    steps: list[GoStep] = []
    position = 0
    for token in _GO_TOKEN.finditer(layout):
        steps.append(_constant(layout[position : token.start()]))
        steps.append(_GO_WORDS[token[0]] if token[0] in _GO_WORDS else _fraction(token[0]))
        position = token.end()
    steps.append(_constant(layout[position:]))
    return steps


def _constant(text: str) -> GoStep:
    return lambda _at: text


def _fraction(token: str) -> GoStep:
    """`.000` prints all digits, `.999` omits trailing zeros (and a point without digits)."""

    def write(at: datetime) -> str:
        digits = f"{at.microsecond:06}000"[: len(token) - 1]
        if token[1] == "9":
            digits = digits.rstrip("0")
        return token[0] + digits if digits else ""

    return write
