"""One function per type of config key, so that a row of a key table is a call."""

from __future__ import annotations

from typing import Final, TypedDict, Unpack

from strandline.model.config_keys.key import (
    Allowed,
    Between,
    ConfigKey,
    ConfigKind,
    ConfigMode,
    ConfigValue,
    Synonym,
    text_of,
)

PER_BROKER = ConfigMode.PER_BROKER
CLUSTER_WIDE = ConfigMode.CLUSTER_WIDE
INHERITED: Final = None
"""The default of a topic or group key whose synonyms state it: see `broker.inherit_defaults`."""


class Traits(TypedDict, total=False):
    mode: ConfigMode
    required: bool
    internal: bool
    synonyms: tuple[Synonym, ...]


class Bounds(Traits, total=False):
    at_least: float
    at_most: float
    also: int


class Restriction(Traits, total=False):
    allowed: Allowed


def synonym(name: str) -> tuple[Synonym, ...]:
    return (Synonym(name),)


def boolean(name: str, default: bool | None, doc: str, **traits: Unpack[Traits]) -> ConfigKey:
    return ConfigKey(name, ConfigKind.BOOLEAN, _text(default), doc, **traits)


def integer(name: str, default: int | None, doc: str, **bounds: Unpack[Bounds]) -> ConfigKey:
    return _number(ConfigKind.INT, name, default, doc, bounds)


def short(name: str, default: int | None, doc: str, **bounds: Unpack[Bounds]) -> ConfigKey:
    return _number(ConfigKind.SHORT, name, default, doc, bounds)


def long(name: str, default: int | None, doc: str, **bounds: Unpack[Bounds]) -> ConfigKey:
    return _number(ConfigKind.LONG, name, default, doc, bounds)


def double(name: str, default: float | None, doc: str, **bounds: Unpack[Bounds]) -> ConfigKey:
    return _number(ConfigKind.DOUBLE, name, default, doc, bounds)


def string(name: str, default: str | None, doc: str, **restriction: Unpack[Restriction]) -> ConfigKey:
    return ConfigKey(name, ConfigKind.STRING, default, doc, **restriction)


def listing(name: str, default: str | None, doc: str, **restriction: Unpack[Restriction]) -> ConfigKey:
    return ConfigKey(name, ConfigKind.LIST, default, doc, **restriction)


def class_name(name: str, default: str | None, doc: str, **traits: Unpack[Traits]) -> ConfigKey:
    return ConfigKey(name, ConfigKind.CLASS, default, doc, **traits)


def password(name: str, doc: str, **traits: Unpack[Traits]) -> ConfigKey:
    return ConfigKey(name, ConfigKind.PASSWORD, None, doc, **traits)


def _number(kind: ConfigKind, name: str, default: ConfigValue | None, doc: str, bounds: Bounds) -> ConfigKey:
    low, high, also = bounds.get("at_least"), bounds.get("at_most"), bounds.get("also")
    return ConfigKey(
        name,
        kind,
        _text(default),
        doc,
        allowed=None if low is None and high is None else Between(low, high, also),
        mode=bounds.get("mode", ConfigMode.READ_ONLY),
        required=bounds.get("required", False),
        internal=bounds.get("internal", False),
        synonyms=bounds.get("synonyms", ()),
    )


def _text(default: ConfigValue | None) -> str | None:
    return None if default is None else text_of(default)
