"""One node of Strandline or of Apache Kafka as a process, and its CPU time and resident memory from /proc."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path

from strandline.launch.ports import random_free_port
from strandline.launch.readiness import live_brokers

REPOSITORY = Path(__file__).resolve().parent.parent
_TICKS = os.sysconf("SC_CLK_TCK")
_PAGE = os.sysconf("SC_PAGE_SIZE")


CLUSTER_ID = "4L6g3nShT-eMCtK--X86sw"
KAFKA_OPTIONS = ("-Xms1g", "-Xmx1g", "-XX:+UseG1GC")


def cpu_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS


def resident_mb(pid: int) -> float:
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * _PAGE / 1e6


@dataclass
class Server:
    """A node under test."""

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
        self.port = random_free_port("127.0.0.1")
        controller = random_free_port("127.0.0.1", {self.port})
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
        subprocess.run(self.format_command, check=True, stdout=subprocess.DEVNULL)

    @property
    def properties(self) -> Path:
        return self.directory / "server.properties"

    @property
    def format_command(self) -> list[str]:
        raise NotImplementedError

    @property
    def command(self) -> list[str]:
        raise NotImplementedError

    def start(self, timeout_s: float = 120) -> float:
        """Seconds until the node serves Metadata."""
        log = (self.directory / "server.log").open("ab")
        began = time.perf_counter()
        self.process = subprocess.Popen(self.command, stdout=log, stderr=log)
        while time.perf_counter() - began < timeout_s:
            if self.process.poll() is not None:
                raise RuntimeError(f"{self.name} exited during start-up; see {self.directory}/server.log")
            if live_brokers("127.0.0.1", self.port, 5.0):
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
        return cpu_seconds(self.process.pid)

    def resident_mb(self) -> float:
        assert self.process is not None
        return resident_mb(self.process.pid)


class Kafka(Server):
    @property
    def format_command(self) -> list[str]:
        return [
            "java", "-cp", self.classpath, "kafka.tools.StorageTool", "format", "--standalone",
            "-t", CLUSTER_ID, "-c", str(self.properties),
        ]  # fmt: skip

    @property
    def command(self) -> list[str]:
        return ["java", *KAFKA_OPTIONS, "-cp", self.classpath, "kafka.Kafka", str(self.properties)]


class Strandline(Server):
    """Started by the launcher script, as by a user."""

    @property
    def format_command(self) -> list[str]:
        return [
            str(REPOSITORY / "strandline"), "storage", "format", "--standalone",
            "--cluster-id", CLUSTER_ID, "-c", str(self.properties),
        ]  # fmt: skip

    @property
    def command(self) -> list[str]:
        return [str(REPOSITORY / "strandline"), "server", str(self.properties)]
