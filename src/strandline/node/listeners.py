"""A node's listeners: `listeners`, `advertised.listeners` and the security protocol of each.

Called by `node/config`. Problems are collected, not raised, so that all are reported at once. Invariant of the result:
names are upper case and unique, ports differ, and every listener has a served security protocol.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

import msgspec

from strandline.model.ids import Endpoint

_LISTENER: Final = re.compile(r"([^:/\s]+)://(?:\[([0-9a-zA-Z%._:-]*)\]|([0-9a-zA-Z%._-]*)):([0-9]{1,5})")
_PROTOCOLS: Final = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
_SERVED: Final = ("PLAINTEXT",)
_UNSPECIFIED_ADDRESSES: Final = ("0.0.0.0", "::")


class NamedEndpoint(msgspec.Struct, frozen=True):
    name: str
    host: str
    port: int


class ListenerConfig(msgspec.Struct, frozen=True):
    """An empty host means every interface; port 0 means any free port, known once it is bound."""

    name: str
    host: str
    port: int
    security_protocol: str
    controller: bool
    inter_broker: bool
    advertised_host: str
    advertised_port: int

    def advertised(self, bound_port: int) -> Endpoint:
        """The advertised endpoint, once the port is bound."""
        return Endpoint(self.advertised_host, self.advertised_port or bound_port)


class ListenerKeys(msgspec.Struct, frozen=True):
    """The values of the listener keys; `advertised` and `protocols` are None if the file does not set them."""

    listeners: Sequence[str]
    advertised: Sequence[str] | None
    protocols: str | None
    controller_names: Sequence[str]
    inter_broker_name: str | None
    inter_broker_protocol: str | None
    hostname: str


def read_listeners(keys: ListenerKeys, roles: Iterable[str], problems: list[str]) -> tuple[ListenerConfig, ...]:
    """The node's listeners; appends to `problems`."""
    bound = _parse_all("listeners", keys.listeners, problems)
    _check_ports(bound, problems)
    advertised = _advertised_by_name(keys, bound, problems)
    controllers = [name.upper() for name in keys.controller_names]
    protocols = _protocols(keys, controllers, problems)
    inter_broker = _inter_broker_name(keys, problems)
    _check_roles(roles, bound, advertised, controllers, inter_broker, problems)
    return tuple(
        ListenerConfig(
            name=listener.name,
            host=listener.host,
            port=listener.port,
            security_protocol=_protocol_of(listener.name, protocols, problems),
            controller=listener.name in controllers,
            inter_broker=listener.name == inter_broker,
            advertised_host=advertised.get(listener.name, listener).host or keys.hostname,
            advertised_port=advertised.get(listener.name, listener).port,
        )
        for listener in bound
    )


def _parse_all(key: str, texts: Sequence[str], problems: list[str]) -> list[NamedEndpoint]:
    parsed: list[NamedEndpoint] = []
    for text in texts:
        match = _LISTENER.fullmatch(text)
        if match is None or int(match[4]) > 65535:
            problems.append(f"{key}: {text!r} is not NAME://host:port, for example PLAINTEXT://localhost:9092")
            continue
        name = match[1].upper()
        if any(other.name == name for other in parsed):
            problems.append(f"{key}: the name {name} is used twice; give each listener a name of its own")
            continue
        parsed.append(NamedEndpoint(name, match[2] or match[3] or "", int(match[4])))
    return parsed


def _check_ports(bound: list[NamedEndpoint], problems: list[str]) -> None:
    for index, listener in enumerate(bound):
        clash = next((other for other in bound[:index] if _same_port(other, listener)), None)
        if clash is not None:
            problems.append(
                f"listeners: {clash.name} and {listener.name} share port {listener.port}; give each its own"
            )


def _same_port(one: NamedEndpoint, other: NamedEndpoint) -> bool:
    """An IPv4 and an IPv6 address may use the same port."""
    return one.port == other.port != 0 and (":" in one.host) == (":" in other.host)


def _advertised_by_name(
    keys: ListenerKeys, bound: list[NamedEndpoint], problems: list[str]
) -> dict[str, NamedEndpoint]:
    controllers = {name.upper() for name in keys.controller_names}
    if keys.advertised is None:
        advertised = {listener.name: listener for listener in bound}
    else:
        advertised = {each.name: each for each in _parse_all("advertised.listeners", keys.advertised, problems)}
        for name in advertised:
            if all(listener.name != name for listener in bound):
                problems.append(f"advertised.listeners: {name} is not among listeners; add it there or remove it here")
    for name, each in advertised.items():
        if each.host in _UNSPECIFIED_ADDRESSES and name not in controllers:
            problems.append(
                f"advertised.listeners: {name} would make clients connect to {each.host}, which is not reachable; "
                f"set advertised.listeners={name}://<a host that clients can reach>:{each.port}"
            )
    return advertised


def _protocols(keys: ListenerKeys, controllers: list[str], problems: list[str]) -> dict[str, str]:
    protocols = {name: name for name in _PROTOCOLS}
    if keys.protocols is None:
        return protocols | dict.fromkeys((name for name in controllers if name not in protocols), "PLAINTEXT")
    protocols = {}
    for pair in filter(None, re.split(r"\s*,\s*", keys.protocols.strip())):
        name, colon, protocol = (part.strip().upper() for part in pair.rpartition(":"))
        if not colon or not name:
            problems.append(f"listener.security.protocol.map: {pair!r} is not NAME:PROTOCOL")
        elif protocol not in _PROTOCOLS:
            problems.append(
                f"listener.security.protocol.map: {name} names {protocol}, which is not one of {', '.join(_PROTOCOLS)}"
            )
        elif name in protocols:
            problems.append(f"listener.security.protocol.map: {name} appears twice; keep one of the two")
        else:
            protocols[name] = protocol
    return protocols


def _protocol_of(name: str, protocols: Mapping[str, str], problems: list[str]) -> str:
    protocol = protocols.get(name)
    if protocol is None:
        problems.append(
            f"listeners: {name} has no security protocol; add {name}:PLAINTEXT to listener.security.protocol.map"
        )
        return "PLAINTEXT"
    if protocol not in _SERVED:
        problems.append(
            f"listeners: {name} uses {protocol}, which is not served yet (only {', '.join(_SERVED)}); "
            f"map it with listener.security.protocol.map={name}:PLAINTEXT or remove it"
        )
    return protocol


def _inter_broker_name(keys: ListenerKeys, problems: list[str]) -> str:
    if keys.inter_broker_name is None:
        return keys.inter_broker_protocol or "PLAINTEXT"
    if keys.inter_broker_protocol is not None:
        problems.append("inter.broker.listener.name and security.inter.broker.protocol exclude each other; remove one")
    return keys.inter_broker_name.upper()


def _check_roles(
    roles: Iterable[str],
    bound: list[NamedEndpoint],
    advertised: Mapping[str, NamedEndpoint],
    controllers: list[str],
    inter_broker: str,
    problems: list[str],
) -> None:
    names = [listener.name for listener in bound]
    if "controller" in roles:
        for name in controllers:
            if name not in names:
                problems.append(
                    f"controller.listener.names: this controller does not listen on {name}; "
                    f"add for example {name}://localhost:9093 to listeners"
                )
    else:
        for name in controllers:
            if name in names:
                problems.append(
                    f"listeners: {name} is a controller listener, but this node is only a broker; remove it from "
                    "listeners, or add controller to process.roles"
                )
    if "broker" in roles:
        if all(name in controllers for name in names):
            problems.append(
                "listeners: a broker needs a listener of its own besides controller.listener.names; "
                "add for example PLAINTEXT://localhost:9092"
            )
        elif inter_broker not in advertised or inter_broker in controllers:
            problems.append(
                f"inter.broker.listener.name: {inter_broker} is not among the advertised listeners of this broker "
                f"({', '.join(name for name in advertised if name not in controllers)}); name one of them"
            )
    else:
        for name in names:
            if name not in controllers:
                problems.append(
                    f"listeners: {name} is a broker listener, but this node is only a controller; "
                    "name it in controller.listener.names or remove it"
                )
