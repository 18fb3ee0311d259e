"""Every declared message, and random values for it; also used by tests/oracle."""

from __future__ import annotations

from collections.abc import Iterator
from importlib import import_module
from pkgutil import iter_modules
from random import Random
from typing import Any

from strandline.model.ids import ZERO_UUID, Uuid
from strandline.protocol import messages
from strandline.protocol.types import Field, Message, Primitive, Struct, layout

ALPHABET = ["a", "Z", "-", "ü", "€", "水", "😀", " ", "\0"]
WIDTHS = {"int8": 8, "int16": 16, "int32": 32, "int64": 64}


def every_message() -> list[type[Message]]:
    found: list[type[Message]] = []
    for module in iter_modules(messages.__path__):
        names = vars(import_module(f"{messages.__name__}.{module.name}"))
        found += [
            value
            for value in names.values()
            if isinstance(value, type) and issubclass(value, Message) and value.__module__.endswith(f".{module.name}")
        ]
    return sorted(found, key=lambda cls: cls.__name__)


def every_version() -> Iterator[tuple[type[Message], int]]:
    for cls in every_message():
        for version in range(cls.versions[0], cls.versions[1] + 1):
            yield cls, version


def random_message(cls: type[Message], version: int, random: Random) -> Message:
    """A message with random values in every field of this version, and defaults in the others."""
    return random_struct(cls, version, cls.is_flexible(version), random)  # type: ignore[return-value]


def random_struct(cls: type[Struct], version: int, flexible: bool, random: Random) -> Struct:
    values: dict[str, Any] = {}
    for field in layout(cls):
        if version in field.present and (flexible or field.tag is None):
            values[field.name] = _random_field(field, version, flexible, random)
    if flexible and random.randrange(4) == 0:
        values["unknown_tags"] = {random.randrange(50, 70_000): _random_bytes(random)}
    return cls(**values)


def _random_field(field: Field, version: int, flexible: bool, random: Random) -> Any:
    if version in field.nullable and random.randrange(4) == 0:
        return None
    if field.tag is not None and random.randrange(3) == 0:
        return field.default_value()
    if field.is_list:
        return [_random_value(field, version, flexible, random) for _ in range(random.randrange(3))]
    return _random_value(field, version, flexible, random)


def _random_value(field: Field, version: int, flexible: bool, random: Random) -> Any:
    if not isinstance(field.kind, Primitive):
        return random_struct(field.kind, version, flexible, random)
    return random_primitive(field.kind.name, random)


def random_primitive(name: str, random: Random) -> Any:
    if name in WIDTHS:
        return _random_signed(WIDTHS[name], random)
    if name == "uint16":
        return random.choice([0, 1, 9092, 0x7FFF, 0x8000, 0xFFFF])
    if name == "uint32":
        return random.choice([0, 1, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF])
    if name == "bool":
        return random.randrange(2) == 1
    if name == "float64":
        return random.choice([0.0, -0.0, 1.5, -1e300, 5e-324])
    if name == "uuid":
        return random.choice([ZERO_UUID, Uuid(random.getrandbits(128).to_bytes(16, "big"))])
    if name == "string":
        return _random_text(random)
    return _random_bytes(random)


def _random_signed(bits: int, random: Random) -> int:
    most = (1 << (bits - 1)) - 1
    return random.choice([0, 1, -1, -2, most, -most - 1, random.randint(-most - 1, most)])


def _random_text(random: Random) -> str:
    longest = random.choice([0, 1, 5, 5, 5, 150])
    return "".join(random.choice(ALPHABET) for _ in range(random.randint(0, longest)))


def _random_bytes(random: Random) -> bytes:
    size = random.choice([0, 1, 3, 200])
    return random.getrandbits(8 * size).to_bytes(size, "big")
