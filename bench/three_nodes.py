"""Three combined nodes of Strandline or of Apache Kafka as processes, with the same properties files.

Strandline formats the directories of both, so that both finalize the same features. Kafka gets a heap of 1 GB per node
and the G1 collector, as in `bench/single_node.py`.
"""

from __future__ import annotations

import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from bench.node_requests import NodeRequests, sees_brokers
from bench.single_node import CLUSTER_ID, KAFKA_OPTIONS, REPOSITORY, cpu_seconds, resident_mb
from strandline.launch.cluster_state import ClusterState, NodeState
from strandline.launch.formatting import format_node
from strandline.launch.ports import random_free_port
from strandline.launch.server_properties import node_properties, write_properties
from strandline.model.errors import ErrorCode, KafkaError
from strandline.protocol.messages.elections import ElectLeadersRequest, ElectLeadersResponse

IDS = (1, 2, 3)
PER_TOPIC = 1000
# The CPU that three idle nodes may use.
IDLE_CORES = 0.5
# Kafka's defaults for everything that is measured.
CONFIGS = {"auto.leader.rebalance.enable": "false"}


@dataclass
class ThreeNodes:
    name: str
    directory: Path
    classpath: str
    is_kafka: bool
    nodes: dict[int, NodeState] = field(default_factory=dict)
    processes: dict[int, subprocess.Popen[bytes]] = field(default_factory=dict)
    requests: NodeRequests = field(default_factory=NodeRequests)
    partitions: int = 0

    def prepare(self) -> None:
        self.directory.mkdir(parents=True)
        state, taken = ClusterState(CLUSTER_ID), set[int]()
        for node_id in IDS:
            port, controller_port = (_free_port(taken) for _ in range(2))
            data = str(self.directory / f"node-{node_id}")
            state.add(NodeState(node_id, None, "127.0.0.1", port, controller_port, data, f"{data}.log"))
        for node in state.nodes:
            format_node(node, state, CONFIGS, state.nodes)
            write_properties(_properties_file(node), node_properties(node, state.nodes, CONFIGS))
        self.nodes = {node.id: node for node in state.nodes}

    def start(self, *ids: int) -> float:
        """Starts these nodes, or all: seconds until each of them lists every broker as live."""
        began = time.perf_counter()
        for node_id in ids or IDS:
            self._spawn(self.nodes[node_id])
        for node_id in ids or IDS:
            until(lambda node_id=node_id: self._is_ready(node_id))  # type: ignore[misc]
        return time.perf_counter() - began

    def _is_ready(self, node_id: int) -> bool:
        if self.processes[node_id].poll() is not None:
            raise RuntimeError(f"{self.name}: node {node_id} exited during start-up; see {self.nodes[node_id].log}")
        return sees_brokers(self.address(node_id), set(self.processes))

    def _spawn(self, node: NodeState) -> None:
        command = [str(REPOSITORY / "strandline"), "server", _properties_file(node)]
        if self.is_kafka:
            command = ["java", *KAFKA_OPTIONS, "-cp", self.classpath, "kafka.Kafka", _properties_file(node)]
        with open(node.log, "ab") as log:
            self.processes[node.id] = subprocess.Popen(command, stdout=log, stderr=log, cwd=self.directory)

    def stop(self, *ids: int, how: signal.Signals = signal.SIGTERM) -> float:
        began = time.perf_counter()
        for node_id in ids or tuple(self.processes):
            self.processes[node_id].send_signal(how)
        for node_id in ids or tuple(self.processes):
            self.processes.pop(node_id).wait(300)
        return time.perf_counter() - began

    def address(self, node_id: int) -> str:
        return self.nodes[node_id].endpoint

    @property
    def addresses(self) -> list[str]:
        return [self.address(node_id) for node_id in self.processes]

    @property
    def bootstrap(self) -> str:
        return ",".join(self.addresses)

    def active_controller(self) -> int:
        found: list[int] = []

        def is_found() -> bool:
            # Sent to the controllers: a broker of Kafka may keep forwarding to a controller that has lost leadership.
            for node_id in self.processes:
                try:
                    found.append(self.requests.quorum_leader(self.nodes[node_id].controller_endpoint))
                    return True
                except KafkaError:
                    continue
            return False

        until(is_found)
        return found[-1]

    def resident_mb(self) -> list[float]:
        return [resident_mb(process.pid) for process in self.processes.values()]

    def cpu_seconds(self) -> float:
        return sum(cpu_seconds(process.pid) for process in self.processes.values())

    def grow_to(self, partitions: int) -> float:
        """Creates topics of a thousand partitions with three replicas: seconds until every node knows all leaders."""
        began = time.perf_counter()
        first = self.partitions // PER_TOPIC
        for number in range(first, partitions // PER_TOPIC):
            self.requests.create_topic(
                self.addresses[0], f"many-{number}", PER_TOPIC, 3, timeout_ms=60_000, timeout_s=90
            )
        self.partitions = partitions
        for address in self.addresses:
            for name in self.topics(first):
                until(lambda address=address, name=name: self._leaders(address, name) <= set(IDS))  # type: ignore[misc]
        return time.perf_counter() - began

    def topics(self, first: int = 0) -> Iterator[str]:
        return (f"many-{number}" for number in range(first, self.partitions // PER_TOPIC))

    def spread_leaders(self) -> None:
        """Elects the preferred leader of every partition: each node leads a third."""
        self.until_in_sync()
        request = ElectLeadersRequest(election_type=0, topic_partitions=None, timeout_ms=60_000)
        self.requests.send(self.addresses[0], request, ElectLeadersResponse, timeout_s=90)
        for address in self.addresses:
            for name in self.topics():
                until(lambda address=address, name=name: self._leaders(address, name) == set(IDS))  # type: ignore[misc]

    def kill(self, victim: int) -> float:
        """Kills the node: the time of the kill."""
        began = time.perf_counter()
        self.stop(victim, how=signal.SIGKILL)
        return began

    def until_led_without(self, victim: int, began: float) -> float:
        """Seconds until a running node lists no partition without a leader, or with the killed node as leader."""
        survivor = self.address(next(node_id for node_id in self.processes if node_id != victim))
        survivors = set(IDS) - {victim}
        for name in self.topics():
            until(lambda name=name: self._leaders(survivor, name) <= survivors, poll_s=0.005)  # type: ignore[misc]
        return time.perf_counter() - began

    def until_in_sync(self) -> float:
        """Seconds until all replicas of every partition are in sync."""
        began = time.perf_counter()
        for name in self.topics():
            until(lambda name=name: self._is_in_sync(name), poll_s=0.05)  # type: ignore[misc]
        return time.perf_counter() - began

    def until_idle(self) -> None:
        """Waits until background work (creating logs, by both) has ended."""
        deadline = time.perf_counter() + 300
        while time.perf_counter() < deadline:
            before = self.cpu_seconds()
            time.sleep(2)
            if self.cpu_seconds() - before < 2 * IDLE_CORES:
                return

    def until_written(self, name: str, began: float) -> float:
        """Seconds until one of the running brokers has created a topic."""
        while True:
            for address in self.addresses:
                try:
                    self.requests.create_topic(address, name, 1, 1, timeout_ms=500, timeout_s=1.5)
                    return time.perf_counter() - began
                except KafkaError as error:
                    if error.code == ErrorCode.TOPIC_ALREADY_EXISTS:
                        return time.perf_counter() - began
            time.sleep(0.005)

    def _leaders(self, address: str, topic: str) -> set[int]:
        try:
            partitions = self.requests.partitions(address, topic)
        except KafkaError:
            return {-1}
        return {each.leader_id for each in partitions} if len(partitions) == PER_TOPIC else {-1}

    def _is_in_sync(self, topic: str) -> bool:
        partitions = self.requests.partitions(self.addresses[0], topic)
        return len(partitions) == PER_TOPIC and all(len(each.isr_nodes) == 3 for each in partitions)

    def close(self) -> None:
        if self.processes:
            self.stop(how=signal.SIGKILL)
        self.requests.close()


def _properties_file(node: NodeState) -> str:
    return f"{node.data}.properties"


def _free_port(taken: set[int]) -> int:
    port = random_free_port("127.0.0.1", taken)
    taken.add(port)
    return port


def until(done: Callable[[], bool], *, poll_s: float = 0.01, timeout_s: float = 600.0) -> None:
    deadline = time.perf_counter() + timeout_s
    while not done():
        if time.perf_counter() > deadline:
            raise TimeoutError(f"not reached within {timeout_s:g} s")
        time.sleep(poll_s)
