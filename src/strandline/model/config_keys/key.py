"""A config key: its name, type, default, allowed values, and whether it can change while a node runs.

The tables `broker`, `topic` and `group` consist of these. `parse` and `check` are called for every value in a
properties file or an AlterConfigs request: it is a value of the key's type within its bounds, or a `ConfigError` with
the key, the value and what is allowed. Parsing accepts what Apache Kafka accepts (tests/oracle/configs), with two
exceptions: any non-empty class name is valid, because the classes exist in Java only; and a DOUBLE is a decimal number,
never NaN or infinity.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from enum import IntEnum, StrEnum
from typing import Final, Protocol

import msgspec

ConfigValue = bool | int | float | str | tuple[str, ...]

MAX_SHORT: Final = 2**15 - 1
MAX_INT: Final = 2**31 - 1
MAX_LONG: Final = 2**63 - 1


class ConfigKind(IntEnum):
    """Value types, with their codes in DescribeConfigs. UNKNOWN is the type of keys that are in no table."""

    UNKNOWN = 0
    BOOLEAN = 1
    STRING = 2
    INT = 3
    SHORT = 4
    LONG = 5
    DOUBLE = 6
    LIST = 7
    CLASS = 8
    PASSWORD = 9


class ConfigMode(StrEnum):
    """Whether a broker key can be changed while brokers run: not, for one broker, or for all of them."""

    READ_ONLY = "read-only"
    PER_BROKER = "per-broker"
    CLUSTER_WIDE = "cluster-wide"


class ConfigSource(IntEnum):
    """The source of an effective value, with its code in DescribeConfigs."""

    UNKNOWN = 0
    TOPIC = 1
    BROKER = 2
    DEFAULT_BROKER = 3
    STATIC_BROKER = 4
    DEFAULT = 5
    BROKER_LOGGER = 6
    CLIENT_METRICS = 7
    GROUP = 8


class ConfigError(ValueError):
    """An invalid value: the key, the value, and what is allowed."""

    def __init__(self, key: str, value: str | None, why: str) -> None:
        super().__init__(f"{key}={value}: {why}" if value is not None else f"{key}: {why}")
        self.key = key
        self.value = value
        self.why = why


class Allowed(Protocol):
    """A rule for parsed values. `problem` completes the sentence "key=value: …", or is None for a valid value."""

    def problem(self, value: ConfigValue) -> str | None: ...


class Between(msgspec.Struct, frozen=True):
    """A number within bounds (both included), or one special number outside of them."""

    low: float | None = None
    high: float | None = None
    also: int | None = None

    def problem(self, value: ConfigValue) -> str | None:
        assert isinstance(value, int | float)
        if self.also is not None and value == self.also:
            return None
        if (self.low is None or value >= self.low) and (self.high is None or value <= self.high):
            return None
        if self.high is None:
            return f"must be at least {self.low}"
        if self.low is None:
            return f"must be at most {self.high}"
        special = f", or {self.also}" if self.also is not None else ""
        return f"must be from {self.low} to {self.high}{special}"


class OneOf(msgspec.Struct, frozen=True):
    names: tuple[str, ...]
    ignore_case: bool = False

    def problem(self, value: ConfigValue) -> str | None:
        assert isinstance(value, str)
        if value in self.names or (self.ignore_case and value.upper() in {name.upper() for name in self.names}):
            return None
        return f"must be one of {', '.join(self.names)}"


class NonEmpty(msgspec.Struct, frozen=True):
    def problem(self, value: ConfigValue) -> str | None:
        return "must not be empty" if value == "" else None


class Items(msgspec.Struct, frozen=True):
    """A list without empty or repeated items, drawn from `names` if there are any."""

    names: tuple[str, ...] = ()
    at_least_one: bool = False

    def problem(self, value: ConfigValue) -> str | None:
        assert isinstance(value, tuple)
        if self.at_least_one and not value:
            return f"must contain at least one of {', '.join(self.names)}" if self.names else "must not be empty"
        if "" in value:
            return "must not contain empty items"
        repeated = next((item for index, item in enumerate(value) if item in value[:index]), None)
        if repeated is not None:
            return f"must contain {repeated!r} only once"
        if self.names and any(item not in self.names for item in value):
            return f"items must be among {', '.join(self.names)}"
        return None


class Satisfies(msgspec.Struct, frozen=True):
    """A rule of a single key: a function that returns the problem."""

    rule: Callable[[ConfigValue], str | None]

    def problem(self, value: ConfigValue) -> str | None:
        return self.rule(value)


class Synonym(msgspec.Struct, frozen=True):
    """A broker key whose value applies where a topic or group key is not set; `factor` converts its unit."""

    name: str
    factor: int = 1


class ConfigKey(msgspec.Struct, frozen=True):
    """One key. `default` is text, as DescribeConfigs shows it; None means that there is none.

    `synonyms` are in order of precedence. An `internal` key has an effect but is not described.
    """

    name: str
    kind: ConfigKind
    default: str | None
    doc: str
    allowed: Allowed | None = None
    mode: ConfigMode = ConfigMode.READ_ONLY
    required: bool = False
    internal: bool = False
    synonyms: tuple[Synonym, ...] = ()

    @property
    def sensitive(self) -> bool:
        """Whether its value must not be shown."""
        return self.kind is ConfigKind.PASSWORD

    @property
    def read_only(self) -> bool:
        return self.mode is ConfigMode.READ_ONLY

    def parse(self, text: str) -> ConfigValue:
        """The value of a text; raises ConfigError if it is not valid."""
        value = _PARSERS[self.kind](text.strip())
        if value is None:
            raise self._error(text, f"must be {_TYPE_WORDS[self.kind]}")
        problem = self.allowed.problem(value) if self.allowed is not None else None
        if problem is not None:
            raise self._error(text, problem)
        return value

    def check(self, text: str) -> None:
        self.parse(text)

    def normalise(self, text: str) -> str:
        """The value in its canonical spelling."""
        return text_of(self.parse(text))

    def default_value(self) -> ConfigValue | None:
        return None if self.default is None else _PARSERS[self.kind](self.default)

    def _error(self, text: str, why: str) -> ConfigError:
        return ConfigError(self.name, "(hidden)" if self.sensitive else text, why)


def by_name(keys: Iterable[ConfigKey]) -> dict[str, ConfigKey]:
    """A table of keys; raises ValueError for a name that is declared twice."""
    table: dict[str, ConfigKey] = {}
    for key in keys:
        if key.name in table:
            raise ValueError(f"config key {key.name} is declared twice")
        table[key.name] = key
    return table


def text_of(value: ConfigValue) -> str:
    """The text that Kafka shows for a value."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return _double_text(value)
    if isinstance(value, tuple):
        return ",".join(value)
    return str(value)


def _double_text(value: float) -> str:
    """Java's spelling: plain from 0.001 to 10 million, otherwise mantissa and `E`."""
    if value == 0 or 1e-3 <= abs(value) < 1e7:
        return repr(value)
    mantissa, _, exponent = f"{value:e}".partition("e")
    digits = repr(value).partition("e")[0].replace("-", "").replace(".", "").strip("0")
    sign = "-" if mantissa.startswith("-") else ""
    return f"{sign}{digits[0]}.{digits[1:] or '0'}E{int(exponent)}"


_WHOLE = re.compile(r"[+-]?[0-9]+")
_DECIMAL = re.compile(r"([+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?)[fFdD]?")
_COMMA = re.compile(r"\s*,\s*")


def _parse_boolean(text: str) -> bool | None:
    return {"true": True, "false": False}.get(text.lower())


def _parse_whole(limit: int) -> Callable[[str], int | None]:
    def parse(text: str) -> int | None:
        if len(text) > 64 or not _WHOLE.fullmatch(text):
            return None
        value = int(text)
        return value if -limit - 1 <= value <= limit else None

    return parse


def _parse_double(text: str) -> float | None:
    match = _DECIMAL.fullmatch(text)
    return float(match[1]) if match else None


def _parse_list(text: str) -> tuple[str, ...]:
    return tuple(_COMMA.split(text)) if text else ()


def _parse_class(text: str) -> str | None:
    return text or None


_PARSERS: Final[dict[ConfigKind, Callable[[str], ConfigValue | None]]] = {
    ConfigKind.UNKNOWN: str,
    ConfigKind.BOOLEAN: _parse_boolean,
    ConfigKind.STRING: str,
    ConfigKind.INT: _parse_whole(MAX_INT),
    ConfigKind.SHORT: _parse_whole(MAX_SHORT),
    ConfigKind.LONG: _parse_whole(MAX_LONG),
    ConfigKind.DOUBLE: _parse_double,
    ConfigKind.LIST: _parse_list,
    ConfigKind.CLASS: _parse_class,
    ConfigKind.PASSWORD: str,
}

_TYPE_WORDS: Final = {
    ConfigKind.BOOLEAN: "true or false",
    ConfigKind.INT: f"a whole number of 32 bits (at most {MAX_INT})",
    ConfigKind.SHORT: f"a whole number of 16 bits (at most {MAX_SHORT})",
    ConfigKind.LONG: f"a whole number of 64 bits (at most {MAX_LONG})",
    ConfigKind.DOUBLE: "a number",
    ConfigKind.CLASS: "the name of a class",
}
