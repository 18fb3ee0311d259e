"""Is a node ready? A broker is when it answers Metadata and counts itself, and those started with it, among the live
brokers; a controller when it answers at all.

Asked with the oldest version of the API in a dozen hand-made bytes, so that waiting for a node costs no imports and
a question every few milliseconds.
"""

from __future__ import annotations

import socket
import struct

METADATA_V1 = struct.pack(">ihhihi", 14, 3, 1, 0, -1, 0)
API_VERSIONS_V0 = struct.pack(">ihhih", 10, 18, 0, 0, -1)
MAX_ANSWER_BYTES = 1 << 20


def is_live_broker(host: str, port: int, node_id: int, timeout_seconds: float = 1.0) -> bool:
    return node_id in live_brokers(host, port, timeout_seconds)


def live_brokers(host: str, port: int, timeout_seconds: float = 1.0) -> list[int]:
    """The brokers that this one takes for alive; none if it does not answer."""
    try:
        return _broker_ids(_answer(host, port, METADATA_V1, timeout_seconds))
    except (OSError, struct.error):
        return []


def answers(host: str, port: int, timeout_seconds: float = 1.0) -> bool:
    """Whether somebody who speaks Kafka's protocol listens there: controllers answer no Metadata."""
    try:
        return len(_answer(host, port, API_VERSIONS_V0, timeout_seconds)) >= 6
    except (OSError, struct.error):
        return False


def _answer(host: str, port: int, question: bytes, timeout_seconds: float) -> bytes:
    with socket.create_connection((host, port), timeout_seconds) as connection:
        connection.settimeout(timeout_seconds)
        connection.sendall(question)
        (size,) = struct.unpack(">i", _receive(connection, 4))
        if not 0 < size <= MAX_ANSWER_BYTES:
            raise ConnectionResetError("this is no answer")
        return _receive(connection, size)


def _receive(connection: socket.socket, size: int) -> bytes:
    received = bytearray()
    while len(received) < size:
        chunk = connection.recv(size - len(received))
        if not chunk:
            raise ConnectionResetError("closed in the middle of an answer")
        received += chunk
    return bytes(received)


def _broker_ids(answer: bytes) -> list[int]:
    """The ids in a Metadata v1 answer: correlation id, then brokers of (id, host, port, rack or null)."""
    (count,) = struct.unpack_from(">i", answer, 4)
    position, ids = 8, []
    for _ in range(count):
        ids.append(struct.unpack_from(">i", answer, position)[0])
        position += 4 + 2 + struct.unpack_from(">h", answer, position + 4)[0]
        position += 4 + 2 + max(0, struct.unpack_from(">h", answer, position + 4)[0])
    return ids
