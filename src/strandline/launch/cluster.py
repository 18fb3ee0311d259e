"""A cluster of node processes in one directory: brought up, brought back, taken down.

`strandline up` and `down`, users' tests and the chaos tests all go through `Cluster`. It keeps two promises: a node is
formatted once in its life (see `launch/state`), and only one launcher at a time changes what runs in a directory.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import random
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Self

from strandline.launch import processes
from strandline.launch.errors import AlreadyStarting, DiskEmptied, LaunchError, NodeDied, NotReady, PortTaken
from strandline.launch.ports import any_free, is_free, next_free
from strandline.launch.properties import check_settings, node_properties, write_properties
from strandline.launch.readiness import counts_itself
from strandline.launch.state import ClusterState, NodeState, read_state, write_state
from strandline.launch.storage import cluster_id_on_disk, format_node, is_formatted, metadata_directory
from strandline.model.ids import random_uuid

HOST = "127.0.0.1"
CONTROLLER_PORTS_ABOVE = 10_000
READY_SECONDS = 60.0
STOP_SECONDS = 30.0


class Cluster:
    def __init__(self, directory: str | os.PathLike[str], say: Callable[[str], None] | None = None) -> None:
        self.directory = os.path.abspath(os.fspath(directory))
        self._say = say or (lambda _line: None)
        self._children: dict[int, subprocess.Popen[bytes]] = {}
        self._log_sizes: dict[int, int] = {}
        self._settings: Mapping[str, str] = {}

    @classmethod
    @contextlib.contextmanager
    def started(
        cls, directory: str | os.PathLike[str], *, nodes: int = 1, settings: Mapping[str, str] | None = None
    ) -> Iterator[Self]:
        """A cluster for the length of a `with`, on ports that the operating system picks."""
        cluster = cls(directory)
        try:
            cluster.up(nodes, port=None, settings=settings)
            yield cluster
        finally:
            cluster.down()

    @property
    def state(self) -> ClusterState:
        state = read_state(self.directory)
        if state is None:
            raise LaunchError(f"there is no cluster in {self.directory}: `strandline up --data` makes one")
        return state

    @property
    def bootstrap(self) -> str:
        return self.state.bootstrap

    @property
    def nodes(self) -> list[NodeState]:
        return self.state.nodes

    def running(self) -> list[NodeState]:
        state = read_state(self.directory)
        return [node for node in state.nodes if self._runs(node)] if state is not None else []

    def up(
        self, nodes: int = 1, *, port: int | None = 9092, settings: Mapping[str, str] | None = None
    ) -> list[NodeState]:
        """Starts what does not run yet and waits until it is ready; the nodes that were started.

        `port=None` means any; a node keeps its ports for life. Without `settings`, those given last time."""
        settings = self._settings = self._settings if settings is None else settings
        for warning in check_settings(settings):
            self._say(f"warning: {warning}")
        self._make_directory()
        with self._lock():
            state = self._prepare(nodes, port, settings)
            missing = [node for node in state.nodes if not self._runs(node)]
            for node in missing:
                self._check(node, state, settings)
            for node in missing:
                self._start(node, state, settings)
            self._wait_until_ready(missing)
            return missing

    def down(self, timeout_seconds: float = STOP_SECONDS) -> list[NodeState]:
        """Stops every node that runs; those that were stopped."""
        if read_state(self.directory) is None:
            return []
        with self._lock(patience_seconds=5.0):
            stopped = self.running()
            self.stop(stopped, timeout_seconds)
            return stopped

    def stop(self, nodes: list[NodeState], timeout_seconds: float = STOP_SECONDS) -> None:
        """In good order if they manage it in time, by force if not."""
        asked = [(node, node.pid) for node in nodes if node.pid is not None]
        for _, pid in asked:
            processes.ask_to_stop(pid)
        deadline = time.monotonic() + timeout_seconds
        for node, pid in asked:
            if not processes.wait_until_gone(pid, node.properties, deadline - time.monotonic()):
                self._say(f"node {node.id} did not stop within {timeout_seconds:g} s: killing it (its log: {node.log})")
                processes.kill(pid)
                processes.wait_until_gone(pid, node.properties, 10.0)
            self._gone(node.id)

    def stop_started(self, timeout_seconds: float = STOP_SECONDS) -> None:
        """Stops the nodes that this object has started, and no others."""
        self.stop([node for node in self.nodes if node.id in self._children and self._runs(node)], timeout_seconds)

    def kill(self, node_id: int) -> None:
        """As a power cut would, for one process: no good-byes. `up` brings it back."""
        node = self._known(node_id)
        if node.pid is not None and self._runs(node):
            processes.kill(node.pid)
            processes.wait_until_gone(node.pid, node.properties, 10.0)
        self._gone(node_id)

    def died(self) -> NodeDied | None:
        """The first node started by this object that has ended without being asked to."""
        for node_id, child in self._children.items():
            if child.poll() is not None:
                node = self._known(node_id)
                reason = processes.tail(node.log, since=self._log_sizes[node_id])
                return NodeDied(node.id, child.returncode, reason, asked=node.pid is None or child.returncode == 0)
        return None

    def _make_directory(self) -> None:
        try:
            os.makedirs(self.directory, exist_ok=True)
        except OSError as error:
            raise LaunchError(f"{self.directory} cannot be made: {error.strerror}") from error

    def _prepare(self, count: int, port: int | None, settings: Mapping[str, str]) -> ClusterState:
        """The cluster as it will be: ports chosen, new nodes formatted, and written down once they are."""
        state = read_state(self.directory)
        if state is None:
            found = cluster_id_on_disk(self._data_of(1))
            state = ClusterState(found or str(random_uuid(random.SystemRandom())))
            write_state(self.directory, state)
        is_new = not state.nodes
        added = [self._new_node(state, port) for _ in range(count - len(state.nodes))]
        for node in added:
            format_node(node, state, settings, founders=added if is_new else [])
        if added:
            write_state(self.directory, state)
        return state

    def _new_node(self, state: ClusterState, port: int | None) -> NodeState:
        node_id = max((node.id for node in state.nodes), default=0) + 1
        taken = {each for node in state.nodes for each in (node.port, node.controller_port)}
        if port is None:
            broker_port = any_free(HOST, taken)
            controller_port = any_free(HOST, {*taken, broker_port})
        else:
            broker_port = next_free(HOST, port, taken)
            above = port + CONTROLLER_PORTS_ABOVE
            first = above if above < 65_000 else port - CONTROLLER_PORTS_ABOVE
            controller_port = next_free(HOST, first, {*taken, broker_port})
        data = self._data_of(node_id)
        node = NodeState(node_id, None, HOST, broker_port, controller_port, data, f"{data}.log")
        state.add(node)
        return node

    def _data_of(self, node_id: int) -> str:
        return os.path.join(self.directory, f"node-{node_id}")

    def _check(self, node: NodeState, state: ClusterState, settings: Mapping[str, str]) -> None:
        properties = node_properties(node, state.nodes, settings)
        if not is_formatted(properties):
            raise DiskEmptied(node.id, metadata_directory(properties), self.directory)
        for port in (node.port, node.controller_port):
            if not is_free(node.host, port):
                raise PortTaken(node.id, node.host, port)

    def _start(self, node: NodeState, state: ClusterState, settings: Mapping[str, str]) -> None:
        os.makedirs(node.data, exist_ok=True)
        write_properties(node.properties, node_properties(node, state.nodes, settings))
        self._log_sizes[node.id] = os.path.getsize(node.log) if os.path.exists(node.log) else 0
        child = processes.start(node.properties, node.log)
        self._children[node.id] = child
        node.pid = child.pid
        write_state(self.directory, state)

    def _wait_until_ready(self, nodes: list[NodeState]) -> None:
        began = time.monotonic()
        told = False
        for node in nodes:
            while not counts_itself(node.host, node.port, node.id):
                self._raise_if_dead(nodes)
                waited = time.monotonic() - began
                if waited > READY_SECONDS:
                    raise NotReady(node.id, waited, node.log)
                if waited > 2.0 and not told:
                    told = True
                    self._say(f"waiting for node {node.id} to be ready …")
                time.sleep(processes.POLL_SECONDS)

    def _raise_if_dead(self, started: list[NodeState]) -> None:
        died = self.died()
        if died is not None:
            self.stop([node for node in started if node.id != died.node_id])
            self._gone(died.node_id)
            raise died

    def _runs(self, node: NodeState) -> bool:
        child = self._children.get(node.id)
        if child is not None and child.poll() is not None:
            return False
        return processes.is_node(node.pid, node.properties)

    def _gone(self, node_id: int) -> None:
        child = self._children.pop(node_id, None)
        if child is not None:
            child.wait()
        state = self.state
        node = state.node(node_id)
        if node is not None and node.pid is not None:
            node.pid = None
            write_state(self.directory, state)

    def _known(self, node_id: int) -> NodeState:
        node = self.state.node(node_id)
        if node is None:
            raise LaunchError(f"there is no node {node_id} in {self.directory}")
        return node

    @contextlib.contextmanager
    def _lock(self, patience_seconds: float = 0.0) -> Iterator[None]:
        deadline = time.monotonic() + patience_seconds
        descriptor = os.open(os.path.join(self.directory, ".up.lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            while True:
                try:
                    fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    break
                except BlockingIOError:
                    if time.monotonic() >= deadline:
                        raise AlreadyStarting(self.directory) from None
                    time.sleep(processes.POLL_SECONDS)
            yield
        finally:
            os.close(descriptor)
