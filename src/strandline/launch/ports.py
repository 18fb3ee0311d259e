"""Finding ports that nobody listens on. The answer is a guess: another program may take one a moment later, and then
the node that wanted it says so in its own words.
"""

from __future__ import annotations

import secrets
import socket
import time
from collections.abc import Collection

LAST_PORT = 65_535
_POLL_SECONDS = 0.005
LENT_FROM = 32_768
"""From here on Linux and macOS give ports to outgoing connections."""
_NOBODYS = range(10_240, LENT_FROM)
"""Above what well-known servers use."""


class NoPortFree(Exception):
    pass


def is_free(host: str, port: int) -> bool:
    with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_STREAM) as probe:
        # As a server would: a port in TIME_WAIT after a restart is free, one that is listened on is not.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError:
            return False
    return True


def wait_until_free(host: str, port: int, patience_seconds: float) -> bool:
    """A process that was killed may be gone before its ports are."""
    deadline = time.monotonic() + patience_seconds
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
    """One at random, for tests that must not meet each other, out of those that the operating system gives to nobody of
    its own accord: a node that is restarted finds its port as it left it."""
    while True:
        port = _NOBODYS.start + secrets.randbelow(len(_NOBODYS))
        if port not in taken and is_free(host, port):
            return port
