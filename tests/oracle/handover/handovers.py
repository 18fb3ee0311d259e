"""One directory served by our node and by Apache Kafka in turn, and what clients read before and after each handover.

Both are started on the same properties file.
"""

from __future__ import annotations

import contextlib
import json
import shutil
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from compat.java.jvm import Tools
from oracle.kafka_server import KafkaServer
from strandline.launch import processes
from strandline.launch.readiness import is_live_broker

Inventory = dict[str, Any]
SETTINGS = {
    "group.initial.rebalance.delay.ms": "0",
    "offsets.topic.num.partitions": "3",
    "log.cleaner.backoff.ms": "100",
    "log.initial.task.delay.ms": "500",
    # The next server starts from a metadata snapshot and the log after it.
    "metadata.log.max.record.bytes.between.snapshots": "4000",
}


class OurServer:
    def __init__(self, properties: Path, bootstrap: str) -> None:
        self._properties = str(properties)
        self._bootstrap = bootstrap
        self.log = properties.with_suffix(".ours.log")
        self._process = processes.start(self._properties, str(self.log))

    def wait_until_ready(self) -> None:
        host, port = self._bootstrap.split(":")
        deadline = time.monotonic() + 120
        while not is_live_broker(host, int(port), 1):
            assert self._process.poll() is None, f"our node did not start: {processes.tail(str(self.log))}"
            assert time.monotonic() < deadline, processes.tail(str(self.log))
            time.sleep(0.02)

    def stop(self) -> None:
        self._process.terminate()
        assert self._process.wait(120) == 0, processes.tail(str(self.log))

    def kill(self) -> None:
        self._process.kill()
        self._process.wait(60)


@dataclass
class Handovers:
    properties: Path
    classpath: str
    tools: Tools
    found: dict[str, tuple[Inventory, Inventory]] = field(default_factory=dict)
    """By handover: what clients read from the previous server and from the next."""
    log_errors: dict[str, list[str]] = field(default_factory=dict)
    """By handover: the lines that Kafka logged about the log files; it logs only errors."""
    _previous: Inventory | None = None
    _round: int = 0

    @property
    def bootstrap(self) -> str:
        listeners = next(line for line in self.properties.read_text().splitlines() if line.startswith("listeners="))
        return listeners.split("PLAINTEXT://")[1].split(",")[0].replace("\\:", ":")

    @property
    def data(self) -> Path:
        return self.properties.parent / "node-1"

    def ours(self, handover: str, ending: str = "stop") -> None:
        self._serve(handover, OurServer(self.properties, self.bootstrap), ending)

    def kafka(self, handover: str, ending: str = "stop") -> None:
        server = KafkaServer(self.classpath, self.properties)
        log_size = server.log.stat().st_size
        self._serve(handover, server, ending)
        text = server.log.read_bytes()[log_size:].decode()
        self.log_errors[handover] = [line for line in text.splitlines() if "LogLoader" in line or "LogManager" in line]

    def keep_copy(self, name: str) -> Path:
        return Path(shutil.copytree(self.data, self.properties.parent / name))

    def _serve(self, handover: str, server: OurServer | KafkaServer, ending: str) -> None:
        """Starts the server, reads what the previous server left, runs a workload, and stops or kills the server."""
        with self._killed_on_error(server.kill), self._with_log(server.log):
            server.wait_until_ready()
            if self._previous is not None:
                self.found[handover] = (self._previous, self._inventory())
            self._tool("Workload", str(self._round))
            self._round += 1
            self._previous = self._inventory()
            (server.stop if ending == "stop" else server.kill)()

    def _inventory(self) -> Inventory:
        found: Inventory = json.loads(self._tool("Inventory").splitlines()[-1])
        return found

    def _tool(self, name: str, *arguments: str) -> str:
        ran = self.tools.run(name, self.bootstrap, *arguments)
        assert ran.code == 0, ran.output
        return ran.output

    @staticmethod
    @contextlib.contextmanager
    def _with_log(log: Path) -> Iterator[None]:
        """Adds the end of the server's log to a failed assertion."""
        try:
            yield
        except AssertionError as error:
            error.add_note(processes.tail(str(log)))
            raise

    @staticmethod
    @contextlib.contextmanager
    def _killed_on_error(kill: Callable[[], None]) -> Iterator[None]:
        try:
            yield
        except BaseException:
            kill()
            raise
