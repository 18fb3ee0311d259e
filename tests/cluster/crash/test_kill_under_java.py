"""kill -9 under Java's idempotent producer: it goes on as if nothing had happened, and so does the log."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from compat.java.jvm import Ran, Tools
from strandline.launch.cluster import Cluster

pytestmark = [pytest.mark.oracle, pytest.mark.xdist_group("java")]

KILLS = 5


def wait_until_in_flow(counted: Path) -> None:
    """Until records are acked again, and then into the midst of them."""

    def count() -> int:
        text = counted.read_text() if counted.exists() else ""
        return int(text or 0)

    wanted = count() + 500
    deadline = time.monotonic() + 120
    while count() < wanted:
        assert time.monotonic() < deadline, f"only {count()} of {wanted} records were acked"
        time.sleep(0.01)


def test_javas_producer_goes_on_through_kills_and_nothing_is_lost_or_doubled(tmp_path: Path, tools: Tools) -> None:
    counted, ending = tmp_path / "counted", tmp_path / "ending"
    ran: list[Ran] = []
    with Cluster.started(tmp_path / "node") as cluster:
        admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
        admin.create_topics([NewTopic("orders", 3, 1)])["orders"].result(60)
        arguments = ("Unceasing", cluster.bootstrap, "orders", str(counted), str(ending))
        thread = threading.Thread(target=lambda: ran.append(tools.run(*arguments)))
        thread.start()
        try:
            for _ in range(KILLS):
                wait_until_in_flow(counted)
                cluster.kill(1)
                cluster.up(port=None)
            wait_until_in_flow(counted)
        finally:
            ending.touch()
            thread.join()
    assert ran[0].lines[-1].endswith("sent, problems: []"), ran[0].output
