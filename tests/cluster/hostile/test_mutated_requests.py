"""Valid requests with a few bytes changed, in every version of every API: a response or a disconnect, never a bug."""

from __future__ import annotations

import random
import socket
import struct

import pytest

from cluster.hostile.node_under_attack import NodeUnderAttack, OrdinaryClient, RawClient
from strandline.protocol.apis import API, ApiKey
from strandline.protocol.framing import request_parts
from strandline.protocol.messages.api_versions import ApiVersionsRequest
from strandline.protocol.types import Field, Primitive, Struct, layout

pytestmark = pytest.mark.xdist_group("hostile")

NAMES = ["t", "mutated", "", "1", "__consumer_offsets"]


def filled(cls: type[Struct], version: int, source: random.Random) -> Struct:
    """A message with a random value in every field of this version."""
    message = cls()
    for field in layout(cls):
        if version in field.present:
            setattr(message, field.name, _value(field, version, source))
    return message


def _value(field: Field, version: int, source: random.Random) -> object:
    if version in field.nullable and source.random() < 0.2:
        return None
    if field.is_list:
        return [_one(field, version, source) for _ in range(source.randrange(3))]
    return _one(field, version, source)


def _one(field: Field, version: int, source: random.Random) -> object:
    if not isinstance(field.kind, Primitive):
        made = filled(field.kind, version, source) if not field.kind.__struct_config__.frozen else field.kind()
        return made
    match field.kind.name:
        case "bool":
            return source.random() < 0.5
        case "string":
            return source.choice(NAMES)
        case "bytes" | "records":
            return source.randbytes(source.randrange(80))
        case "uuid":
            return field.default
        case "float64":
            return source.random()
        case "uint16" | "uint32":
            return source.choice([0, 1, 60_000])
        case "int8":
            return source.choice([-1, 0, 1, 2, 4, 127])
        case "int16":
            return source.choice([-1, 0, 1, 3, 32767])
        case "int32":
            return source.choice([-1, 0, 1, 5, 1000, 2**31 - 1])
        case _:
            return source.choice([-1, 0, 1, 1000, 2**62])


def served(node: NodeUnderAttack, *, controller: bool) -> list[ApiKey]:
    raw = RawClient(node, controller=controller)
    raw.request(ApiVersionsRequest(), 0)
    (size,) = struct.unpack(">i", raw.socket.recv(4, socket.MSG_WAITALL))
    response = raw.socket.recv(size, socket.MSG_WAITALL)
    raw.close()
    (count,) = struct.unpack_from(">i", response, 6)
    return [ApiKey(struct.unpack_from(">h", response, 10 + 6 * index)[0]) for index in range(count)]


def bytes_of(key: ApiKey, version: int, source: random.Random) -> bytearray:
    api = API[key]
    message = filled(api.request, version, source)
    for name in ("max_wait_ms", "timeout_ms"):
        if hasattr(message, name):
            setattr(message, name, 10)  # keep the test short
    return bytearray(b"".join(request_parts(api, version, 1, "mutant", message)))  # type: ignore[arg-type]


@pytest.mark.parametrize("controller", [False, True], ids=["broker", "controller"])
def test_mutated_requests_cause_no_unexpected_error(
    controller: bool, node: NodeUnderAttack, ordinary_client: OrdinaryClient
) -> None:
    # These may fence or unregister the broker, which the other tests need.
    avoided = {ApiKey.UNREGISTER_BROKER, ApiKey.BROKER_HEARTBEAT, ApiKey.BROKER_REGISTRATION}
    position = node.log_position()
    source = random.Random(40)
    keys = [key for key in served(node, controller=controller) if key not in avoided]
    assert len(keys) >= 8
    for key in keys:
        for version in range(API[key].min_version, API[key].max_version + 1):
            for _ in range(12):
                data = bytes_of(key, version, source)
                for _ in range(source.randrange(4)):
                    data[source.randrange(12, len(data))] = source.randrange(256)
                raw = RawClient(node, controller=controller)
                raw.send(bytes(data))
                raw.socket.shutdown(socket.SHUT_WR)
                raw.frames_until_closed()
                raw.close()
    assert node.errors_since(position) == ""
    node.check_responds()
