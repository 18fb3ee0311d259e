"""Parses and formats Java's .properties files: server.properties and meta.properties. No IO.

Parsed as in Java (separators `=`, `:` or blanks, continued lines, escapes, comments), except that a file may be UTF-8,
which is what editors write today. Formatted in ASCII, which every reader decodes alike.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

_BLANKS: Final = " \t\f"
_LINE_END: Final = re.compile(r"\r\n|\n|\r")
_ESCAPED: Final = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
_ESCAPES: Final = {"\\": "\\\\", "\t": "\\t", "\n": "\\n", "\r": "\\r", "\f": "\\f"}


def parse_properties(data: bytes) -> dict[str, str]:
    """Parses a properties file, in its order; the last value of a repeated key is used."""
    properties: dict[str, str] = {}
    for line in _logical_lines(_decoded(data)):
        key_end = _end_of_key(line)
        value_start = _skip_blanks(line, key_end)
        if value_start < len(line) and line[value_start] in "=:":
            value_start = _skip_blanks(line, value_start + 1)
        properties[_unescaped(line[:key_end])] = _unescaped(line[value_start:])
    return properties


def format_properties(properties: Mapping[str, str], comment: str | None = None) -> bytes:
    lines = [f"# {comment}"] if comment else []
    for key, value in properties.items():
        escaped_value = _escaped(value)
        if escaped_value[:1] == " ":
            escaped_value = "\\" + escaped_value
        lines.append(f"{_escaped(key, separators='=: #!')}={escaped_value}")
    return ("\n".join(lines) + "\n").encode("ascii")


def _decoded(data: bytes) -> str:
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError:
        return data.decode("latin-1")


def _logical_lines(text: str) -> list[str]:
    """Lines without comments and blank lines, with continued lines joined; no leading blanks."""
    lines: list[str] = []
    continued = False
    for natural in _LINE_END.split(text):
        line = natural.lstrip(_BLANKS)
        if not continued and (not line or line[0] in "#!"):
            continue
        backslashes = len(line) - len(line.rstrip("\\"))
        goes_on = backslashes % 2 == 1
        if goes_on:
            line = line[:-1]
        if continued:
            lines[-1] += line
        elif line:
            lines.append(line)
        # A backslash alone on its line continues nothing: the next line may be a comment.
        continued = goes_on and (continued or bool(line))
    return lines


def _end_of_key(line: str) -> int:
    position = 0
    while position < len(line) and line[position] not in "=:" + _BLANKS:
        position += 2 if line[position] == "\\" else 1
    return min(position, len(line))


def _skip_blanks(line: str, position: int) -> int:
    while position < len(line) and line[position] in _BLANKS:
        position += 1
    return position


def _unescaped(text: str) -> str:
    if "\\" not in text:
        return text
    plain = re.sub(r"\\(u.{0,4}|.)", _unescape_one, text, flags=re.DOTALL)
    # Two escapes may be a surrogate pair.
    return plain.encode("utf-16-be", "surrogatepass").decode("utf-16-be", "replace")


def _unescape_one(match: re.Match[str]) -> str:
    escape = match[1]
    if escape[0] != "u":
        return _ESCAPED.get(escape, escape)
    if not re.fullmatch(r"u[0-9a-fA-F]{4}", escape):
        raise ValueError(f"\\{escape} is not a Unicode escape: \\u needs four hexadecimal digits")
    return chr(int(escape[1:], 16))


def _escaped(text: str, separators: str = "") -> str:
    characters = []
    for character in text:
        if character in separators:
            characters.append("\\" + character)
        elif character in _ESCAPES:
            characters.append(_ESCAPES[character])
        elif " " <= character <= "~":
            characters.append(character)
        else:
            units = character.encode("utf-16-be")
            characters.extend(f"\\u{units[at]:02X}{units[at + 1]:02X}" for at in range(0, len(units), 2))
    return "".join(characters)
