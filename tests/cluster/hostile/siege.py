"""What the hostile tests share: the node under siege, and a bystander who uses it meanwhile.

`Besieged` knows what the node weighs and what it wrote to its log. `Bystander` is an ordinary producer and consumer:
whatever others do, it gets every record back in order, and in time.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import socket
import struct
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cluster.handlers.talk import Talk, Target, Wire, framed
from strandline.protocol.messages.api_versions import ApiVersionsRequest
from strandline.protocol.types import Message

TESTS = Path(__file__).resolve().parents[2]
MIB = 1024 * 1024
# Generous, and not counting what the machine is busy with otherwise. A loop that is blocked is blocked for longer.
PATIENCE_S = 1.5


@dataclass(frozen=True, slots=True)
class Besieged:
    target: Target
    pid: int
    log: Path
    data: Path

    def rss_mib(self) -> float:
        return self._status("VmRSS")

    def peak_mib(self) -> float:
        return self._status("VmHWM")

    def _status(self, key: str) -> float:
        found = re.search(rf"{key}:\s+(\d+) kB", Path(f"/proc/{self.pid}/status").read_text())
        assert found is not None
        return int(found[1]) / 1024

    def forget_peak(self) -> None:
        """From here on the peak is what follows."""
        Path(f"/proc/{self.pid}/clear_refs").write_text("5")

    def said_since(self, mark: int) -> str:
        return self.log.read_bytes()[mark:].decode(errors="replace")

    def bugs_since(self, mark: int) -> str:
        """What it wrote from the first stack trace or bug on; nothing, it is hoped."""
        said = self.said_since(mark)
        found = re.search(r"unexpected error|Traceback", said)
        return "" if found is None else said[max(0, found.start() - 300) :][:5000]

    def mark(self) -> int:
        return self.log.stat().st_size

    def closings_since(self, mark: int) -> list[str]:
        return [line for line in self.said_since(mark).splitlines() if "closing the connection" in line]

    def wire(self, timeout_s: float = 60) -> Wire:
        return Wire(self.target.host, self.target.port, timeout_s)

    def talk(self, name: str) -> Talk:
        return Talk(self.target, name, 0)

    def is_healthy(self) -> None:
        """It answers a newcomer."""
        wire = self.wire()
        assert wire.ask(ApiVersionsRequest(), 0).error_code == 0
        wire.close()


class Raw:
    """A client that keeps no rules."""

    def __init__(self, besieged: Besieged, timeout_s: float = 60, *, controller: bool = False) -> None:
        target = besieged.target
        port = target.controller_port if controller else target.port
        self.socket = socket.create_connection((target.host, port), timeout_s)

    def send(self, data: bytes) -> None:
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            self.socket.sendall(data)

    def request(self, request: Message, version: int) -> None:
        self.send(framed(request, version))

    def frames_until_closed(self) -> list[bytes]:
        """What the node answers before it closes; socket.timeout when it does not close."""
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
        """Leaves without a word, as a process that was killed."""
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.socket.close()


@dataclass(slots=True)
class Bystander:
    """An ordinary client in a process of its own, so that it waits for the node and not for the attacker."""

    process: subprocess.Popen[str]

    @classmethod
    def start(cls, besieged: Besieged, topic: str) -> Bystander:
        paths = os.pathsep.join([str(TESTS.parent / "src"), str(TESTS)])
        command = [sys.executable, "-m", "cluster.hostile.bystander"]
        process = subprocess.Popen(
            [*command, besieged.target.host, str(besieged.target.port), topic, str(besieged.pid)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": paths},
        )
        assert process.stdout is not None and process.stdout.readline() == "ready\n"
        return cls(process)

    def stop(self) -> dict[str, Any]:
        said, _ = self.process.communicate(timeout=120)
        result: dict[str, Any] = json.loads(said)
        return result


@contextlib.contextmanager
def bystanding(besieged: Besieged, topic: str) -> Iterator[Bystander]:
    bystander = Bystander.start(besieged, topic)
    try:
        yield bystander
    finally:
        result = bystander.stop()
    assert result["failure"] is None, result["failure"]
    assert result["read"] == result["written"] > 0
    assert result["slowest_s"] < PATIENCE_S, f"a bystander waited {result['slowest_s']:.2f} s"
