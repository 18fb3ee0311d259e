from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from strandline.node.properties_file import format_properties, parse_properties


@pytest.mark.parametrize(
    ("text", "pairs"),
    [
        ("a=1", {"a": "1"}),
        ("a = 1 \n b:2\nc 3\n", {"a": "1 ", "b": "2", "c": "3"}),
        ("a", {"a": ""}),
        ("a=", {"a": ""}),
        ("=b", {"": "b"}),
        ("a==b", {"a": "=b"}),
        ("a : = b", {"a": "= b"}),
        ("# a=1\n  ! b=2\n\n \t \nc=3", {"c": "3"}),
        ("a=1\r\nb=2\rc=3", {"a": "1", "b": "2", "c": "3"}),
        ("a=1\na=2", {"a": "2"}),
        ("list=a,\\\n   b,\\\n\t c", {"list": "a,b,c"}),
        ("a=1\\\n# not a comment", {"a": "1# not a comment"}),
        ("# a comment \\\na=1", {"a": "1"}),
        ("a=back\\\\\nb=2", {"a": "back\\", "b": "2"}),
        ("a\\ b\\=c\\:d=e", {"a b=c:d": "e"}),
        ("tab=\\t nl=\\n cr=\\r ff=\\f odd=\\q", {"tab": "\t nl=\n cr=\r ff=\f odd=q"}),
        ("u=\\u00e9\\u4E2D", {"u": "é中"}),
        ("pair=\\ud83d\\ude00", {"pair": "😀"}),
        ("utf=é", {"utf": "é"}),
        ("a=1\\", {"a": "1"}),
        ("\\\n# a comment\n\\\n\nb=2", {"b": "2"}),
        ("\ufeffa=1", {"a": "1"}),
    ],
)
def test_a_file_is_read_as_java_reads_it(text: str, pairs: dict[str, str]) -> None:
    assert parse_properties(text.encode()) == pairs


def test_a_file_that_is_not_utf_8_is_latin_1() -> None:
    assert parse_properties(b"name=caf\xe9") == {"name": "café"}


def test_an_invalid_unicode_escape_is_rejected() -> None:
    with pytest.raises(ValueError, match="four hexadecimal digits"):
        parse_properties(b"a=\\u12g4")


def test_properties_are_written_in_ascii_with_one_line_per_pair() -> None:
    written = format_properties({"a b": " 1\n2", "é": "😀"}, comment="hello")
    assert written == b"# hello\na\\ b=\\ 1\\n2\n\\u00E9=\\uD83D\\uDE00\n"


@given(
    st.dictionaries(
        st.text(st.characters(exclude_categories=["Cs"])), st.text(st.characters(exclude_categories=["Cs"]))
    )
)
def test_written_properties_are_read_back(pairs: dict[str, str]) -> None:
    assert parse_properties(format_properties(pairs)) == pairs


@given(st.binary(max_size=200))
def test_any_bytes_are_parsed_or_rejected(data: bytes) -> None:
    try:
        parsed = parse_properties(data)
    except ValueError:
        return
    assert all(isinstance(value, str) for value in parsed.values())
