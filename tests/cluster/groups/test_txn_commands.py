"""`strandline txn` with a real node: what it prints, and its exit codes."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator

import pytest

from strandline.client.blocking import BlockingClient, Outgoing
from strandline.launch.cluster import Cluster

SETTINGS = {"transaction.state.log.num.partitions": "3"}


@pytest.fixture(scope="module")
def bootstrap(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with Cluster.started(tmp_path_factory.mktemp("node"), settings=SETTINGS) as cluster:
        yield cluster.bootstrap


def command(bootstrap: str, *words: str) -> subprocess.CompletedProcess[str]:
    program = [sys.executable, "-m", "strandline", "txn", *words, "-b", bootstrap]
    return subprocess.run(program, capture_output=True, text=True, timeout=30)


def test_an_open_transaction_is_listed_and_described_and_cannot_be_aborted_as_hanging(bootstrap: str) -> None:
    with BlockingClient(bootstrap) as client:
        client.run(lambda each: each.topics.create("t", partitions=1))
        with client.transactional_producer("copier") as producer:
            producer.begin()
            producer.send("t", [Outgoing(b"v")]).result()
            listed = json.loads(command(bootstrap, "list", "--min-seconds", "0", "--json").stdout)
            described = json.loads(command(bootstrap, "describe", "copier", "--json").stdout)
            hanging = json.loads(command(bootstrap, "find-hanging", "--min-minutes", "0", "--json").stdout)
            refused = command(bootstrap, "abort", "t:0", "--start-offset", "0")
            producer.commit()
    assert [(each["transactional_id"], each["state"]) for each in listed] == [("copier", "Ongoing")]
    assert (described["state"], described["partitions"]) == ("Ongoing", ["t-0"])
    assert described["open_seconds"] > 0
    assert hanging == []
    assert refused.returncode == 1 and "ongoing at its coordinator" in refused.stderr


def test_errors_have_exit_codes(bootstrap: str) -> None:
    unknown = command(bootstrap, "describe", "nothing")
    assert unknown.returncode == 1 and "there is no transactional id 'nothing'" in unknown.stderr
    assert command(bootstrap, "abort", "t", "--start-offset", "0").returncode == 2
    missing = command(bootstrap, "abort", "t:0", "--start-offset", "99")
    assert missing.returncode == 1 and "no transaction that begins at offset 99" in missing.stderr
