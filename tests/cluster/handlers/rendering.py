"""Responses as text, with placeholders for what may differ between two nodes or two runs (ids, ports, wording)."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from strandline.model.errors import ErrorCode
from strandline.model.ids import ZERO_UUID, Uuid
from strandline.protocol.types import Message, Struct, layout
from strandline.records.batch import batches

WIDTH = 150
# Wording and locations of a node: rendered as present or absent.
_SOME_TEXT = frozenset({"error_message", "documentation", "host", "log_dir", "cluster_id"})
_SOME_NUMBER = frozenset({"port", "total_bytes", "usable_bytes", "log_append_time_ms", "broker_epoch"})
# Member ids end in a UUID.
_MEMBER_ID = re.compile(r"(.*)-[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_MEMBER_IDS = frozenset({"member_id", "leader"})
# Numbers that a node chooses: equal numbers get equal placeholders.
_CHOSEN = {"producer_id": "producer", "session_id": "session", "producer_id_start": "producer"}


@dataclass(slots=True)
class Names:
    """The placeholders of a transcript for names and ids that differ from run to run."""

    strings: dict[str, str] = field(default_factory=dict)
    ids: dict[Any, str] = field(default_factory=dict)
    numbers: dict[tuple[str, int], str] = field(default_factory=dict)
    members: dict[str, str] = field(default_factory=dict)

    def string(self, text: str) -> str:
        return self.strings.get(text, text)

    def uuid(self, value: Uuid) -> str:
        if value == ZERO_UUID:
            return "none"
        return self.ids.setdefault(value, f"id{len(self.ids) + 1}")

    def member(self, text: str) -> str:
        """A member id with a placeholder for its UUID."""
        found = _MEMBER_ID.fullmatch(text)
        if found is None:
            return self.string(text)
        known = self.members.setdefault(text, f"uuid{len(self.members) + 1}")
        return f"{self.string(found[1])}-{known}"

    def number(self, kind: str, value: int) -> str:
        known = sum(1 for each, _ in self.numbers if each == kind)
        return self.numbers.setdefault((kind, value), f"{kind}{known + 1}")


@dataclass(frozen=True, slots=True)
class Style:
    version: int
    flexible: bool
    names: Names
    unordered: frozenset[str]
    mask: frozenset[str]


def render(
    message: Message, version: int, names: Names, unordered: Iterable[str] = (), mask: Iterable[str] = ()
) -> str:
    style = Style(version, message.is_flexible(version), names, frozenset(unordered), frozenset(mask))
    return _wrapped(_fields(message, style), "")


# A rendered value is a text, or a list of values in brackets (a list) or braces (a struct).
Tree = str | tuple[str, list[Any]]


def _fields(struct: Struct, style: Style) -> list[tuple[str, Tree]]:
    shown = []
    failed = getattr(struct, "error_code", 0) != 0
    for each in layout(type(struct)):
        value = getattr(struct, each.name)
        if each.name == "error_message" and failed:
            continue  # the presence of an explanation may differ
        if each.name == "batch_index_error_message" or style.version not in each.present:
            continue
        # Defaults are left out, so that versions which differ only in unused fields are rendered alike.
        if value == each.default and not each.name.endswith("error_code"):
            continue
        shown.append((each.name, _value(each.name, value, style)))
    return shown


def _value(name: str, value: Any, style: Style) -> Tree:
    if value is None:
        return "null"
    if name in style.mask:
        return "…"
    if isinstance(value, list):
        items = [("", _value(name, item, style)) for item in value]
        if name in style.unordered:
            items.sort(key=lambda item: _flat(item[1]))
        return "[]", items
    if isinstance(value, Struct):
        return "{}", _fields(value, style)
    if isinstance(value, Uuid):
        return style.names.uuid(value)
    if isinstance(value, str):
        return _text(name, value, style)
    if isinstance(value, bytes | bytearray | memoryview):
        return _batches(bytes(value)) if name == "records" else value.hex() or "''"
    return _number(name, value, style)


def _text(name: str, value: str, style: Style) -> str:
    if name in _SOME_TEXT and value:
        return "text"
    value = style.names.member(value) if name in _MEMBER_IDS else style.names.string(value)
    return value if value and " " not in value else repr(value)


def _number(name: str, value: Any, style: Style) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if name.endswith("error_code"):
        return ErrorCode(value).name
    if name in _CHOSEN and (value > 0 or (value == 0 and name.startswith("producer"))):
        return style.names.number(_CHOSEN[name], value)
    if name in _SOME_NUMBER and value > 0:
        return "number"
    return str(value)


def _batches(data: bytes) -> Tree:
    """Complete batches only: where a response ends within a batch depends on the node."""
    return "[]", [
        ("", f"{header.base_offset}-{header.last_offset}/epoch{header.partition_leader_epoch}/{header.crc:08x}")
        for _, header in batches(data)
    ]


def _flat(tree: Tree) -> str:
    if isinstance(tree, str):
        return tree
    (opening, closing), items = tree
    return opening + " ".join(_labelled(name, _flat(item)) for name, item in items) + closing


def _labelled(name: str, text: str) -> str:
    return f"{name}={text}" if name else text


def _wrapped(items: list[tuple[str, Tree]], indent: str) -> str:
    """One line if it fits; otherwise one line per list element."""
    line = indent + " ".join(_labelled(name, _flat(item)) for name, item in items)
    if len(line) <= WIDTH or not items:
        return line
    lines = [indent]
    for name, item in items:
        text = _labelled(name, _flat(item))
        if isinstance(item, str) or len(lines[-1]) + len(text) < WIDTH:
            lines[-1] += ("" if lines[-1] == indent else " ") + text
        else:
            (opening, closing), inner = item
            lines[-1] += ("" if lines[-1] == indent else " ") + _labelled(name, opening)
            groups = [[each] for each in inner] if opening == "[" else [inner]
            lines += [_wrapped(group, indent + "  ") for group in groups]
            lines[-1] += closing
    return "\n".join(lines)
