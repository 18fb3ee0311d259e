"""A cluster of node processes with its data in one directory: starts, restarts and stops them.

Used by `strandline up` and `down`, by users' tests and by the chaos tests. Invariants: a node is formatted once (see
`launch/preparation`), and only one launcher at a time starts or stops the nodes of a directory.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import subprocess
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Self

from strandline.launch import processes
from strandline.launch.add_voters import NewVoter, add_voters
from strandline.launch.cluster_state import ClusterState, NodeState, read_state, write_state
from strandline.launch.errors import DirectoryLocked, LaunchError, NodeExited, NodesExited, NotReady
from strandline.launch.formatting import meta_properties_on_disk, metadata_directory
from strandline.launch.preparation import check_startable, prepare, replace
from strandline.launch.readiness import live_brokers, responds
from strandline.launch.server_properties import check_settings, node_properties, write_properties
from strandline.launch.topology import Topology
from strandline.model.ids import Endpoint

READY_SECONDS = 60.0
READY_AFTER_EXIT_SECONDS = 10.0
"""The timeout after one node has exited: without it the others may lack a majority and never become ready."""
STOP_SECONDS = 45.0
"""Longer than a controlled shutdown that times out."""


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
        cls,
        directory: str | os.PathLike[str],
        *,
        nodes: int | None = None,
        controllers: int | None = None,
        brokers: int | None = None,
        settings: Mapping[str, str] | None = None,
    ) -> Iterator[Self]:
        """A cluster as a context manager, on free ports."""
        cluster = cls(directory)
        try:
            cluster.up(nodes, controllers=controllers, brokers=brokers, port=None, settings=settings)
            yield cluster
        finally:
            cluster.down()

    @property
    def state(self) -> ClusterState:
        state = read_state(self.directory)
        if state is None:
            raise LaunchError(f"there is no cluster in {self.directory}: `strandline up --data` creates one")
        return state

    @property
    def bootstrap(self) -> str:
        return self.state.bootstrap

    @property
    def nodes(self) -> list[NodeState]:
        return self.state.nodes

    def running(self) -> list[NodeState]:
        state = read_state(self.directory)
        return [node for node in state.nodes if self._is_running(node)] if state is not None else []

    def up(
        self,
        nodes: int | None = None,
        *,
        controllers: int | None = None,
        brokers: int | None = None,
        port: int | None = 9092,
        settings: Mapping[str, str] | None = None,
        replaced: Collection[int] = (),
    ) -> list[NodeState]:
        """Starts the nodes that are not running and waits until they are ready; returns those that were started.

        Without numbers, the existing nodes (a new cluster gets one). `port=None` means any free port; a node keeps its
        ports. Without `settings`, those of the last call. The nodes in `replaced` start with empty directories."""
        topology = Topology(nodes, controllers, brokers)
        settings = self._settings = self._settings if settings is None else settings
        for warning in check_settings(settings):
            self._say(f"warning: {warning}")
        # Rejects an invalid topology before anything is created.
        present = read_state(self.directory)
        topology.missing(present.nodes if present is not None else [])
        self._make_directory()
        with self._lock():
            prepared = prepare(self.directory, topology, port, settings)
            state = prepared.state
            for surplus in topology.surplus(state.nodes):
                self._say(f"this cluster has {surplus}; all of them are started: `up` does not remove nodes")
            for node_id in replaced:
                self._replace(node_id, state, settings)
            missing = [node for node in state.nodes if not self._is_running(node)]
            self._start_all(missing, state, settings)
            if not missing:
                self._wait_until_ready(state.nodes)  # a running process may be paused
            self._add_voters(prepared.joining, state, settings)
            return missing

    def start(self, node_id: int) -> None:
        """Starts one stopped node with the settings of the last call; returns when it is ready."""
        with self._lock(timeout_seconds=5.0):
            state = self.state
            node = state.node(node_id)
            if node is None or self._is_running(node):
                raise LaunchError(f"there is no stopped node {node_id} in {self.directory}")
            self._start_all([node], state, self._settings)

    def restart(self, node_id: int, timeout_seconds: float = STOP_SECONDS) -> None:
        """Stops the node with a controlled shutdown, then starts it."""
        self.stop([self._known(node_id)], timeout_seconds)
        self.start(node_id)

    def down(self, timeout_seconds: float = STOP_SECONDS) -> list[NodeState]:
        """Stops every running node; returns those that were stopped."""
        if read_state(self.directory) is None:
            return []
        with self._lock(timeout_seconds=5.0):
            stopped = self.running()
            self.stop(stopped, timeout_seconds)
            return stopped

    def stop(self, nodes: list[NodeState], timeout_seconds: float = STOP_SECONDS) -> None:
        """Sends SIGTERM (controlled shutdown), after the timeout SIGKILL; brokers first, as they need a controller."""
        deadline = time.monotonic() + timeout_seconds
        for group in (
            [node for node in nodes if node.is_broker],
            [node for node in nodes if not node.is_broker],
        ):
            terminated = [(node, node.pid) for node in group if node.pid is not None and self._is_running(node)]
            for _, pid in terminated:
                processes.terminate(pid)
            for node, pid in terminated:
                if not processes.wait_until_exited(pid, node.properties, deadline - time.monotonic()):
                    self._say(f"node {node.id} did not stop within {timeout_seconds:g} s: killing it ({node.log})")
                    processes.kill(pid)
                    processes.wait_until_exited(pid, node.properties, 10.0)
            for node in group:
                self._clear_pid(node.id)

    def stop_started(self, timeout_seconds: float = STOP_SECONDS) -> None:
        """Stops only the nodes that this object has started."""
        self.stop(
            [node for node in self.nodes if node.id in self._children and self._is_running(node)], timeout_seconds
        )

    def kill(self, node_id: int) -> None:
        """Kills the process (SIGKILL) without a controlled shutdown. `start` or `up` restarts it."""
        node = self._known(node_id)
        if node.pid is not None and self._is_running(node):
            processes.kill(node.pid)
            processes.wait_until_exited(node.pid, node.properties, 10.0)
        self._clear_pid(node_id)

    def pause(self, node_id: int) -> None:
        """Stops the process (SIGSTOP) until `resume`: it does not respond, but its connections stay open."""
        processes.pause(self._pid(node_id))

    def resume(self, node_id: int) -> None:
        processes.resume(self._pid(node_id))

    @property
    def has_started(self) -> bool:
        """Whether a node that this object has started may still run."""
        return bool(self._children)

    def exited_nodes(self) -> list[NodeExited]:
        """The nodes started by this object that have exited since the last call."""
        exited = [(node_id, child) for node_id, child in self._children.items() if child.poll() is not None]
        found = []
        for node_id, child in exited:
            del self._children[node_id]
            node = self._known(node_id)
            reason = processes.tail(node.log, since=self._log_sizes[node_id])
            expected = node.pid != child.pid or child.returncode == 0
            found.append(NodeExited(node_id, child.returncode, reason, expected=expected))
        return found

    def _make_directory(self) -> None:
        try:
            os.makedirs(self.directory, exist_ok=True)
        except OSError as error:
            raise LaunchError(f"{self.directory} cannot be created: {error.strerror}") from error

    def _replace(self, node_id: int, state: ClusterState, settings: Mapping[str, str]) -> None:
        node = self._known(node_id)
        if self._is_running(node):
            raise LaunchError(f"node {node_id} is running: stop it before it is replaced")
        replace(node, state, settings)

    def _add_voters(self, nodes: list[NodeState], state: ClusterState, settings: Mapping[str, str]) -> None:
        voters = {}
        for node in nodes:
            meta = meta_properties_on_disk(metadata_directory(node_properties(node, state.nodes, settings)))
            if meta is not None and meta.directory_id is not None and node.controller_port is not None:
                voters[node.id] = NewVoter(meta.directory_id, Endpoint(node.host, node.controller_port))
        if voters:
            add_voters(state.bootstrap or state.nodes[0].controller_endpoint, voters, self._say)

    def _start_all(self, nodes: list[NodeState], state: ClusterState, settings: Mapping[str, str]) -> None:
        for node in nodes:
            check_startable(node, state, settings, self.directory)
        for node in nodes:
            self._start(node, state, settings)
        self._wait_until_ready(nodes)

    def _start(self, node: NodeState, state: ClusterState, settings: Mapping[str, str]) -> None:
        os.makedirs(node.data, exist_ok=True)
        write_properties(node.properties, node_properties(node, state.nodes, settings))
        self._log_sizes[node.id] = os.path.getsize(node.log) if os.path.exists(node.log) else 0
        child = processes.start(node.properties, node.log)
        self._children[node.id] = child
        node.pid = child.pid
        write_state(self.directory, state)

    def _wait_until_ready(self, nodes: list[NodeState]) -> None:
        """Raises NodesExited if any of them has exited; the others keep running."""
        began = time.monotonic()
        deadline = began + READY_SECONDS
        all_exited: list[NodeExited] = []
        is_announced = False
        # The command line of an exiting process disappears before `poll` reports its exit.
        while waiting := _unready([node for node in nodes if node.id in self._children or self._is_running(node)]):
            exited = self.exited_nodes()
            if exited:
                all_exited += exited
                deadline = min(deadline, time.monotonic() + READY_AFTER_EXIT_SECONDS)
                continue
            if time.monotonic() > deadline:
                if not all_exited:
                    raise NotReady(waiting[0].id, time.monotonic() - began, waiting[0].log)
                break
            if time.monotonic() - began > 2.0 and not is_announced:
                is_announced = True
                self._say(f"waiting for {', '.join(f'node {node.id}' for node in waiting)} to be ready …")
            time.sleep(processes.POLL_SECONDS)
        all_exited += self.exited_nodes()
        for each in all_exited:
            self._clear_pid(each.node_id)
        if all_exited:
            raise NodesExited(all_exited, [node.id for node in self.running()])

    def _is_running(self, node: NodeState) -> bool:
        child = self._children.get(node.id)
        if child is not None and child.pid == node.pid and child.poll() is not None:
            return False
        return processes.is_node(node.pid, node.properties)

    def _clear_pid(self, node_id: int) -> None:
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

    def _pid(self, node_id: int) -> int:
        node = self._known(node_id)
        if node.pid is None or not self._is_running(node):
            raise LaunchError(f"node {node_id} is not running: `strandline up --data {self.directory}` starts it")
        return node.pid

    @contextlib.contextmanager
    def _lock(self, timeout_seconds: float = 0.0) -> Iterator[None]:
        deadline = time.monotonic() + timeout_seconds
        descriptor = os.open(os.path.join(self.directory, ".up.lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            while True:
                try:
                    fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    break
                except BlockingIOError:
                    if time.monotonic() >= deadline:
                        raise DirectoryLocked(self.directory) from None
                    time.sleep(processes.POLL_SECONDS)
            yield
        finally:
            os.close(descriptor)


def _unready(nodes: list[NodeState]) -> list[NodeState]:
    """The nodes that do not respond yet, or whose metadata lacks one of these brokers."""
    brokers = {node.id for node in nodes if node.is_broker}
    waiting = []
    for node in nodes:
        if node.port is not None:
            ready = brokers <= set(live_brokers(node.host, node.port))
        else:
            assert node.controller_port is not None, "a node is a broker or a controller"
            ready = responds(node.host, node.controller_port)
        if not ready:
            waiting.append(node)
    return waiting
