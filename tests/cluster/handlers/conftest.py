"""One node process for all scripts; afterwards its log must contain no unexpected error."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from cluster.handlers.script_run import SETTINGS, NodeAddress
from strandline.launch.cluster import Cluster


@pytest.fixture(scope="session")
def our_node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NodeAddress]:
    with Cluster.started(tmp_path_factory.mktemp("node"), settings=SETTINGS) as cluster:
        node = cluster.nodes[0]
        yield NodeAddress(node.host, node.port, node.controller_port, node.id, is_kafka=False)
        log = Path(node.log).read_text()
    assert "Traceback" not in log and "unexpected error" not in log, log[-10_000:]
