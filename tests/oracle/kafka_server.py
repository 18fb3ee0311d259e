"""Apache Kafka's server as a process on a properties file: started, waited for, stopped.

Tests compare our node with it, or start it on a directory of our node.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

from strandline.launch.cluster_state import ClusterState, NodeState
from strandline.launch.formatting import format_node
from strandline.launch.ports import random_free_port
from strandline.launch.readiness import is_live_broker
from strandline.launch.server_properties import node_properties, write_properties
from strandline.node.config import Config

CLUSTER_ID = "4L6g3nShT-eMCtK--X86sw"
START_SECONDS = 120.0
STOP_SECONDS = 120.0
# For short-lived processes on few cores: without the second JIT compiler.
QUICK = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xshare:auto")


def internal_topic_configs(brokers: int) -> dict[str, str]:
    """Kafka creates its internal topics with three replicas unless it is configured otherwise."""
    replicas = max(1, min(3, brokers))
    return {
        "offsets.topic.replication.factor": str(replicas),
        "transaction.state.log.replication.factor": str(replicas),
        "transaction.state.log.min.isr": str(max(1, replicas - 1)),
    }


def write_node_properties(directory: Path, settings: Mapping[str, str], *, formatted: bool = True) -> Path:
    """The properties file of a new combined node on free ports, as `strandline up` writes it, fit for Kafka."""
    settings = {**internal_topic_configs(1), **settings}
    port = random_free_port("127.0.0.1", set())
    controller_port = random_free_port("127.0.0.1", {port})
    data = str(directory / "node-1")
    node = NodeState(1, None, "127.0.0.1", port, controller_port, data, f"{data}.log")
    state = ClusterState(CLUSTER_ID)
    state.add(node)
    if formatted:
        format_node(node, state, settings, initial_controllers=[node])
    path = directory / "node-1.properties"
    write_properties(str(path), node_properties(node, state.nodes, settings))
    return path


class KafkaServer:
    def __init__(self, classpath: str, properties: Path) -> None:
        self._config = Config.load(str(properties))
        self.log = properties.with_suffix(".kafka.log")
        with self.log.open("ab") as output:
            self._process = subprocess.Popen(
                ["java", "-Xmx512m", *QUICK, "-cp", classpath, "kafka.Kafka", str(properties)],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                cwd=properties.parent,
            )

    @property
    def bootstrap(self) -> str:
        listener = next(each for each in self._config.listeners if not each.controller)
        return f"127.0.0.1:{listener.port}"

    def wait_until_ready(self) -> None:
        deadline = time.monotonic() + START_SECONDS
        host, port = self.bootstrap.split(":")
        while not is_live_broker(host, int(port), self._config.node.node_id):
            assert self._process.poll() is None, f"Kafka did not start: {self.tail()}"
            assert time.monotonic() < deadline, f"Kafka was not ready in {START_SECONDS} s: {self.tail()}"
            time.sleep(0.05)

    def stop(self) -> None:
        self._process.terminate()
        self._process.wait(STOP_SECONDS)

    def kill(self) -> None:
        self._process.kill()
        self._process.wait(STOP_SECONDS)

    def tail(self) -> str:
        return self.log.read_text(errors="replace")[-4000:]


@contextlib.contextmanager
def kafka_server(classpath: str, properties: str | os.PathLike[str]) -> Iterator[KafkaServer]:
    """Kafka on a formatted directory during a `with`; stopped cleanly unless it was killed inside."""
    server = KafkaServer(classpath, Path(properties))
    try:
        server.wait_until_ready()
        yield server
    finally:
        server.stop()
