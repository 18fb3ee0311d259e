"""A node as a process: started, stopped, killed, brought back, and refused with a reason."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from strandline.launch import ports
from strandline.launch.cluster import Cluster

SOURCE = Path(__file__).resolve().parents[3] / "src"


def free_port() -> int:
    return ports.random_free_port("127.0.0.1")


def strandline(*arguments: str, **extra: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "strandline", *arguments],
        capture_output=True,
        text=True,
        timeout=300,
        env={**os.environ, "PYTHONPATH": str(SOURCE), **extra},
    )


def produce(bootstrap: str, topic: str, *values: str) -> None:
    producer = Producer({"bootstrap.servers": bootstrap})
    for value in values:
        producer.produce(topic, value, partition=0)
    assert producer.flush(60) == 0


def consume(bootstrap: str, topic: str, count: int) -> list[str]:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "none", "enable.auto.commit": False})
    consumer.assign([TopicPartition(topic, 0, OFFSET_BEGINNING)])
    found: list[str] = []
    while len(found) < count:
        messages = consumer.consume(count - len(found), timeout=60)
        assert messages, f"only {found} came"
        found += [message.value().decode() for message in messages]
    consumer.close()
    return found


def properties(directory: Path, **extra: str) -> Path:
    port, controller = free_port(), free_port()
    settings = {
        "process.roles": "broker,controller",
        "node.id": "1",
        "listeners": f"PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller}",
        "controller.listener.names": "CONTROLLER",
        "controller.quorum.bootstrap.servers": f"127.0.0.1:{controller}",
        "log.dirs": str(directory / "data"),
        **extra,
    }
    file = directory / "server.properties"
    file.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
    return file


def test_records_and_topics_come_back_after_a_stop_and_after_kill_9(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path)
    try:
        cluster.up(port=None)
        bootstrap, cluster_id = cluster.bootstrap, cluster.state.cluster_id
        admin = AdminClient({"bootstrap.servers": bootstrap})
        admin.create_topics([NewTopic("t", 1, 1, config={"retention.ms": "-1"})])["t"].result(60)
        produce(bootstrap, "t", "one")
        cluster.down()
        assert (tmp_path / "node-1" / ".kafka_cleanshutdown").exists()
        cluster.up(port=None)
        produce(bootstrap, "t", "two")
        cluster.kill(1)
        cluster.up(port=None)
        produce(bootstrap, "t", "three")
        assert consume(bootstrap, "t", 3) == ["one", "two", "three"]
        assert (cluster.bootstrap, cluster.state.cluster_id) == (bootstrap, cluster_id)
    finally:
        cluster.down()


def test_a_second_process_on_the_same_directory_is_refused(tmp_path: Path) -> None:
    with Cluster.started(tmp_path) as cluster:
        refused = strandline("server", str(tmp_path / "node-1" / "server.properties"))
        assert refused.returncode == 1
        assert "in use by another process" in refused.stderr and "Traceback" not in refused.stderr
        produce(cluster.bootstrap, "still-alive", "yes")


def test_an_unformatted_directory_is_refused_with_the_command_that_formats_it(tmp_path: Path) -> None:
    file = properties(tmp_path)
    refused = strandline("server", str(file))
    assert refused.returncode == 1 and "Traceback" not in refused.stderr
    assert "strandline storage format --cluster-id" in refused.stderr and str(file) in refused.stderr


def test_a_directory_of_another_node_is_refused(tmp_path: Path) -> None:
    file = properties(tmp_path)
    done = strandline("storage", "format", "--standalone", "--cluster-id", "4L6g3nShT-eMCtK--X86sw", "-c", str(file))
    assert done.returncode == 0, done.stderr
    file.write_text(file.read_text().replace("node.id=1", "node.id=2"))
    refused = strandline("server", str(file))
    assert refused.returncode == 1 and "Traceback" not in refused.stderr
    assert "node" in refused.stderr and "2" in refused.stderr


@pytest.mark.parametrize(
    ("key", "value", "says"),
    [
        ("log.segment.bytes", "many", "log.segment.bytes=many"),
        ("num.io.threads", "0", "num.io.threads=0"),
        ("listeners", "PLAINTEXT://127.0.0.1:notaport", "listeners"),
    ],
)
def test_a_bad_value_is_refused_by_name(tmp_path: Path, key: str, value: str, says: str) -> None:
    refused = strandline("server", str(properties(tmp_path, **{key: value})))
    assert refused.returncode == 1 and "Traceback" not in refused.stderr
    assert says in refused.stderr


def test_a_port_that_is_taken_is_named(tmp_path: Path) -> None:
    with Cluster.started(tmp_path / "first") as cluster:
        other = tmp_path / "other"
        other.mkdir()
        taken = f"PLAINTEXT://{cluster.bootstrap},CONTROLLER://127.0.0.1:{free_port()}"
        file = properties(other, listeners=taken)
        done = strandline("storage", "format", "--standalone", "--cluster-id", "x", "-c", str(file))
        assert done.returncode == 0, done.stderr
        refused = strandline("server", str(file))
        assert refused.returncode == 1 and "Traceback" not in refused.stderr
        assert cluster.bootstrap.rpartition(":")[2] in refused.stderr


def _up_waits_for_one_that_stands_still(directory: Path, pid: int) -> None:
    os.kill(pid, signal.SIGSTOP)
    command = [sys.executable, "-m", "strandline", "up", "--detach", "--data", str(directory)]
    again = subprocess.Popen(command, stdout=subprocess.PIPE, env={**os.environ, "PYTHONPATH": str(SOURCE)})
    with pytest.raises(subprocess.TimeoutExpired):
        again.wait(2)
    os.kill(pid, signal.SIGCONT)
    said, _ = again.communicate(timeout=120)
    assert again.returncode == 0 and said.startswith(b"Strandline is already running")


def test_up_and_down_are_commands_that_scripts_can_use(tmp_path: Path) -> None:
    port = free_port()
    up = strandline("up", "--detach", "--data", str(tmp_path), "--port", str(port), "--set", "num.partitions=4")
    try:
        assert up.returncode == 0, up.stderr
        state = json.loads((tmp_path / "cluster.json").read_text())
        assert set(state) == {"cluster_id", "bootstrap", "nodes"}
        assert set(state["nodes"][0]) == {"id", "pid", "host", "port", "controller_port", "data", "log", "roles"}
        assert state["nodes"][0]["port"] == port and state["bootstrap"] == f"127.0.0.1:{port}"
        made = strandline("topic", "create", "made", STRANDLINE_BOOTSTRAP=state["bootstrap"])
        assert made.returncode == 0, made.stderr
        described = strandline("topic", "describe", "made", "--json", "-b", state["bootstrap"])
        assert len(json.loads(described.stdout)["partitions"]) == 4
        _up_waits_for_one_that_stands_still(tmp_path, state["nodes"][0]["pid"])
    finally:
        down = strandline("down", "--data", str(tmp_path), "--json")
    assert down.returncode == 0, down.stderr
    assert json.loads(down.stdout) == [{"id": 1, "stopped": True}]
    assert strandline("topic", "list", "-b", f"127.0.0.1:{port}").returncode == 1
