"""A node's config: Kafka's keys from a properties file, parsed into typed, frozen slices.

`Config.load` reads a server.properties, `Config.of` takes the pairs. All problems are raised together as
`InvalidConfig`, one line each with the key, the value and the remedy. Unknown keys are kept for DescribeConfigs
and reported in `warnings`. The only disk access is reading that file.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, TypeVar

import msgspec

from strandline.model.config_keys.addresses import Voter, parse_address, parse_voter
from strandline.model.config_keys.broker import BROKER_KEYS, OWN_KEYS, OWN_PREFIX, THROTTLE_KEYS, broker_key
from strandline.model.config_keys.key import ConfigError, ConfigValue
from strandline.model.ids import Endpoint
from strandline.node import config_rules
from strandline.node.listeners import ListenerConfig, ListenerKeys, read_listeners
from strandline.node.properties_file import parse_properties
from strandline.server.settings import ListenerSpec, ServerSettings

if TYPE_CHECKING:
    from strandline.runtime.disk import Disk

S = TypeVar("S", bound=msgspec.Struct)

# Prefixes of plugin keys, which have no fixed names.
_PLUGIN_PREFIXES: Final = ("rsm.config.", "rlmm.config.", "config.providers.")
_ZOOKEEPER: Final = re.compile(r"zookeeper\.|inter\.broker\.protocol\.version$|control\.plane\.listener\.name$")


class InvalidConfig(Exception):
    """A config that no node can run with; the message has one line per problem."""

    def __init__(self, where: str, problems: Sequence[str]) -> None:
        lines = "".join(f"\n  {problem}" for problem in problems)
        super().__init__(f"{where}: {len(problems)} problem{'s' if len(problems) > 1 else ''}{lines}")
        self.problems = tuple(problems)


class NodeConfig(msgspec.Struct, frozen=True):
    node_id: int
    roles: tuple[str, ...]
    rack: str | None

    @property
    def is_broker(self) -> bool:
        return "broker" in self.roles

    @property
    def is_controller(self) -> bool:
        return "controller" in self.roles


class QuorumConfig(msgspec.Struct, frozen=True):
    """The addresses of the controllers. Static `voters` mean kraft.version 0; otherwise the voter set is in the log."""

    voters: tuple[Voter, ...]
    bootstrap_servers: tuple[Endpoint, ...]


class Config(msgspec.Struct, frozen=True):
    """`static` is the file as DescribeConfigs lists it; `value` is the parsed value of any broker key."""

    node: NodeConfig
    listeners: tuple[ListenerConfig, ...]
    quorum: QuorumConfig
    log_dirs: tuple[str, ...]
    metadata_log_dir: str
    server: ServerSettings
    static: Mapping[str, str]
    warnings: tuple[str, ...]
    source: str
    """The path of the file, for messages."""

    @classmethod
    def load(cls, path: str, overrides: Mapping[str, str] | None = None, *, disk: Disk | None = None) -> Config:
        """Reads a properties file; `overrides` take precedence."""
        import socket

        if disk is None:
            from strandline.runtime.disk import SystemDisk

            disk = SystemDisk()
        try:
            properties = parse_properties(disk.read(path))
        except OSError as error:
            raise InvalidConfig(path, [f"cannot be read: {error.strerror}"]) from error
        except ValueError as error:
            raise InvalidConfig(path, [str(error)]) from error
        return cls.of({**properties, **(overrides or {})}, hostname=socket.gethostname(), where=path)

    @classmethod
    def of(
        cls, properties: Mapping[str, str], *, hostname: str = "localhost", where: str = "server.properties"
    ) -> Config:
        problems: list[str] = []
        valid = _valid_pairs(properties, problems)
        if any(name not in valid for name in _STRUCTURE if name in properties or BROKER_KEYS[name].required):
            # Without roles, listeners or quorum the rules between keys would only repeat these problems.
            raise InvalidConfig(where, problems)
        config = cls._build(valid, hostname, where, problems)
        if problems:
            raise InvalidConfig(where, problems)
        return config

    @classmethod
    def _build(cls, static: Mapping[str, str], hostname: str, where: str, problems: list[str]) -> Config:
        def value(name: str) -> ConfigValue | None:
            return static_value(name, static)

        node = NodeConfig(_integer(value("node.id")), _items(value("process.roles")), _optional(value("broker.rack")))
        voters = tuple(parse_voter(text) for text in _items(value("controller.quorum.voters")))
        log_dirs = _items(value("log.dirs")) or _items(value("log.dir"))
        if node.node_id != value("broker.id"):
            problems.append(f"broker.id={value('broker.id')} and node.id={node.node_id} differ; remove broker.id")
        listeners = read_listeners(_listener_keys(static, hostname), node.roles, problems)
        config_rules.check_quorum(node.roles, node.node_id, voters, value, problems)
        config_rules.check_directories(log_dirs, _items(value("cordoned.log.dirs")), problems)
        config_rules.check_numbers(value, problems)
        config_rules.check_groups(value, problems)
        config_rules.check_served(value, static, problems)
        return cls(
            node=node,
            listeners=listeners,
            quorum=QuorumConfig(
                voters,
                tuple(parse_address(text) for text in _items(value("controller.quorum.bootstrap.servers"))),
            ),
            log_dirs=log_dirs,
            metadata_log_dir=_optional(value("metadata.log.dir")) or log_dirs[0],
            server=settings_of(
                ServerSettings,
                static,
                max_connections_per_ip_overrides=_per_ip_overrides(
                    _optional(value("max.connections.per.ip.overrides")) or "", problems
                ),
            ),
            static=static,
            warnings=(*_unknown_keys(static), *config_rules.warnings_about(value, static)),
            source=where,
        )

    def value(self, name: str) -> ConfigValue | None:
        """The value of a broker key from the file, else its default."""
        return static_value(name, self.static)

    def integer(self, name: str) -> int:
        return _integer(self.value(name))

    def boolean(self, name: str) -> bool:
        return self.value(name) is True

    def settings(self, settings_type: type[S], /, **others: Any) -> S:
        """A typed slice of this config; `others` are the fields that do not come from a key of the same unit."""
        return settings_of(settings_type, self.static, **others)

    def listener_specs(self) -> tuple[ListenerSpec, ...]:
        return tuple(
            ListenerSpec(each.name, each.host, each.port, each.controller, protected=each.controller)
            for each in self.listeners
        )

    @property
    def controller_listener_names(self) -> tuple[str, ...]:
        return tuple(name.upper() for name in _items(self.value("controller.listener.names")))

    @property
    def all_directories(self) -> tuple[str, ...]:
        """The log directories and, if it is not one of them, the metadata log directory."""
        return tuple(dict.fromkeys((*self.log_dirs, self.metadata_log_dir)))


def static_value(name: str, static: Mapping[str, str]) -> ConfigValue | None:
    key = broker_key(name)
    if key is None:
        raise KeyError(name)
    text = static.get(name)
    return key.default_value() if text is None else key.parse(text)


def settings_of(settings_type: type[S], static: Mapping[str, str], /, **others: Any) -> S:
    """Fields for keys that the file does not set keep the default of the slice."""
    fields = msgspec.structs.fields(settings_type)
    given = {field.name: static_value(field.encode_name, static) for field in fields if field.encode_name in static}
    return settings_type(**{**given, **others})


# The keys that decide which rules apply to the others.
_STRUCTURE: Final = (
    "process.roles",
    "node.id",
    "listeners",
    "advertised.listeners",
    "controller.listener.names",
    "controller.quorum.voters",
    "controller.quorum.bootstrap.servers",
    "log.dirs",
    "log.dir",
)


def _valid_pairs(properties: Mapping[str, str], problems: list[str]) -> dict[str, str]:
    """The pairs with valid values; node.id and broker.id are synonyms."""
    static: dict[str, str] = {}
    for name, text in properties.items():
        key = broker_key(name)
        try:
            if key is not None:
                key.check(text)
            static[name] = text
        except ConfigError as error:
            problems.append(f"{name}={error.value}: {error.why}")
    for given, missing in (("node.id", "broker.id"), ("broker.id", "node.id")):
        if given in static and missing not in properties:
            static[missing] = static[given]
    for key in BROKER_KEYS.values():
        if key.required and key.name not in static and key.name not in properties:
            problems.append(f"{key.name} is missing. {_HINTS[key.name]}")
    return static


_HINTS: Final = {
    "process.roles": "Set process.roles=broker,controller for a node that does both",
    "node.id": "Set it to a number that no other node of the cluster has, for example node.id=1",
    "controller.listener.names": "Set controller.listener.names=CONTROLLER and, on controllers, add "
    "CONTROLLER://localhost:9093 to listeners",
}


def _unknown_keys(static: Mapping[str, str]) -> list[str]:
    warnings = []
    for name in static:
        if name in THROTTLE_KEYS:
            warnings.append(
                f"{name} has no effect in a file: set it with `strandline config set` while the cluster runs"
            )
        elif broker_key(name) is not None or name.startswith(_PLUGIN_PREFIXES):
            continue
        elif _ZOOKEEPER.match(name):
            warnings.append(f"{name} belongs to Kafka before 4.0 and has no effect; remove it")
        else:
            warnings.append(f"{name} is not a known key and has no effect{_suggestion(name)}")
    return warnings


def _suggestion(name: str) -> str:
    import difflib

    known = OWN_KEYS if name.startswith(OWN_PREFIX) else BROKER_KEYS
    close = difflib.get_close_matches(name, known, n=1, cutoff=0.85)
    return f"; did you mean {close[0]}?" if close else ""


def _listener_keys(static: Mapping[str, str], hostname: str) -> ListenerKeys:
    def given(name: str) -> ConfigValue | None:
        return static_value(name, static) if name in static else None

    return ListenerKeys(
        listeners=_items(static_value("listeners", static)),
        advertised=_items(given("advertised.listeners")) if "advertised.listeners" in static else None,
        protocols=_optional(given("listener.security.protocol.map")),
        controller_names=_items(given("controller.listener.names")),
        inter_broker_name=_optional(given("inter.broker.listener.name")),
        inter_broker_protocol=_optional(given("security.inter.broker.protocol")),
        hostname=hostname,
    )


def _per_ip_overrides(text: str, problems: list[str]) -> dict[str, int]:
    overrides: dict[str, int] = {}
    for pair in filter(None, (part.strip() for part in text.split(","))):
        host, colon, count = pair.rpartition(":")
        if not colon or not host or not count.strip().isdigit():
            problems.append(f"max.connections.per.ip.overrides: {pair!r} is not host:count, for example 10.0.0.7:200")
        else:
            overrides[host.strip()] = int(count)
    return overrides


def _items(value: ConfigValue | None) -> tuple[str, ...]:
    return value if isinstance(value, tuple) else ()


def _integer(value: ConfigValue | None) -> int:
    assert isinstance(value, int)
    return value


def _optional(value: ConfigValue | None) -> str | None:
    return value if isinstance(value, str) and value else None
