"""Finds free ports. Another program may take one before the node binds it; the node then reports that in its log."""

from __future__ import annotations

import secrets
import socket
import time
from collections.abc import Collection

LAST_PORT = 65_535
_POLL_SECONDS = 0.005
FIRST_EPHEMERAL_PORT = 32_768
"""Linux and macOS assign outgoing connections ports from here on."""
_RANDOM_PORTS = range(10_240, FIRST_EPHEMERAL_PORT)
"""Above the ports of well-known servers."""


class NoPortFree(Exception):
    pass


def is_free(host: str, port: int) -> bool:
    with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_STREAM) as probe:
        # As servers do: a port in TIME_WAIT is free, one with a listener is not.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError:
            return False
    return True


def wait_until_free(host: str, port: int, timeout_seconds: float) -> bool:
    """The ports of a killed process may be released after its exit."""
    deadline = time.monotonic() + timeout_seconds
    while not is_free(host, port):
        if time.monotonic() >= deadline:
            return False
        time.sleep(_POLL_SECONDS)
    return True


def next_free_port(host: str, first: int, taken: Collection[int] = ()) -> int:
    for port in range(first, LAST_PORT + 1):
        if port not in taken and is_free(host, port):
            return port
    raise NoPortFree(f"no free port from {first} to {LAST_PORT} on {host}: choose a lower --port")


def random_free_port(host: str, taken: Collection[int] = ()) -> int:
    """A random one, so that parallel tests do not collide, and not an ephemeral one: while a node is down, its port is
    not assigned to a connection."""
    while True:
        port = _RANDOM_PORTS.start + secrets.randbelow(len(_RANDOM_PORTS))
        if port not in taken and is_free(host, port):
            return port
