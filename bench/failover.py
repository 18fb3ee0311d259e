"""Longest pause between acknowledged writes when the leader of a partition is killed, as default producers see it.

`python -m bench.failover librdkafka|java KILLS [NAME=VALUE …]`: three combined nodes, one partition with three
replicas; every second kill is of the node that is the active controller as well. Prints one line per kill.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path

from confluent_kafka import ElectionType, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from bench.kafka_jars import classpath
from bench.node_requests import NodeRequests
from strandline.launch.cluster import Cluster
from strandline.model.errors import KafkaError
from strandline.protocol.messages.reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartition,
    ReassignableTopic,
)

TOPIC = "gaps"
Gap = tuple[float, float]
"""The wall time of its end, and its length, both in seconds."""


class LibrdkafkaProducer:
    def __init__(self, bootstrap: str) -> None:
        self.gaps: list[Gap] = []
        self._producer = Producer({"bootstrap.servers": bootstrap})
        self._last = 0.0
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        while not self._stop.is_set():
            self._producer.produce(TOPIC, b"x" * 100, on_delivery=self._on_delivery)
            self._producer.poll(0.002)
        self._producer.flush(30)

    def _on_delivery(self, error: object, message: object) -> None:
        if error is not None:
            print("error", error)
            return
        now = time.time()
        if self._last and now - self._last > 0.1:
            self.gaps.append((now, now - self._last))
        self._last = now

    def is_ready(self) -> bool:
        return self._last > 0

    def stop(self) -> None:
        self._stop.set()
        self._thread.join()


class JavaProducer:
    def __init__(self, bootstrap: str) -> None:
        self.gaps: list[Gap] = []
        self._ready = False
        source = Path(__file__).parent / "java" / "AckGaps.java"
        self._process = subprocess.Popen(
            ["java", "-cp", classpath(), str(source), bootstrap, TOPIC],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
        )  # fmt: skip
        self._thread = threading.Thread(target=self._read)
        self._thread.start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            first, _, second = line.partition(" ")
            if first.strip() == "first":
                self._ready = True
            elif first.isdigit():
                self.gaps.append((int(first) / 1000, int(second) / 1000))
            else:
                print(line.strip())

    def is_ready(self) -> bool:
        return self._ready

    def stop(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write("\n")
        self._process.stdin.close()
        self._process.wait(60)
        self._thread.join()


def main(client: str, kills: int, settings: dict[str, str]) -> None:
    with tempfile.TemporaryDirectory() as directory, Cluster.started(directory, nodes=3, settings=settings) as cluster:
        bootstrap = ",".join(node.endpoint for node in cluster.nodes)
        admin = AdminClient({"bootstrap.servers": bootstrap})
        admin.create_topics([NewTopic(TOPIC, 1, 3)])[TOPIC].result(60)
        producer = LibrdkafkaProducer(bootstrap) if client == "librdkafka" else JavaProducer(bootstrap)
        requests = NodeRequests()
        longest = []
        try:
            _until(producer.is_ready)
            for number in range(kills):
                _until(lambda: _in_sync(admin))
                controller = _controller(requests, cluster)
                leader = controller if number % 2 else next(n.id for n in cluster.nodes if n.id != controller)
                _move_leader(requests, cluster, admin, leader)
                time.sleep(2)
                killed = time.time()
                cluster.kill(leader)
                time.sleep(4)
                gap = max((length for end, length in producer.gaps if killed < end < killed + 4), default=0.0)
                longest.append(gap)
                role = "controller" if number % 2 else "broker"
                print(f"{client} kill {number + 1} ({role} {leader}): {gap:.2f} s", flush=True)
                cluster.start(leader)
        finally:
            producer.stop()
        print(f"{client}: longest {max(longest):.2f} s of {sorted(round(each, 2) for each in longest)}")


def _until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def _in_sync(admin: AdminClient) -> bool:
    try:
        return len(admin.list_topics(TOPIC, timeout=10).topics[TOPIC].partitions[0].isrs) == 3
    except KafkaException:
        return False


def _controller(requests: NodeRequests, cluster: Cluster) -> int:
    for node in cluster.running():
        try:
            return requests.quorum_leader(node.controller_endpoint)
        except KafkaError:
            continue
    raise AssertionError("no controller")


def _move_leader(requests: NodeRequests, cluster: Cluster, admin: AdminClient, leader: int) -> None:
    others = [node.id for node in cluster.nodes if node.id != leader]
    partition = ReassignablePartition(partition_index=0, replicas=[leader, *others])
    request = AlterPartitionReassignmentsRequest(topics=[ReassignableTopic(name=TOPIC, partitions=[partition])])
    requests.send(cluster.nodes[0].endpoint, request, AlterPartitionReassignmentsResponse, timeout_s=30)

    def led() -> bool:
        if admin.list_topics(TOPIC, timeout=10).topics[TOPIC].partitions[0].leader == leader:
            return True
        admin.elect_leaders(ElectionType.PREFERRED, [TopicPartition(TOPIC, 0)]).result(30)
        return False

    _until(led)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), dict(each.split("=", 1) for each in sys.argv[3:]))
