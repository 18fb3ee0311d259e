"""Is a node ready? It is when it answers Metadata and counts itself among the live brokers.

Asked with the oldest version of the API in a dozen hand-made bytes, so that waiting for a node costs no imports and
a question every few milliseconds.
"""

from __future__ import annotations

import socket
import struct

METADATA_V1 = struct.pack(">ihhihi", 14, 3, 1, 0, -1, 0)
MAX_ANSWER_BYTES = 1 << 20


def counts_itself(host: str, port: int, node_id: int, timeout_seconds: float = 1.0) -> bool:
    try:
        with socket.create_connection((host, port), timeout_seconds) as connection:
            connection.settimeout(timeout_seconds)
            connection.sendall(METADATA_V1)
            size = struct.unpack(">i", _receive(connection, 4))[0]
            return 0 < size <= MAX_ANSWER_BYTES and node_id in _broker_ids(_receive(connection, size))
    except (OSError, struct.error):
        return False


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
