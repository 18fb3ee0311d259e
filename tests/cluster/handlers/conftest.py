"""One real node for all scripts; when they are through, its log must not speak of bugs."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from cluster.handlers.talk import SETTINGS, Target
from strandline.launch.cluster import Cluster


@pytest.fixture(scope="session")
def our_node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Target]:
    with Cluster.started(tmp_path_factory.mktemp("node"), settings=SETTINGS) as cluster:
        node = cluster.nodes[0]
        yield Target(node.host, node.port, node.controller_port, node.id, is_kafka=False)
        log = Path(node.log).read_text()
    assert "Traceback" not in log and "unexpected error" not in log, log[-10_000:]
