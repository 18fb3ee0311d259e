"""`consume -g` and `strandline group` with a real node: what they print, change and refuse, and their exit codes."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from strandline.launch.cluster import Cluster

SETTINGS = {"offsets.topic.num.partitions": "3", "group.initial.rebalance.delay.ms": "0"}
LIMIT_S = 30


@pytest.fixture(scope="module")
def bootstrap(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with Cluster.started(tmp_path_factory.mktemp("node"), settings=SETTINGS) as cluster:
        yield cluster.bootstrap
        log = Path(cluster.nodes[0].log).read_text()
    assert "Traceback" not in log, log[-10_000:]


def command(bootstrap: str, *words: str, stdin: str | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "strandline", *words, "-b", bootstrap],
        input=stdin,
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
    )


def document(bootstrap: str, *words: str) -> Any:
    done = command(bootstrap, *words, "--json")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def filled(bootstrap: str, topic: str, records: int = 10, partitions: int = 1) -> None:
    assert command(bootstrap, "topic", "create", topic, "-p", str(partitions)).returncode == 0
    lines = "".join(f"{number}\n" for number in range(records))
    assert command(bootstrap, "produce", topic, stdin=lines).returncode == 0


def consumed(bootstrap: str, topic: str, group: str, count: int) -> list[str]:
    done = command(bootstrap, "consume", topic, "-g", group, "-n", str(count), "-f", "%v\\n")
    assert done.returncode == 0, done.stderr
    return done.stdout.split()


def test_consume_continues_after_the_last_record_it_printed(bootstrap: str) -> None:
    filled(bootstrap, "orders")
    assert consumed(bootstrap, "orders", "billing", 3) == ["0", "1", "2"]
    assert consumed(bootstrap, "orders", "billing", 4) == ["3", "4", "5", "6"]
    described = document(bootstrap, "group", "describe", "billing")
    assert (described["state"], described["lag"], described["members"]) == ("Empty", 3, 0)
    partition = described["partitions"][0]
    assert (partition["committed"], partition["end"], partition["lag"]) == (7, 10, 3)
    assert 0 < partition["lag_seconds"] < LIMIT_S
    lag = document(bootstrap, "group", "lag", "billing")
    assert [(each["group"], each["topic"], each["lag"]) for each in lag] == [("billing", "orders", 3)]
    assert [each["group"] for each in document(bootstrap, "group", "list", "--state", "empty")] == ["billing"]
    assert document(bootstrap, "group", "list", "--state", "stable") == []


def test_an_interrupted_consumer_commits_what_it_has_printed_and_leaves(bootstrap: str) -> None:
    filled(bootstrap, "interrupted")
    words = ["consume", "interrupted", "-g", "watchers", "-f", "%v\\n", "-b", bootstrap]
    with subprocess.Popen(
        [sys.executable, "-m", "strandline", *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        printed = [process.stdout.readline().strip() for _ in range(10)]
        members = document(bootstrap, "group", "members", "watchers")
        refused = command(bootstrap, "group", "reset", "watchers", "--to", "start", "--execute")
        undeleted = command(bootstrap, "group", "delete", "watchers")
        process.send_signal(signal.SIGINT)
        assert process.wait(LIMIT_S) == 0
    assert printed == [str(number) for number in range(10)]
    assert [(each["client_id"], each["partitions"]) for each in members] == [("strandline-cli", ["interrupted-0"])]
    assert refused.returncode == 1 and "stop them first" in refused.stderr
    assert undeleted.returncode == 1 and "NON_EMPTY_GROUP" in undeleted.stderr
    described = document(bootstrap, "group", "describe", "watchers")
    assert (described["state"], described["lag"], described["lag_seconds"]) == ("Empty", 0, 0)


def test_reset_changes_nothing_without_execute(bootstrap: str) -> None:
    filled(bootstrap, "resettable", records=10)
    consumed(bootstrap, "resettable", "readers", 10)
    shown = document(bootstrap, "group", "reset", "readers", "--to", "-4")
    assert not shown["executed"]
    assert [(each["before"], each["after"]) for each in shown["partitions"]] == [(10, 6)]
    assert document(bootstrap, "group", "describe", "readers")["lag"] == 0
    command(bootstrap, "group", "reset", "readers", "--to", "-4", "--execute")
    assert document(bootstrap, "group", "describe", "readers")["lag"] == 4
    assert consumed(bootstrap, "resettable", "readers", 1) == ["6"]
    for to, after in (("start", 0), ("end", 10), ("3", 3), ("99", 10), ("+2", 2), ("@-1h", 0), ("@1h", 10)):
        shown = document(bootstrap, "group", "reset", "readers", "--to", to)
        assert [each["after"] for each in shown["partitions"]] == [after], to


def test_reset_creates_a_group_for_named_topics(bootstrap: str) -> None:
    filled(bootstrap, "named", partitions=2)
    without = command(bootstrap, "group", "reset", "fresh", "--to", "start")
    assert without.returncode == 1 and "name the topics" in without.stderr
    shown = document(bootstrap, "group", "reset", "fresh", "--to", "start", "--topic", "named:1", "--execute")
    assert [(each["partition"], each["before"], each["after"]) for each in shown["partitions"]] == [(1, None, 0)]


def test_delete_and_delete_offsets(bootstrap: str) -> None:
    filled(bootstrap, "deleted", records=2, partitions=1)
    consumed(bootstrap, "deleted", "unwanted", 2)
    results = document(bootstrap, "group", "delete-offsets", "unwanted", "deleted")
    assert results == [{"topic": "deleted", "partition": 0, "deleted": True, "error": None}]
    assert document(bootstrap, "group", "describe", "unwanted")["partitions"] == []
    assert document(bootstrap, "group", "delete", "unwanted") == [{"group": "unwanted", "deleted": True}]
    again = command(bootstrap, "group", "delete", "unwanted")
    assert again.returncode == 1 and "there is no group 'unwanted'" in again.stderr
    assert command(bootstrap, "group", "delete", "unwanted", "--if-exists").returncode == 0
    missing = command(bootstrap, "group", "describe", "unwanted")
    assert missing.returncode == 1 and "there is no group 'unwanted'" in missing.stderr


def test_lag_is_printed_again_and_again_with_watch(bootstrap: str) -> None:
    filled(bootstrap, "watched", records=3)
    consumed(bootstrap, "watched", "slow", 1)
    words = ["group", "lag", "slow", "--watch", "0.2", "--json", "-b", bootstrap]
    with subprocess.Popen(
        [sys.executable, "-m", "strandline", *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        first, second = (json.loads(process.stdout.readline()) for _ in range(2))
        process.send_signal(signal.SIGINT)
        assert process.wait(LIMIT_S) == 0
    assert first["partitions"][0]["lag"] == second["partitions"][0]["lag"] == 2
    grown_s = second["partitions"][0]["lag_seconds"] - first["partitions"][0]["lag_seconds"]
    assert grown_s == pytest.approx(second["time"] - first["time"], abs=0.1)
    assert abs(time.time() - second["time"]) < LIMIT_S


@pytest.mark.parametrize(
    "words",
    [
        ["consume", "t", "-g", "g", "-p", "0"],
        ["consume", "t", "-g", "g", "-o", "5"],
        ["consume", "t", "-g", ""],
        ["group", "reset", "g", "--to", "yesterday"],
        ["group", "reset", "g", "--to", "1:5"],
        ["group", "lag", "--watch", "0"],
    ],
)
def test_invalid_usage_exits_with_2(words: list[str]) -> None:
    assert command("127.0.0.1:1", *words).returncode == 2
