"""A cluster of our nodes and Apache Kafka's in any mixture: both start on the same properties files.

Tests run Kafka's tools against it, replace one implementation by the other on the same directories, and let nodes of
both implementations vote for each other.
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
from oracle.kafka_server import CLUSTER_ID, QUICK, internal_topic_configs
from strandline.launch import processes
from strandline.launch.cluster_state import ClusterState, NodeState, Roles
from strandline.launch.formatting import format_node
from strandline.launch.ports import random_free_port
from strandline.launch.readiness import responds
from strandline.launch.server_properties import node_properties, write_properties

Implementation = Literal["ours", "kafka"]
TIMEOUT_S = 90.0


@dataclass
class ClusterNode:
    state: NodeState
    classpath: str
    _process: subprocess.Popen[bytes] | None = None
    _implementation: Implementation = "ours"

    @property
    def id(self) -> int:
        return self.state.id

    @property
    def address(self) -> str:
        """The listener for clients, if it is a broker."""
        return f"{self.state.host}:{self.state.port}"

    @property
    def controller(self) -> str:
        return self.state.controller_endpoint

    @property
    def directory(self) -> Path:
        return Path(self.state.data)

    @property
    def properties(self) -> Path:
        return Path(f"{self.state.data}.properties")

    @property
    def log(self) -> Path:
        return Path(self.state.log)

    @property
    def is_running(self) -> bool:
        return self._process is not None

    def start(self, implementation: Implementation) -> None:
        assert self._process is None
        self._implementation = implementation
        if implementation == "ours":
            self._process = processes.start(str(self.properties), self.state.log)
            return
        command = ["java", "-Xmx512m", *QUICK, "-cp", self.classpath, "kafka.Kafka", str(self.properties)]
        with self.log.open("ab") as output:
            self._process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=output, stderr=output, cwd=self.directory.parent
            )

    def is_ready(self, brokers: set[int]) -> bool:
        assert self._process is not None and self._process.poll() is None, f"node {self.id} ended: {self.tail()}"
        if self.state.is_broker:
            return brokers <= live_brokers(self.address)
        assert self.state.controller_port is not None
        return responds(self.state.host, self.state.controller_port)

    def terminate(self) -> None:
        if self._process is not None:
            self._process.terminate()

    def wait_until_stopped(self) -> None:
        """When Kafka's combined nodes stop together, the last broker may wait for minutes for controllers that have
        already stopped: it is killed after 40 s. Our nodes must stop by themselves."""
        if self._process is not None:
            try:
                self._process.wait(TIMEOUT_S if self._implementation == "ours" else 40)
            except subprocess.TimeoutExpired:
                if self._implementation == "ours":
                    raise
            finally:
                self.kill()

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def pause(self) -> None:
        """Stops the process with SIGSTOP; its connections stay open."""
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        assert self._process is not None
        self._process.send_signal(signal.SIGCONT)

    def log_text(self) -> str:
        return self.log.read_text(errors="replace") if self.log.exists() else ""

    def tail(self) -> str:
        return self.log_text()[-4000:]


@dataclass
class MixedCluster:
    """`roles` of nodes 1, 2, …; the controllers among the first `voters` nodes are the initial voters."""

    home: Path
    classpath: str
    roles: Sequence[Roles]
    voters: int
    settings: Mapping[str, str] = field(default_factory=dict)
    static: bool = False
    """Static voters (`controller.quorum.voters`, kraft.version 0)."""
    nodes: dict[int, ClusterNode] = field(default_factory=dict)

    def __post_init__(self) -> None:
        state = ClusterState(CLUSTER_ID)
        taken: set[int] = set()
        for number, roles in enumerate(self.roles, 1):
            port, controller_port = (_port(taken) if role in roles else None for role in ("broker", "controller"))
            data = str(self.home / f"node-{number}")
            state.add(NodeState(number, None, "127.0.0.1", port, controller_port, data, f"{data}.log", roles))
        self.state = state
        self.nodes = {node.id: ClusterNode(node, self.classpath) for node in state.nodes}
        for node in self.nodes.values():
            write_properties(str(node.properties), self._properties(node.state))

    def _properties(self, node: NodeState) -> dict[str, str]:
        brokers = sum(each.is_broker for each in self._initial_nodes)
        properties = {
            **internal_topic_configs(brokers),
            **node_properties(node, self._initial_nodes, self.settings),
        }
        if self.static:
            del properties["controller.quorum.bootstrap.servers"]
            voters = [f"{each.id}@{each.controller_endpoint}" for each in self._initial_nodes if each.is_controller]
            properties["controller.quorum.voters"] = ",".join(voters)
        return properties

    @property
    def _initial_nodes(self) -> list[NodeState]:
        return [node for node in self.state.nodes if node.id <= self.voters]

    @property
    def brokers(self) -> list[str]:
        return [node.address for node in self.nodes.values() if node.state.is_broker]

    @property
    def bootstrap(self) -> str:
        return ",".join(self.brokers)

    @property
    def controllers(self) -> list[str]:
        return [node.controller_endpoint for node in self._initial_nodes if node.is_controller]

    def format(self) -> None:
        """As `strandline up` does."""
        initial_controllers = [node for node in self._initial_nodes if node.is_controller]
        for node in self.state.nodes:
            format_node(node, ClusterState(CLUSTER_ID, self._initial_nodes), self.settings, initial_controllers)

    def format_by_kafka(self, tools: Tools) -> None:
        for node in self.nodes.values():
            done = tools.run("kafka.tools.StorageTool", "format", "-t", CLUSTER_ID, "-c", str(node.properties))
            assert done.code == 0, done.output

    def start(self, implementation: Implementation, *ids: int) -> None:
        """Starts these nodes, or all; returns when every running broker lists every other."""
        for node_id in ids or self.nodes:
            self.nodes[node_id].start(implementation)
        self.wait_until_ready()

    def wait_until_ready(self) -> None:
        running = [node for node in self.nodes.values() if node.is_running]
        brokers = {node.id for node in running if node.state.is_broker}
        for node in running:
            wait_until(lambda node=node: node.is_ready(brokers), lambda node=node: node.tail())  # type: ignore[misc]

    def wait_until_replayed(self) -> None:
        """Waits until every running broker has replayed all committed changes."""
        wait_until_replayed_by_all(
            [node.address for node in self.nodes.values() if node.is_running and node.state.is_broker]
        )

    def stop(self, *ids: int) -> None:
        """Brokers first: their controlled shutdown needs a controller."""
        chosen = [self.nodes[node_id] for node_id in ids or self.nodes]
        for group in (
            [node for node in chosen if node.state.is_broker],
            [node for node in chosen if not node.state.is_broker],
        ):
            for node in group:
                node.terminate()
            for node in group:
                node.wait_until_stopped()

    def kill(self, *ids: int) -> None:
        for node_id in ids or self.nodes:
            self.nodes[node_id].kill()

    @contextlib.contextmanager
    def paused(self) -> Iterator[None]:
        """Pauses all processes, so that their files can be copied as of one moment."""
        running = [node for node in self.nodes.values() if node.is_running]
        try:
            for node in running:
                node.pause()
            yield
        finally:
            for node in running:
                node.resume()

    @contextlib.contextmanager
    def killed_on_exit(self) -> Iterator[None]:
        """Kills all nodes at the end of the `with`."""
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
