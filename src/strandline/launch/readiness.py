"""Tells whether a node is ready: a broker when its Metadata response contains itself and the brokers started with it, a
controller when it responds at all.

The requests are a dozen hand-made bytes in the oldest API version, so that polling every few milliseconds is cheap and
needs no imports.
"""

from __future__ import annotations

import socket
import struct

METADATA_V1 = struct.pack(">ihhihi", 14, 3, 1, 0, -1, 0)
API_VERSIONS_V0 = struct.pack(">ihhih", 10, 18, 0, 0, -1)
MAX_RESPONSE_BYTES = 1 << 20


def is_live_broker(host: str, port: int, node_id: int, timeout_seconds: float = 1.0) -> bool:
    return node_id in live_brokers(host, port, timeout_seconds)


def live_brokers(host: str, port: int, timeout_seconds: float = 1.0) -> list[int]:
    """The live brokers in the broker's Metadata response; empty if it does not respond."""
    try:
        return _broker_ids(_response(host, port, METADATA_V1, timeout_seconds))
    except (OSError, struct.error):
        return []


def responds(host: str, port: int, timeout_seconds: float = 1.0) -> bool:
    """Whether a node responds to ApiVersions there: controllers do not serve Metadata."""
    try:
        return len(_response(host, port, API_VERSIONS_V0, timeout_seconds)) >= 6
    except (OSError, struct.error):
        return False


def _response(host: str, port: int, request: bytes, timeout_seconds: float) -> bytes:
    with socket.create_connection((host, port), timeout_seconds) as connection:
        connection.settimeout(timeout_seconds)
        connection.sendall(request)
        (size,) = struct.unpack(">i", _receive(connection, 4))
        if not 0 < size <= MAX_RESPONSE_BYTES:
            raise ConnectionResetError("not a Kafka response")
        return _receive(connection, size)


def _receive(connection: socket.socket, size: int) -> bytes:
    received = bytearray()
    while len(received) < size:
        chunk = connection.recv(size - len(received))
        if not chunk:
            raise ConnectionResetError("closed in the middle of a response")
        received += chunk
    return bytes(received)


def _broker_ids(response: bytes) -> list[int]:
    """The ids in a Metadata v1 response: correlation id, then brokers of (id, host, port, rack or null)."""
    (count,) = struct.unpack_from(">i", response, 4)
    position, ids = 8, []
    for _ in range(count):
        ids.append(struct.unpack_from(">i", response, position)[0])
        position += 4 + 2 + struct.unpack_from(">h", response, position + 4)[0]
        position += 4 + 2 + max(0, struct.unpack_from(">h", response, position + 4)[0])
    return ids
