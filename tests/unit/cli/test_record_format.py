from __future__ import annotations

import pytest

from strandline.cli.record_format import InvalidFormat, RecordFields, RecordFormat

RECORD = RecordFields(
    topic=b"orders",
    partition=3,
    offset=1234,
    timestamp_ms=1_644_800_705_250,  # 2022-02-14T01:05:05.250Z
    key=b"user",
    value=b"\x00\x00\x01\x02hi",
    headers=[(b"a", b"1"), (b"b", None)],
    leader_epoch=7,
    attributes=0b0001_0100 | 0b1000,
    producer_id=99,
    producer_epoch=2,
    log_start_offset=10,
    last_stable_offset=2000,
    high_watermark=2001,
    count=5,
)

RENDERINGS = {
    r"%t %p %o %k\n": b"orders 3 1234 user\n",
    "%v": b"\x00\x00\x01\x02hi",
    "%T %K %V %H": b"6 4 6 2",
    "%T %t{hex}": b"6 6f7264657273",
    "%k{base64} %k{base64raw}": b"dXNlcg== dXNlcg",
    "%v{unpack[>Is]}": b"258hi",
    "%v{unpack[<is$]}": b"33619968hi",
    "%v{unpack[>I$]}": b"258unpack error: 2 bytes are left",
    "%k{unpack[q]}": b"unpack error: 4 bytes are missing",
    "%h{ %k=%v }": b" a=1  b= ",
    "%h{%k=%v{hex};}": b"a=31;b=;",
    "%h{%{%k%}}": b"{a}{b}",
    "%e %x %y": b"7 99 2",
    "%[ %| %]": b"10 2000 2001",
    "%i": b"5",
    "100%% %{%}": b"100% {}",
    r"\t\r\\\x41": b"\t\r\\A",
    "%o{hex64} %o{hex32} %o{hex16} %o{hex8} %o{hex4}": b"00000000000004d2 000004d2 04d2 d2 2",
    "%o{big64}": (1234).to_bytes(8, "big"),
    "%o{big16}%o{little16}": b"\x04\xd2\xd2\x04",
    "%o{byte}%o{big8}%o{little8}": b"\xd2\xd2\xd2",
    "%o{bool} %o{ascii}": b"true 1234",
    "%d": b"1644800705250",
    "%d{hex64}": b"0000017ef5c302e2",
    "%d{strftime[%F %T]}": b"2022-02-14 01:05:05",
    "%d{strftime### [%F] ###}": b" [2022-02-14] ",
    "%d{go[2006-01-02T15:04:05Z07:00]}": b"2022-02-14T01:05:05Z",
    "%d{go[2006-01-02T15:04:05.000Z07:00]}": b"2022-02-14T01:05:05.250Z",
    "%d{go[2006-01-02 15:04:05.999999 -0700 MST]}": b"2022-02-14 01:05:05.25 +0000 UTC",
    "%d{go{{Mon Jan _2 3:04PM 2006}}}": b"Mon Feb 14 1:05AM 2022",
    "%a{compression} %a{compression;number} %a{compression;hex8}": b"zstd 4 04",
    "%a{timestamp-type} %a{transactional-bit;bool} %a{control-bit;bool}": b"1 true false",
    "é%t": "éorders".encode(),
}


@pytest.mark.parametrize("text", RENDERINGS)
def test_every_verb_and_modifier_is_rendered(text: str) -> None:
    assert RecordFormat(text).render(RECORD) == RENDERINGS[text]


def test_a_null_key_and_value_print_as_empty_text() -> None:
    assert RecordFormat("[%k|%v|%K]").render(RecordFields()) == b"[||0]"


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("%z", "unknown verb %z"),
        ("%", "unknown verb %"),
        (r"\q", "unknown escape"),
        (r"\xg1", "two hexadecimal digits"),
        ("%v{rot13}", "unknown modifier {rot13}"),
        ("%p{hex}", "unknown modifier {hex}"),
        ("%v{unpack[Z]}", "unknown modifier"),
        ("%d{strftime[%F}", "never closed"),
        ("%h{ %k", "never closed"),
        ("%h", "needs a format for each header"),
        ("%a", "%a needs one of"),
        ("%a{colour}", "%a needs one of"),
    ],
)
def test_an_invalid_format_is_rejected_with_the_reason(text: str, why: str) -> None:
    with pytest.raises(InvalidFormat) as error:
        RecordFormat(text)
    assert why in str(error.value)
