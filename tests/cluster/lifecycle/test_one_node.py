"""A node as a process: started, stopped, killed, restarted; and the errors with which it does not start."""

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

from cluster.lifecycle.commands import SOURCE, strandline
from strandline.launch import ports
from strandline.launch.cluster import Cluster


def free_port() -> int:
    return ports.random_free_port("127.0.0.1")


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
        assert messages, f"received only {found}"
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


def test_records_and_topics_survive_a_clean_stop_and_kill_9(tmp_path: Path) -> None:
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


def test_a_second_process_on_the_same_directory_does_not_start(tmp_path: Path) -> None:
    with Cluster.started(tmp_path) as cluster:
        failed = strandline("server", str(tmp_path / "node-1" / "server.properties"))
        assert failed.returncode == 1
        assert "in use by another process" in failed.stderr and "Traceback" not in failed.stderr
        produce(cluster.bootstrap, "still-alive", "yes")


def test_an_unformatted_directory_is_reported_with_the_command_that_formats_it(tmp_path: Path) -> None:
    file = properties(tmp_path)
    failed = strandline("server", str(file))
    assert failed.returncode == 1 and "Traceback" not in failed.stderr
    assert "strandline storage format --cluster-id" in failed.stderr and str(file) in failed.stderr


def test_a_node_does_not_start_on_the_directory_of_another_node(tmp_path: Path) -> None:
    file = properties(tmp_path)
    done = strandline("storage", "format", "--standalone", "--cluster-id", "4L6g3nShT-eMCtK--X86sw", "-c", str(file))
    assert done.returncode == 0, done.stderr
    file.write_text(file.read_text().replace("node.id=1", "node.id=2"))
    failed = strandline("server", str(file))
    assert failed.returncode == 1 and "Traceback" not in failed.stderr
    assert "node" in failed.stderr and "2" in failed.stderr


@pytest.mark.parametrize(
    ("key", "value", "reported"),
    [
        ("log.segment.bytes", "many", "log.segment.bytes=many"),
        ("num.io.threads", "0", "num.io.threads=0"),
        ("listeners", "PLAINTEXT://127.0.0.1:notaport", "listeners"),
    ],
)
def test_an_invalid_config_value_is_reported_with_its_key(tmp_path: Path, key: str, value: str, reported: str) -> None:
    failed = strandline("server", str(properties(tmp_path, **{key: value})))
    assert failed.returncode == 1 and "Traceback" not in failed.stderr
    assert reported in failed.stderr


def test_a_port_in_use_is_reported(tmp_path: Path) -> None:
    with Cluster.started(tmp_path / "first") as cluster:
        other = tmp_path / "other"
        other.mkdir()
        taken = f"PLAINTEXT://{cluster.bootstrap},CONTROLLER://127.0.0.1:{free_port()}"
        file = properties(other, listeners=taken)
        done = strandline("storage", "format", "--standalone", "--cluster-id", "x", "-c", str(file))
        assert done.returncode == 0, done.stderr
        failed = strandline("server", str(file))
        assert failed.returncode == 1 and "Traceback" not in failed.stderr
        assert cluster.bootstrap.rpartition(":")[2] in failed.stderr


def _up_waits_for_a_paused_node(directory: Path, pid: int) -> None:
    os.kill(pid, signal.SIGSTOP)
    command = [sys.executable, "-m", "strandline", "up", "--detach", "--data", str(directory)]
    again = subprocess.Popen(command, stdout=subprocess.PIPE, env={**os.environ, "PYTHONPATH": str(SOURCE)})
    with pytest.raises(subprocess.TimeoutExpired):
        again.wait(2)
    os.kill(pid, signal.SIGCONT)
    output, _ = again.communicate(timeout=120)
    assert again.returncode == 0 and output.startswith(b"Strandline is already running")


def test_up_and_down_have_exit_codes_and_json_for_scripts(tmp_path: Path) -> None:
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
        _up_waits_for_a_paused_node(tmp_path, state["nodes"][0]["pid"])
    finally:
        down = strandline("down", "--data", str(tmp_path), "--json")
    assert down.returncode == 0, down.stderr
    assert json.loads(down.stdout) == [{"id": 1, "stopped": True}]
    assert strandline("topic", "list", "-b", f"127.0.0.1:{port}").returncode == 1
