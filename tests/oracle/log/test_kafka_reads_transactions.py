"""Kafka's tools read `__transaction_state` as our coordinator writes it, and list its transactions."""

from __future__ import annotations

from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from compat.java.jvm import Tools
from strandline.launch.cluster import Cluster

pytestmark = pytest.mark.long

TIMEOUT_S = 60.0
DUMP = "org.apache.kafka.tools.DumpLogSegments"
COMMAND = "org.apache.kafka.tools.TransactionsCommand"


def test_kafkas_tools_read_our_transactions(tmp_path: Path, tools: Tools) -> None:
    with Cluster.started(tmp_path, settings={"transaction.state.log.num.partitions": "1"}) as cluster:
        admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
        admin.create_topics([NewTopic("t", 2, 1)])["t"].result(TIMEOUT_S)
        producer = Producer({"bootstrap.servers": cluster.bootstrap, "transactional.id": "tx"})
        producer.init_transactions(TIMEOUT_S)
        for ends in (producer.commit_transaction, producer.abort_transaction):
            producer.begin_transaction()
            producer.produce("t", "v", partition=1)
            assert producer.flush(TIMEOUT_S) == 0
            ends(TIMEOUT_S)
        listed = tools.run(COMMAND, "--bootstrap-server", cluster.bootstrap, "list")
        described = tools.run(COMMAND, "--bootstrap-server", cluster.bootstrap, "describe", "--transactional-id", "tx")
        data = Path(cluster.nodes[0].data)
    assert listed.code == 0 and any(line.startswith("tx") for line in listed.lines), listed.output
    assert described.code == 0 and "CompleteAbort" in described.output, described.output
    (log,) = data.glob("__transaction_state-0/*.log")
    dumped = tools.run(DUMP, "--transaction-log-decoder", "--files", str(log))
    assert dumped.code == 0, dumped.output
    states = [
        line.split('"transactionStatus":')[1].split(",")[0] for line in dumped.lines if "transactionStatus" in line
    ]
    empty, ongoing, prepare_commit, prepare_abort, complete_commit, complete_abort = "012345"
    assert states == [
        empty,
        ongoing,
        prepare_commit,
        complete_commit,
        ongoing,
        prepare_abort,
        complete_abort,
    ], dumped.output
