from __future__ import annotations

import pytest

from strandline.cli.offset_range import (
    AfterStart,
    AtOffset,
    AtTime,
    BeforeEnd,
    InvalidOffsets,
    OffsetRange,
    parse_offsets,
)

NOW_MS = 1_700_000_000_000
HOUR_MS = 3_600_000
VALENTINE_MS = 1_644_796_800_000  # 2022-02-14T00:00:00Z

PARSED = {
    "start": OffsetRange(AfterStart(), None),
    "oldest": OffsetRange(AfterStart(), None),
    "end": OffsetRange(BeforeEnd(), None),
    "newest": OffsetRange(BeforeEnd(), None),
    ":end": OffsetRange(AfterStart(), BeforeEnd()),
    "start:end": OffsetRange(AfterStart(), BeforeEnd()),
    "+3": OffsetRange(AfterStart(3), None),
    "+3:end": OffsetRange(AfterStart(3), BeforeEnd()),
    "-100": OffsetRange(BeforeEnd(100), None),
    "-100:end": OffsetRange(BeforeEnd(100), BeforeEnd()),
    "-100:-50": OffsetRange(BeforeEnd(100), BeforeEnd(50)),
    "47": OffsetRange(AtOffset(47), None),
    "47:": OffsetRange(AtOffset(47), None),
    ":47": OffsetRange(AfterStart(), AtOffset(47)),
    "100:200": OffsetRange(AtOffset(100), AtOffset(200)),
    "100-200": OffsetRange(AtOffset(100), AtOffset(200)),
    "100:end": OffsetRange(AtOffset(100), BeforeEnd()),
    "@1622505600000": OffsetRange(AtTime(1_622_505_600_000), None),
    "@1622505600": OffsetRange(AtTime(1_622_505_600_000), None),
    "@1622505600:": OffsetRange(AtTime(1_622_505_600_000), None),
    "@1622505600:end": OffsetRange(AtTime(1_622_505_600_000), BeforeEnd()),
    "@2022-02-14": OffsetRange(AtTime(VALENTINE_MS), None),
    "@2022-02-14:1h": OffsetRange(AtTime(VALENTINE_MS), AtTime(VALENTINE_MS + HOUR_MS)),
    "@2022-02-14T01:00:00Z": OffsetRange(AtTime(VALENTINE_MS + HOUR_MS), None),
    "@2022-02-14T01:00:00.250Z": OffsetRange(AtTime(VALENTINE_MS + HOUR_MS + 250), None),
    "@2022-02-14T02:00:00+01:00": OffsetRange(AtTime(VALENTINE_MS + HOUR_MS), None),
    "@2022-02-14T01:00:00Z:2022-02-14T02:00:00Z": OffsetRange(
        AtTime(VALENTINE_MS + HOUR_MS), AtTime(VALENTINE_MS + 2 * HOUR_MS)
    ),
    "@-1h": OffsetRange(AtTime(NOW_MS - HOUR_MS), None),
    "@-1h30m": OffsetRange(AtTime(NOW_MS - HOUR_MS * 3 // 2), None),
    "@-1.5h": OffsetRange(AtTime(NOW_MS - HOUR_MS * 3 // 2), None),
    "@-2d": OffsetRange(AtTime(NOW_MS - 48 * HOUR_MS), None),
    "@-48h:-24h": OffsetRange(AtTime(NOW_MS - 48 * HOUR_MS), AtTime(NOW_MS - 24 * HOUR_MS)),
    "@-48h:@-24h": OffsetRange(AtTime(NOW_MS - 48 * HOUR_MS), AtTime(NOW_MS - 24 * HOUR_MS)),
    "@-1m:end": OffsetRange(AtTime(NOW_MS - 60_000), BeforeEnd()),
    "@1m3ms": OffsetRange(AtTime(NOW_MS + 60_003), None),
    "@:-1hr": OffsetRange(AfterStart(), AtTime(NOW_MS - HOUR_MS)),
    "@start:end": OffsetRange(AfterStart(), BeforeEnd()),
    "@start:-1h": OffsetRange(AfterStart(), AtTime(NOW_MS - HOUR_MS)),
    "10:@-1h": OffsetRange(AtOffset(10), AtTime(NOW_MS - HOUR_MS)),
}


@pytest.mark.parametrize("text", PARSED)
def test_every_form_of_the_language_is_parsed(text: str) -> None:
    assert parse_offsets(text, NOW_MS) == PARSED[text]


@pytest.mark.parametrize(
    "text",
    [
        "",
        ":",
        "@",
        "@:",
        "begin",
        "1:2:3",
        "12x",
        "--3",
        "+",
        "-",
        "@yesterday",
        "@2022-02-31",
        "@-1h:noon",
        "@1h:end:end",
    ],
)
def test_other_text_is_rejected_with_the_text_in_the_message(text: str) -> None:
    with pytest.raises(InvalidOffsets, match="offsets ") as error:
        parse_offsets(text, NOW_MS)
    assert repr(text) in str(error.value)


def test_an_end_before_the_start_is_rejected() -> None:
    with pytest.raises(InvalidOffsets, match="smaller offset first"):
        parse_offsets("200:100", NOW_MS)
