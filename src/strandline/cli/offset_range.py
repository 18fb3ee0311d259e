"""The offset language of `consume -o`: where to start in each partition and, optionally, where to stop.

Owns the grammar only; `cli/consume` resolves an `OffsetSpec` to an offset by ListOffsets. The language is rpk's (start,
end, +N, -N, N, N:M, :M, N:end, @time, @time:time), and each half may be of any kind.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime

import msgspec

EXAMPLES = "start, end, :end, 47, 100:200, +10, -100, -100:end, @-1h, @2024-02-14:1h, @1622505600000:end"


class AfterStart(msgspec.Struct, frozen=True):
    """An offset: this many after the log start offset."""

    count: int = 0


class BeforeEnd(msgspec.Struct, frozen=True):
    """An offset: this many before the current end of the partition."""

    count: int = 0


class AtOffset(msgspec.Struct, frozen=True):
    offset: int


class AtTime(msgspec.Struct, frozen=True):
    """The first record with this timestamp or a later one."""

    timestamp_ms: int


OffsetSpec = AfterStart | BeforeEnd | AtOffset | AtTime


class OffsetRange(msgspec.Struct, frozen=True):
    start: OffsetSpec
    end: OffsetSpec | None
    """None: continue as records arrive."""


class InvalidOffsets(ValueError):
    """The text is not a valid range of offsets; the message gives examples."""


_START_WORDS = ("start", "oldest")
_END_WORDS = ("end", "newest")
_DURATION_UNITS_MS = {
    "ns": 1e-6,
    "us": 1e-3,
    "µs": 1e-3,
    "ms": 1,
    "s": 1_000,
    "m": 60_000,
    "h": 3_600_000,
    "hr": 3_600_000,
    "d": 86_400_000,
    "w": 604_800_000,
}
_DURATION_PART = re.compile(r"(\d+(?:\.\d*)?|\.\d+)(ns|us|µs|ms|hr|s|m|h|d|w)")
_TIME_END = r"(?=:|$)"
_MILLISECONDS = re.compile(r"\d{13}" + _TIME_END)
_SECONDS = re.compile(r"\d{9,10}" + _TIME_END)
_DAY = re.compile(r"\d{4}-\d{2}-\d{2}" + _TIME_END)
_RFC3339 = re.compile(r"\d{4}-\d{2}-\d{2}[Tt ]\d{2}:\d{2}:\d{2}(\.\d+)?([Zz]|[+-]\d{2}:\d{2})?" + _TIME_END)
_LEGACY_RANGE = re.compile(r"(\d+)-(\d+|end)")


def parse_offsets(text: str, wall_ms: int) -> OffsetRange:
    """`wall_ms` is the current time: durations count from it, or from the first time of a range."""
    legacy = _LEGACY_RANGE.fullmatch(text)
    if legacy:
        text = f"{legacy[1]}:{legacy[2]}"
    if text.startswith("@"):
        found = _parse_from_time(text, wall_ms)
    else:
        first, colon, rest = text.partition(":")
        start = _parse_offset(first, text) if first else AfterStart()
        if not (first or rest):
            raise InvalidOffsets(_unreadable(text))
        found = OffsetRange(start, _parse_end(rest, text, wall_ms, None) if colon else None)
    if isinstance(found.start, AtOffset) and isinstance(found.end, AtOffset) and found.end.offset <= found.start.offset:
        raise InvalidOffsets(f"offsets {text!r} end at or before their start: give the smaller offset first")
    return found


def _parse_from_time(text: str, wall_ms: int) -> OffsetRange:
    rest = text[1:]
    since: int | None = None
    start: OffsetSpec = AfterStart()
    if rest.startswith("start:") or rest == "start":
        rest = rest[5:]
    elif not rest.startswith(":"):
        length, timestamp_ms, absolute = _parse_time(rest, text, wall_ms)
        start, rest = AtTime(timestamp_ms), rest[length:]
        since = timestamp_ms if absolute else None
    elif rest == ":":
        raise InvalidOffsets(_unreadable(text))
    return OffsetRange(start, _parse_end(rest[1:], text, wall_ms, since, in_time=True) if rest else None)


def _parse_end(rest: str, text: str, wall_ms: int, since_ms: int | None, *, in_time: bool = False) -> OffsetSpec | None:
    if not rest:
        return None
    if rest.lstrip("@") in _END_WORDS:
        return BeforeEnd()
    if not (in_time or rest.startswith("@")):
        return _parse_offset(rest, text)
    rest = rest.removeprefix("@")
    length, timestamp_ms, _ = _parse_time(rest, text, wall_ms if since_ms is None else since_ms)
    if length != len(rest):
        raise InvalidOffsets(f"offsets {text!r}: unexpected {rest[length:]!r} after the end time")
    return AtTime(timestamp_ms)


def _parse_offset(half: str, text: str) -> OffsetSpec:
    if half in _START_WORDS:
        return AfterStart()
    if half in _END_WORDS:
        return BeforeEnd()
    sign, digits = (half[:1], half[1:]) if half[:1] in "+-" else ("", half)
    if not (digits.isascii() and digits.isdigit()):
        raise InvalidOffsets(_unreadable(text))
    number = int(digits)
    if sign == "+":
        return AfterStart(number)
    return BeforeEnd(number) if sign == "-" else AtOffset(number)


def _parse_time(rest: str, text: str, origin_ms: int) -> tuple[int, int, bool]:
    """(characters read, milliseconds since the epoch, whether the text was a time and not a duration)."""
    if found := _MILLISECONDS.match(rest):
        return len(found[0]), int(found[0]), True
    if found := _SECONDS.match(rest):
        return len(found[0]), int(found[0]) * 1_000, True
    for pattern in (_RFC3339, _DAY):
        if found := pattern.match(rest):
            return len(found[0]), _instant_ms(found[0], text), True
    duration = rest.partition(":")[0]
    return len(duration), origin_ms + _duration_ms(duration, text), False


def _instant_ms(written: str, text: str) -> int:
    try:
        instant = datetime.fromisoformat(written.upper())
    except ValueError as error:
        raise InvalidOffsets(f"offsets {text!r}: {written!r} is not a date ({error})") from error
    if instant.tzinfo is None:
        instant = instant.replace(tzinfo=UTC)
    return round(instant.timestamp() * 1_000)


def _duration_ms(written: str, text: str) -> int:
    unsigned = written[1:] if written[:1] in ("-", "+") else written
    position, total = 0, 0.0
    while found := _DURATION_PART.match(unsigned, position):
        total += float(found[1]) * _DURATION_UNITS_MS[found[2]]
        position = found.end()
    if position == 0 or position != len(unsigned):
        raise InvalidOffsets(
            f"offsets {text!r}: {written!r} is neither a time (13 digits of milliseconds, 10 of seconds, YYYY-MM-DD, "
            "YYYY-MM-DDTHH:MM:SSZ) nor a duration (90s, 1h30m, -2d)"
        )
    return -round(total) if written.startswith("-") else round(total)


def _unreadable(text: str) -> str:
    return f"offsets {text!r} are invalid; examples: {EXAMPLES}"
