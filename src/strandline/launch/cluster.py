"""A cluster of node processes in one directory: brought up, brought back, taken down.

`strandline up` and `down`, users' tests and the chaos tests all go through `Cluster`. It keeps two promises: a node is
formatted once in its life (see `launch/preparation`), and only one launcher at a time changes what runs in a directory.
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
from strandline.launch.preparation import check, prepare, replace
from strandline.launch.readiness import answers, live_brokers
from strandline.launch.server_properties import check_settings, node_properties, write_properties
from strandline.launch.topology import Topology
from strandline.model.ids import Endpoint

READY_SECONDS = 60.0
# Once a node has died at its start, the others may lack a majority: no use in waiting for them much longer.
READY_AFTER_DEATH_SECONDS = 10.0
# Longer than a node takes to leave in good order when nobody lets it go.
STOP_SECONDS = 45.0


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
        """A cluster for the length of a `with`, on ports that the operating system picks."""
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
        self,
        nodes: int | None = None,
        *,
        controllers: int | None = None,
        brokers: int | None = None,
        port: int | None = 9092,
        settings: Mapping[str, str] | None = None,
        replaced: Collection[int] = (),
    ) -> list[NodeState]:
        """Starts what does not run yet and waits until it is ready; the nodes that were started.

        Without numbers, the nodes that there are (a new cluster gets one). `port=None` means any; a node keeps its
        ports for life. Without `settings`, those given last time. The nodes in `replaced` begin with empty disks."""
        topology = Topology(nodes, controllers, brokers)
        settings = self._settings = self._settings if settings is None else settings
        for warning in check_settings(settings):
            self._say(f"warning: {warning}")
        # Refused before anything is made, if it is to be refused.
        present = read_state(self.directory)
        topology.missing(present.nodes if present is not None else [])
        self._make_directory()
        with self._lock():
            prepared = prepare(self.directory, topology, port, settings)
            state = prepared.state
            for surplus in topology.surplus(state.nodes):
                self._say(f"this cluster has {surplus}; all of them are started: `up` takes none away")
            for node_id in replaced:
                self._replace(node_id, state, settings)
            missing = [node for node in state.nodes if not self._runs(node)]
            self._start_all(missing, state, settings)
            if not missing:
                self._wait_until_ready(state.nodes)  # a process that is there may stand still
            self._give_votes(prepared.joining, state, settings)
            return missing

    def start(self, node_id: int) -> None:
        """One node that is down, with the settings given last; back when it is ready."""
        with self._lock(patience_seconds=5.0):
            state = self.state
            node = state.node(node_id)
            if node is None or self._runs(node):
                raise LaunchError(f"there is no node {node_id} that could be started in {self.directory}")
            self._start_all([node], state, self._settings)

    def restart(self, node_id: int, timeout_seconds: float = STOP_SECONDS) -> None:
        """Stopped in good order, then started."""
        self.stop([self._known(node_id)], timeout_seconds)
        self.start(node_id)

    def down(self, timeout_seconds: float = STOP_SECONDS) -> list[NodeState]:
        """Stops every node that runs; those that were stopped."""
        if read_state(self.directory) is None:
            return []
        with self._lock(patience_seconds=5.0):
            stopped = self.running()
            self.stop(stopped, timeout_seconds)
            return stopped

    def stop(self, nodes: list[NodeState], timeout_seconds: float = STOP_SECONDS) -> None:
        """In good order if they manage it in time, by force if not; brokers first, since they say good-bye to a
        controller."""
        deadline = time.monotonic() + timeout_seconds
        for group in (
            [node for node in nodes if node.is_broker],
            [node for node in nodes if not node.is_broker],
        ):
            asked = [(node, node.pid) for node in group if node.pid is not None and self._runs(node)]
            for _, pid in asked:
                processes.terminate(pid)
            for node, pid in asked:
                if not processes.wait_until_exited(pid, node.properties, deadline - time.monotonic()):
                    self._say(f"node {node.id} did not stop within {timeout_seconds:g} s: killing it ({node.log})")
                    processes.kill(pid)
                    processes.wait_until_exited(pid, node.properties, 10.0)
            for node in group:
                self._gone(node.id)

    def stop_started(self, timeout_seconds: float = STOP_SECONDS) -> None:
        """Stops the nodes that this object has started, and no others."""
        self.stop([node for node in self.nodes if node.id in self._children and self._runs(node)], timeout_seconds)

    def kill(self, node_id: int) -> None:
        """As a power cut would, for one process: no good-byes. `up` brings it back."""
        node = self._known(node_id)
        if node.pid is not None and self._runs(node):
            processes.kill(node.pid)
            processes.wait_until_exited(node.pid, node.properties, 10.0)
        self._gone(node_id)

    def pause(self, node_id: int) -> None:
        """The process stands still until `resume`: silent, but its connections stay open."""
        processes.pause(self._pid(node_id))

    def resume(self, node_id: int) -> None:
        processes.resume(self._pid(node_id))

    @property
    def has_started(self) -> bool:
        """Whether a node that this object has started is not known to have ended."""
        return bool(self._children)

    def exited_nodes(self) -> list[NodeExited]:
        """The nodes started by this object that have ended since it was last asked."""
        ended = [(node_id, child) for node_id, child in self._children.items() if child.poll() is not None]
        found = []
        for node_id, child in ended:
            del self._children[node_id]
            node = self._known(node_id)
            reason = processes.tail(node.log, since=self._log_sizes[node_id])
            asked = node.pid != child.pid or child.returncode == 0
            found.append(NodeExited(node_id, child.returncode, reason, asked=asked))
        return found

    def _make_directory(self) -> None:
        try:
            os.makedirs(self.directory, exist_ok=True)
        except OSError as error:
            raise LaunchError(f"{self.directory} cannot be made: {error.strerror}") from error

    def _replace(self, node_id: int, state: ClusterState, settings: Mapping[str, str]) -> None:
        node = self._known(node_id)
        if self._runs(node):
            raise LaunchError(f"node {node_id} runs: stop it before it is replaced")
        replace(node, state, settings)

    def _give_votes(self, nodes: list[NodeState], state: ClusterState, settings: Mapping[str, str]) -> None:
        voters = {}
        for node in nodes:
            identity = meta_properties_on_disk(metadata_directory(node_properties(node, state.nodes, settings)))
            if identity is not None and identity.directory_id is not None and node.controller_port is not None:
                voters[node.id] = NewVoter(identity.directory_id, Endpoint(node.host, node.controller_port))
        if voters:
            add_voters(state.bootstrap or state.nodes[0].controller_endpoint, voters, self._say)

    def _start_all(self, nodes: list[NodeState], state: ClusterState, settings: Mapping[str, str]) -> None:
        for node in nodes:
            check(node, state, settings, self.directory)
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
        """Raises NodesExited when not all of them live; the others are left running."""
        began = time.monotonic()
        deadline = began + READY_SECONDS
        died: list[NodeExited] = []
        told = False
        # A process that ends is none of ours for a moment before it is known to have ended.
        while waiting := _unready([node for node in nodes if node.id in self._children or self._runs(node)]):
            exited_nodes = self.exited_nodes()
            if exited_nodes:
                died += exited_nodes
                deadline = min(deadline, time.monotonic() + READY_AFTER_DEATH_SECONDS)
                continue
            if time.monotonic() > deadline:
                if not died:
                    raise NotReady(waiting[0].id, time.monotonic() - began, waiting[0].log)
                break
            if time.monotonic() - began > 2.0 and not told:
                told = True
                self._say(f"waiting for {', '.join(f'node {node.id}' for node in waiting)} to be ready …")
            time.sleep(processes.POLL_SECONDS)
        died += self.exited_nodes()
        for each in died:
            self._gone(each.node_id)
        if died:
            raise NodesExited(died, [node.id for node in self.running()])

    def _runs(self, node: NodeState) -> bool:
        child = self._children.get(node.id)
        if child is not None and child.pid == node.pid and child.poll() is not None:
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

    def _pid(self, node_id: int) -> int:
        node = self._known(node_id)
        if node.pid is None or not self._runs(node):
            raise LaunchError(f"node {node_id} does not run: `strandline up --data {self.directory}` starts it")
        return node.pid

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
                        raise DirectoryLocked(self.directory) from None
                    time.sleep(processes.POLL_SECONDS)
            yield
        finally:
            os.close(descriptor)


def _unready(nodes: list[NodeState]) -> list[NodeState]:
    """Those that do not answer yet, or do not see all the brokers among them alive."""
    brokers = {node.id for node in nodes if node.is_broker}
    waiting = []
    for node in nodes:
        if node.port is not None:
            ready = brokers <= set(live_brokers(node.host, node.port))
        else:
            assert node.controller_port is not None, "a node is a broker or a controller"
            ready = answers(node.host, node.controller_port)
        if not ready:
            waiting.append(node)
    return waiting
