"""The node under attack, clients that break the protocol, and an ordinary client that uses the node meanwhile.

`NodeUnderAttack` reports the memory of the node and the lines of its log. `OrdinaryClient` is a producer and consumer:
whatever other clients do, it reads every record back in order and without delay.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import re
import socket
import struct
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cluster.connection import Connection, frame_request
from cluster.handlers.script_run import NodeAddress, ScriptRun
from strandline.protocol.messages.api_versions import ApiVersionsRequest
from strandline.protocol.types import Message

TESTS = Path(__file__).resolve().parents[2]
MIB = 1024 * 1024
# Without the time that threads waited for a processor (see `CpuWait`). A blocked event loop takes longer.
MAX_ROUND_TRIP_S = 1.5


@dataclass(frozen=True, slots=True)
class NodeUnderAttack:
    address: NodeAddress
    pid: int
    log: Path
    data: Path

    def memory_mib(self) -> float:
        return self._status("VmRSS")

    def peak_memory_mib(self) -> float:
        return self._status("VmHWM")

    def _status(self, key: str) -> float:
        found = re.search(rf"{key}:\s+(\d+) kB", Path(f"/proc/{self.pid}/status").read_text())
        assert found is not None
        return int(found[1]) / 1024

    def reset_peak_memory(self) -> None:
        """`peak_memory_mib` is measured from here on."""
        Path(f"/proc/{self.pid}/clear_refs").write_text("5")

    def log_since(self, position: int) -> str:
        return self.log.read_bytes()[position:].decode(errors="replace")

    def errors_since(self, position: int) -> str:
        """The log from the first unexpected error or stack trace on; empty if there is none."""
        text = self.log_since(position)
        found = re.search(r"unexpected error|Traceback", text)
        return "" if found is None else text[max(0, found.start() - 300) :][:5000]

    def log_position(self) -> int:
        return self.log.stat().st_size

    def disconnects_since(self, position: int) -> list[str]:
        return [line for line in self.log_since(position).splitlines() if "closing the connection" in line]

    def connection(self, timeout_s: float = 60) -> Connection:
        return Connection(self.address.host, self.address.port, timeout_s)

    def script_run(self, name: str) -> ScriptRun:
        return ScriptRun(self.address, name, 0)

    def check_responds(self) -> None:
        """The node responds on a new connection."""
        connection = self.connection()
        assert connection.call(ApiVersionsRequest(), 0).error_code == 0
        connection.close()


class RawClient:
    """A client that sends arbitrary bytes. Each has an address of its own: the node logs the reason of a disconnect
    once a minute for each address."""

    _hosts = itertools.count(1)

    def __init__(self, node: NodeUnderAttack, timeout_s: float = 60, *, controller: bool = False) -> None:
        address = node.address
        port = address.controller_port if controller else address.port
        number = next(self._hosts)
        source = f"127.1.{number >> 8 & 255}.{number & 255}"
        self.socket = socket.create_connection((address.host, port), timeout_s, source_address=(source, 0))

    def send(self, data: bytes) -> None:
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            self.socket.sendall(data)

    def request(self, request: Message, version: int) -> None:
        self.send(frame_request(request, version))

    def frames_until_closed(self) -> list[bytes]:
        """The frames that the node sends before it disconnects; TimeoutError if it does not disconnect."""
        received = bytearray()
        while True:
            try:
                chunk = self.socket.recv(1 << 16)
            except ConnectionResetError:
                break
            if not chunk:
                break
            received += chunk
        frames, position = [], 0
        while position + 4 <= len(received):
            (size,) = struct.unpack_from(">i", received, position)
            frames.append(bytes(received[position + 4 : position + 4 + size]))
            position += 4 + size
        return frames

    def is_closed_within(self, seconds: float) -> bool:
        self.socket.settimeout(seconds)
        try:
            self.frames_until_closed()
        except TimeoutError:
            return False
        return True

    def close(self) -> None:
        self.socket.close()

    def reset(self) -> None:
        """Closes the connection with a TCP reset."""
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.socket.close()


@dataclass(slots=True)
class OrdinaryClient:
    """`ordinary_client.py` as a separate process, so that the attacking test does not slow it down."""

    process: subprocess.Popen[str]

    @classmethod
    def start(cls, node: NodeUnderAttack, topic: str) -> OrdinaryClient:
        paths = os.pathsep.join([str(TESTS.parent / "src"), str(TESTS)])
        command = [sys.executable, "-m", "cluster.hostile.ordinary_client"]
        process = subprocess.Popen(
            [*command, node.address.host, str(node.address.port), topic, str(node.pid)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": paths},
        )
        assert process.stdout is not None and process.stdout.readline() == "ready\n"
        return cls(process)

    def report(self) -> dict[str, Any]:
        """The totals, the slowest round trip since the last report, and the failure that ended the round trips."""
        assert self.process.stdin is not None and self.process.stdout is not None
        self.process.stdin.write("\n")
        self.process.stdin.flush()
        result: dict[str, Any] = json.loads(self.process.stdout.readline())
        return result

    def stop(self) -> None:
        self.process.communicate(timeout=120)
