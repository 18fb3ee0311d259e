"""kill -9 of the node under Java's idempotent producer: no record is lost or duplicated."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from compat.java.jvm import ToolResult, Tools
from strandline.launch.cluster import Cluster

pytestmark = [pytest.mark.oracle, pytest.mark.xdist_group("java")]

KILLS = 5


def wait_for_acks(count_file: Path) -> None:
    """Waits until 500 more records are acknowledged, so that requests are in flight."""

    def count() -> int:
        text = count_file.read_text() if count_file.exists() else ""
        return int(text or 0)

    wanted = count() + 500
    deadline = time.monotonic() + 120
    while count() < wanted:
        assert time.monotonic() < deadline, f"only {count()} of {wanted} records were acked"
        time.sleep(0.01)


def test_no_record_of_an_idempotent_java_producer_is_lost_or_duplicated_by_kills(tmp_path: Path, tools: Tools) -> None:
    count_file, stop_file = tmp_path / "count_file", tmp_path / "stop_file"
    ran: list[ToolResult] = []
    with Cluster.started(tmp_path / "node") as cluster:
        admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
        admin.create_topics([NewTopic("orders", 3, 1)])["orders"].result(60)
        arguments = ("EndlessProducer", cluster.bootstrap, "orders", str(count_file), str(stop_file))
        thread = threading.Thread(target=lambda: ran.append(tools.run(*arguments)))
        thread.start()
        try:
            for _ in range(KILLS):
                wait_for_acks(count_file)
                cluster.kill(1)
                cluster.up(port=None)
            wait_for_acks(count_file)
        finally:
            stop_file.touch()
            thread.join()
    assert ran[0].lines[-1].endswith("sent, problems: []"), ran[0].output
