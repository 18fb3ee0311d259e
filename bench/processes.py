"""Both servers as processes, and what they cost: CPU seconds and resident memory from /proc."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parent.parent
_TICKS = os.sysconf("SC_CLK_TCK")
_PAGE = os.sysconf("SC_PAGE_SIZE")


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


@dataclass
class Server:
    """A node under test. `start` returns the seconds until it serves metadata."""

    name: str
    directory: Path
    classpath: str = ""
    process: subprocess.Popen[bytes] | None = None
    port: int = 0

    @property
    def bootstrap(self) -> str:
        return f"127.0.0.1:{self.port}"

    def prepare(self) -> None:
        self.directory.mkdir(parents=True, exist_ok=True)
        self.port = free_port()
        controller = free_port()
        self.properties.write_text(
            "\n".join(
                [
                    "process.roles=broker,controller",
                    "node.id=1",
                    f"listeners=PLAINTEXT://127.0.0.1:{self.port},CONTROLLER://127.0.0.1:{controller}",
                    "controller.listener.names=CONTROLLER",
                    f"controller.quorum.bootstrap.servers=127.0.0.1:{controller}",
                    f"log.dirs={self.directory}/data",
                    "offsets.topic.replication.factor=1",
                    "num.partitions=1",
                    "",
                ]
            )
        )
        self._run_to_end(self.format_command)

    @property
    def properties(self) -> Path:
        return self.directory / "server.properties"

    @property
    def format_command(self) -> list[str]:
        raise TypeError("a server is either Kafka or Strandline")

    @property
    def command(self) -> list[str]:
        raise TypeError("a server is either Kafka or Strandline")

    def _run_to_end(self, command: list[str]) -> None:
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)

    def start(self, timeout_s: float = 120) -> float:
        log = (self.directory / "server.log").open("ab")
        began = time.perf_counter()
        self.process = subprocess.Popen(self.command, stdout=log, stderr=log)
        while time.perf_counter() - began < timeout_s:
            if self.process.poll() is not None:
                raise RuntimeError(f"{self.name} stopped at start-up; see {self.directory}/server.log")
            if serves_metadata(self.port):
                return time.perf_counter() - began
            time.sleep(0.01)
        raise TimeoutError(f"{self.name} does not serve after {timeout_s} s")

    def stop(self, how: signal.Signals = signal.SIGTERM) -> float:
        assert self.process is not None
        began = time.perf_counter()
        self.process.send_signal(how)
        self.process.wait(120)
        self.process = None
        return time.perf_counter() - began

    def cpu_seconds(self) -> float:
        assert self.process is not None
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / _TICKS

    def resident_mb(self) -> float:
        assert self.process is not None
        return int(Path(f"/proc/{self.process.pid}/statm").read_text().split()[1]) * _PAGE / 1e6


class Kafka(Server):
    @property
    def format_command(self) -> list[str]:
        return [
            "java", "-cp", self.classpath, "kafka.tools.StorageTool", "format", "--standalone",
            "-t", "4L6g3nShT-eMCtK--X86sw", "-c", str(self.properties),
        ]  # fmt: skip

    @property
    def command(self) -> list[str]:
        return ["java", "-Xms1g", "-Xmx1g", "-XX:+UseG1GC", "-cp", self.classpath, "kafka.Kafka", str(self.properties)]


class Strandline(Server):
    """Through the launcher, as a user starts it."""

    @property
    def format_command(self) -> list[str]:
        return [
            str(REPOSITORY / "strandline"), "storage", "format", "--standalone",
            "--cluster-id", "4L6g3nShT-eMCtK--X86sw", "-c", str(self.properties),
        ]  # fmt: skip

    @property
    def command(self) -> list[str]:
        return [str(REPOSITORY / "strandline"), "server", str(self.properties)]


def serves_metadata(port: int) -> bool:
    """One Metadata v1 request for no topics, answered."""
    request = bytes.fromhex("0003000100000001000000000000")
    try:
        with socket.create_connection(("127.0.0.1", port), 1) as connection:
            connection.sendall(len(request).to_bytes(4, "big") + request)
            connection.settimeout(5)
            size = int.from_bytes(_exactly(connection, 4), "big")
            body = _exactly(connection, size)
            return int.from_bytes(body[4:8], "big") > 0
    except OSError:
        return False


def _exactly(connection: socket.socket, count: int) -> bytes:
    data = b""
    while len(data) < count:
        chunk = connection.recv(count - len(data))
        if not chunk:
            raise ConnectionError("closed")
        data += chunk
    return data
