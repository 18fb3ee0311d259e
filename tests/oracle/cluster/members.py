"""A cluster whose members may be our nodes or Apache Kafka's, in any mixture: both start on the same properties files.

The tools are pointed at it, its directories change hands, and its members vote with and for each other.
"""

from __future__ import annotations

import contextlib
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from cluster.quorum.admin_requests import live_brokers, wait_until_replayed_by_all
from compat.java.jvm import Tools
from oracle.kafka_server import CLUSTER_ID, QUICK
from strandline.launch import processes
from strandline.launch.cluster_state import ClusterState, NodeState, Roles
from strandline.launch.formatting import format_node
from strandline.launch.ports import random_free_port
from strandline.launch.readiness import responds
from strandline.launch.server_properties import node_properties, write_properties

Who = Literal["ours", "kafka"]
TIMEOUT_S = 90.0


@dataclass
class Member:
    node: NodeState
    classpath: str
    _process: subprocess.Popen[bytes] | None = None
    _who: Who = "ours"

    @property
    def id(self) -> int:
        return self.node.id

    @property
    def address(self) -> str:
        """Where clients find it, if it is a broker."""
        return f"{self.node.host}:{self.node.port}"

    @property
    def controller(self) -> str:
        return self.node.controller_endpoint

    @property
    def directory(self) -> Path:
        return Path(self.node.data)

    @property
    def properties(self) -> Path:
        return Path(f"{self.node.data}.properties")

    @property
    def log(self) -> Path:
        return Path(self.node.log)

    @property
    def runs(self) -> bool:
        return self._process is not None

    def start(self, who: Who) -> None:
        assert self._process is None
        self._who = who
        if who == "ours":
            self._process = processes.start(str(self.properties), self.node.log)
            return
        command = ["java", "-Xmx512m", *QUICK, "-cp", self.classpath, "kafka.Kafka", str(self.properties)]
        with self.log.open("ab") as output:
            self._process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=output, stderr=output, cwd=self.directory.parent
            )

    def is_ready(self, brokers: set[int]) -> bool:
        assert self._process is not None and self._process.poll() is None, f"node {self.id} ended: {self.tail()}"
        if self.node.is_broker:
            return brokers <= live_brokers(self.address)
        assert self.node.controller_port is not None
        return responds(self.node.host, self.node.controller_port)

    def terminate(self) -> None:
        if self._process is not None:
            self._process.terminate()

    def wait_until_stopped(self) -> None:
        """Of combined nodes of Kafka that stop together the last one's broker may wait for minutes for controllers
        that have gone already: it is killed then. Ours have to stop by themselves."""
        if self._process is not None:
            try:
                self._process.wait(TIMEOUT_S if self._who == "ours" else 40)
            except subprocess.TimeoutExpired:
                if self._who == "ours":
                    raise
            finally:
                self.kill()

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def pause(self) -> None:
        """Silent from now on, but not gone."""
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        assert self._process is not None
        self._process.send_signal(signal.SIGCONT)

    def said(self) -> str:
        return self.log.read_text(errors="replace") if self.log.exists() else ""

    def tail(self) -> str:
        return self.said()[-4000:]


@dataclass
class Members:
    """`roles` of nodes 1, 2, …; the controllers among the first `voters` of them found the quorum."""

    home: Path
    classpath: str
    roles: Sequence[Roles]
    voters: int
    settings: Mapping[str, str] = field(default_factory=dict)
    static: bool = False
    """Voters named in the properties files (kraft.version 0), not in the log."""
    each: dict[int, Member] = field(default_factory=dict)

    def __post_init__(self) -> None:
        state = ClusterState(CLUSTER_ID)
        taken: set[int] = set()
        for number, roles in enumerate(self.roles, 1):
            port, controller_port = (_port(taken) if role in roles else None for role in ("broker", "controller"))
            data = str(self.home / f"node-{number}")
            state.add(NodeState(number, None, "127.0.0.1", port, controller_port, data, f"{data}.log", roles))
        self.state = state
        self.each = {node.id: Member(node, self.classpath) for node in state.nodes}
        for member in self.each.values():
            write_properties(str(member.properties), self._properties(member.node))

    def _properties(self, node: NodeState) -> dict[str, str]:
        properties = node_properties(node, self._founders, self.settings)
        if self.static:
            del properties["controller.quorum.bootstrap.servers"]
            voters = [f"{each.id}@{each.controller_endpoint}" for each in self._founders if each.is_controller]
            properties["controller.quorum.voters"] = ",".join(voters)
        return properties

    @property
    def _founders(self) -> list[NodeState]:
        return [node for node in self.state.nodes if node.id <= self.voters]

    @property
    def brokers(self) -> list[str]:
        return [member.address for member in self.each.values() if member.node.is_broker]

    @property
    def bootstrap(self) -> str:
        return ",".join(self.brokers)

    @property
    def controllers(self) -> list[str]:
        return [node.controller_endpoint for node in self._founders if node.is_controller]

    def format(self) -> None:
        """As `strandline up` does it."""
        founders = [node for node in self._founders if node.is_controller]
        for node in self.state.nodes:
            format_node(node, ClusterState(CLUSTER_ID, self._founders), self.settings, founders)

    def format_by_kafka(self, tools: Tools) -> None:
        for member in self.each.values():
            done = tools.run("kafka.tools.StorageTool", "format", "-t", CLUSTER_ID, "-c", str(member.properties))
            assert done.code == 0, done.output

    def start(self, who: Who, *ids: int) -> None:
        """These, or all; back when every broker that runs sees every other."""
        for node_id in ids or self.each:
            self.each[node_id].start(who)
        self.wait_until_ready()

    def wait_until_ready(self) -> None:
        running = [member for member in self.each.values() if member.runs]
        brokers = {member.id for member in running if member.node.is_broker}
        for member in running:
            wait_until(lambda member=member: member.is_ready(brokers), lambda member=member: member.tail())  # type: ignore[misc]

    def settle(self) -> None:
        """Whichever broker is asked next knows of everything that was decided before."""
        wait_until_replayed_by_all(
            [member.address for member in self.each.values() if member.runs and member.node.is_broker]
        )

    def stop(self, *ids: int) -> None:
        """Brokers first: they say good-bye to a controller."""
        chosen = [self.each[node_id] for node_id in ids or self.each]
        for group in (
            [member for member in chosen if member.node.is_broker],
            [member for member in chosen if not member.node.is_broker],
        ):
            for member in group:
                member.terminate()
            for member in group:
                member.wait_until_stopped()

    def kill(self, *ids: int) -> None:
        for node_id in ids or self.each:
            self.each[node_id].kill()

    @contextlib.contextmanager
    def still(self) -> Iterator[None]:
        """For a moment nobody does anything, so that files can be copied as they are."""
        running = [member for member in self.each.values() if member.runs]
        try:
            for member in running:
                member.pause()
            yield
        finally:
            for member in running:
                member.resume()

    @contextlib.contextmanager
    def ended(self) -> Iterator[None]:
        """Nobody outlives the `with`."""
        try:
            yield
        finally:
            self.kill()


def _port(taken: set[int]) -> int:
    port = random_free_port("127.0.0.1", taken)
    taken.add(port)
    return port


def wait_until(done: Callable[[], bool], say: Callable[[], str] = str, *, within_s: float = TIMEOUT_S) -> None:
    deadline = time.monotonic() + within_s
    while not done():
        assert time.monotonic() < deadline, f"not within {within_s:g} s: {say()}"
        time.sleep(0.02)
