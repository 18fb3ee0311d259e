"""Three combined nodes of one kind as processes: the same properties files for ours and for Apache Kafka.

Formatted by us either way (Kafka starts on such directories: tests/oracle/cluster), so both finalize the same
features. Kafka gets a heap of 1 GB for each node and the G1 collector, as in `bench/processes.py`.
"""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from bench.processes import _PAGE, _TICKS, REPOSITORY

sys.path.insert(0, str(REPOSITORY / "tests"))

from cluster.handlers.talk import Closed
from cluster.quorum.asking import Refused, ask, create_topic, live_brokers, quorum
from oracle.cluster.members import Member, Members
from strandline.launch.cluster_state import COMBINED
from strandline.protocol.messages.elections import ElectLeadersRequest
from strandline.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from strandline.protocol.messages.topics import CreatableTopic, CreateTopicsRequest

IDS = (1, 2, 3)
PER_TOPIC = 1000
# What three nodes that have nothing to do may use.
QUIET_CORES = 0.5
# As a broker of production would have it: Kafka's defaults for everything that is measured.
SETTINGS = {"auto.leader.rebalance.enable": "false"}


@dataclass
class Trio:
    name: str
    directory: Path
    classpath: str
    is_kafka: bool
    members: Members = field(init=False)
    processes: dict[int, subprocess.Popen[bytes]] = field(default_factory=dict)
    partitions: int = 0

    def prepare(self) -> None:
        self.directory.mkdir(parents=True)
        self.members = Members(self.directory, self.classpath, [COMBINED] * 3, 3, SETTINGS)
        self.members.format()

    def start(self, *ids: int) -> float:
        """Seconds until these (or all) see every broker alive."""
        began = time.perf_counter()
        for node_id in ids or IDS:
            self._spawn(self.members.each[node_id])
        for node_id in ids or IDS:
            until(lambda node_id=node_id: live_brokers(self.address(node_id)) == set(self.processes))  # type: ignore[misc]
        return time.perf_counter() - began

    def _spawn(self, member: Member) -> None:
        command = [str(REPOSITORY / "strandline"), "server", str(member.properties)]
        if self.is_kafka:
            heap = ["-Xms1g", "-Xmx1g", "-XX:+UseG1GC"]
            command = ["java", *heap, "-cp", self.classpath, "kafka.Kafka", str(member.properties)]
        with member.log.open("ab") as log:
            self.processes[member.id] = subprocess.Popen(command, stdout=log, stderr=log, cwd=self.directory)

    def stop(self, *ids: int, how: signal.Signals = signal.SIGTERM) -> float:
        began = time.perf_counter()
        for node_id in ids or tuple(self.processes):
            self.processes[node_id].send_signal(how)
        for node_id in ids or tuple(self.processes):
            self.processes.pop(node_id).wait(300)
        return time.perf_counter() - began

    def address(self, node_id: int) -> str:
        return self.members.each[node_id].address

    @property
    def addresses(self) -> list[str]:
        return [self.address(node_id) for node_id in self.processes]

    @property
    def bootstrap(self) -> str:
        return ",".join(self.addresses)

    def leader(self) -> int:
        """The active controller."""
        found: list[int] = []

        def is_known() -> bool:
            # A broker of Kafka may go on asking a controller that leads no longer: whoever leads says so itself.
            for node_id in self.processes:
                try:
                    found.append(quorum(self.members.each[node_id].controller, timeout_s=5.0).leader_id)
                    return True
                except (OSError, Closed, Refused):
                    continue
            return False

        until(is_known)
        return found[-1]

    def resident_mb(self) -> list[float]:
        return [
            int(Path(f"/proc/{process.pid}/statm").read_text().split()[1]) * _PAGE / 1e6
            for process in self.processes.values()
        ]

    def cpu_seconds(self) -> float:
        total = 0
        for process in self.processes.values():
            fields = Path(f"/proc/{process.pid}/stat").read_text().rsplit(")", 1)[1].split()
            total += int(fields[11]) + int(fields[12])
        return total / _TICKS

    def grow_to(self, partitions: int) -> float:
        """Topics of a thousand partitions on three brokers each; seconds until the last of them is led everywhere."""
        began = time.perf_counter()
        first = self.partitions // PER_TOPIC
        for number in range(first, partitions // PER_TOPIC):
            topic = CreatableTopic(name=f"many-{number}", num_partitions=PER_TOPIC, replication_factor=3)
            answer = ask(self.addresses[0], CreateTopicsRequest(topics=[topic], timeout_ms=60_000), timeout_s=90)
            if answer.topics[0].error_code:
                raise RuntimeError(f"{self.name}: {answer.topics[0]}")
        self.partitions = partitions
        for address in self.addresses:
            for name in self.topics(first):
                until(lambda address=address, name=name: self._leaders(address, name) <= set(IDS))  # type: ignore[misc]
        return time.perf_counter() - began

    def topics(self, first: int = 0) -> Iterator[str]:
        return (f"many-{number}" for number in range(first, self.partitions // PER_TOPIC))

    def spread_leaders(self) -> None:
        """Every partition is led by its preferred replica: each node leads a third."""
        self.until_in_sync()
        ask(
            self.addresses[0],
            ElectLeadersRequest(election_type=0, topic_partitions=None, timeout_ms=60_000),
            timeout_s=90,
        )
        for address in self.addresses:
            for name in self.topics():
                until(lambda address=address, name=name: self._leaders(address, name) == set(IDS))  # type: ignore[misc]

    def kill(self, victim: int) -> float:
        """The moment of it."""
        began = time.perf_counter()
        self.stop(victim, how=signal.SIGKILL)
        return began

    def until_led_without(self, victim: int, began: float) -> float:
        """Seconds until a survivor names no partition that is led by the victim, or by nobody."""
        asked = self.address(next(node_id for node_id in self.processes if node_id != victim))
        survivors = set(IDS) - {victim}
        for name in self.topics():
            until(lambda name=name: self._leaders(asked, name) <= survivors, pause_s=0.005)  # type: ignore[misc]
        return time.perf_counter() - began

    def until_in_sync(self) -> float:
        """Seconds until every partition has all of its replicas again."""
        began = time.perf_counter()
        for name in self.topics():
            until(lambda name=name: self._is_in_sync(name), pause_s=0.05)  # type: ignore[misc]
        return time.perf_counter() - began

    def until_quiet(self) -> None:
        """New logs are made in the background, by both: until the nodes have done what they had to."""
        deadline = time.perf_counter() + 300
        while time.perf_counter() < deadline:
            before = self.cpu_seconds()
            time.sleep(2)
            if self.cpu_seconds() - before < 2 * QUIET_CORES:
                return

    def until_written(self, name: str, began: float) -> float:
        """Seconds until one of the brokers that run has made a topic."""
        while True:
            for address in self.addresses:
                try:
                    create_topic(address, name, 1, 1, timeout_ms=500)
                    return time.perf_counter() - began
                except Refused as refused:
                    if refused.code.name == "TOPIC_ALREADY_EXISTS":
                        return time.perf_counter() - began
                except (OSError, Closed):
                    pass
            time.sleep(0.005)

    def _leaders(self, address: str, topic: str) -> set[int]:
        try:
            partitions = _described(address, topic)
        except (OSError, Closed):
            return {-1}
        # Not all of them yet: as good as led by nobody.
        return {each.leader_id for each in partitions} if len(partitions) == PER_TOPIC else {-1}

    def _is_in_sync(self, topic: str) -> bool:
        partitions = _described(self.addresses[0], topic)
        return len(partitions) == PER_TOPIC and all(len(each.isr_nodes) == 3 for each in partitions)

    def close(self) -> None:
        if self.processes:
            self.stop(how=signal.SIGKILL)


def _described(address: str, topic: str) -> list[object]:
    request = MetadataRequest(topics=[MetadataRequestTopic(name=topic)], allow_auto_topic_creation=False)
    answer = ask(address, request, timeout_s=10.0)
    found: list[object] = answer.topics[0].partitions
    return found


def until(done: Callable[[], bool], *, pause_s: float = 0.01, within_s: float = 600.0) -> None:
    deadline = time.perf_counter() + within_s
    while not done():
        if time.perf_counter() > deadline:
            raise TimeoutError(f"not within {within_s:g} s")
        time.sleep(pause_s)
