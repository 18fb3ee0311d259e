"""Compares a message of ours with the JSON that Kafka's own converter prints for the same bytes."""

from __future__ import annotations

import base64
import re
from typing import Any

from strandline.model.ids import Uuid
from strandline.protocol.types import Field, Message, Primitive, Struct, layout


def snake_case(kafka_name: str) -> str:
    """Our name for a field: KRaftVersion and kRaftVersion are kraft_version, EndPoints is end_points."""
    name = re.sub("[kK]Raft", "Kraft", kafka_name)
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower()


def differences(message: Message, version: int, json: dict[str, Any]) -> list[str]:
    """Empty when both have the same values."""
    return list(_struct(message, version, json, type(message).__name__))


def _struct(value: Struct, version: int, json: dict[str, Any], where: str) -> list[str]:
    found = []
    theirs = {snake_case(name): item for name, item in json.items()}
    for field in layout(type(value)):
        ours = getattr(value, field.name)
        if field.name in theirs:
            found += _field(field, ours, version, theirs.pop(field.name), f"{where}.{field.name}")
        elif ours != field.default_value():
            found.append(f"{where}.{field.name}: {ours!r}, a field that Kafka does not have")
    return found + [f"{where}.{name}: we have no such field" for name in theirs]


def _field(field: Field, ours: Any, version: int, json: Any, where: str) -> list[str]:
    if json is None or ours is None:
        return [] if json is ours else [f"{where}: {ours!r}, where Kafka says {json!r}"]
    if not field.is_list:
        return _value(field, ours, version, json, where)
    if len(ours) != len(json):
        return [f"{where}: {len(ours)} elements, where Kafka has {len(json)}"]
    return [
        found
        for index, (our, their) in enumerate(zip(ours, json, strict=True))
        for found in _value(field, our, version, their, f"{where}[{index}]")
    ]


def _value(field: Field, ours: Any, version: int, json: Any, where: str) -> list[str]:
    if not isinstance(field.kind, Primitive):
        return _struct(ours, version, json, where)
    if field.kind.name == "records":
        return []  # The converter leaves records out; the bytes are compared elsewhere.
    theirs = json
    if field.kind.name == "uuid":
        theirs = Uuid.parse(json)
    elif field.kind.name == "bytes":
        theirs = base64.b64decode(json)
    return [] if ours == theirs else [f"{where}: {ours!r}, where Kafka says {theirs!r}"]
