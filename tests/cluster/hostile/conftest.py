"""One node for all attacks: each must leave it able to serve the next test."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from cluster.handlers.script_run import NodeAddress
from cluster.hostile.node_under_attack import MAX_ROUND_TRIP_S, NodeUnderAttack, OrdinaryClient
from strandline.launch.cluster import Cluster


@pytest.fixture(scope="session")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NodeUnderAttack]:
    with Cluster.started(tmp_path_factory.mktemp("hostile"), settings={"num.partitions": "1"}) as cluster:
        state = cluster.nodes[0]
        assert state.pid is not None
        address = NodeAddress(state.host, state.port, state.controller_port, state.id, is_kafka=False)
        node = NodeUnderAttack(address, state.pid, Path(state.log), Path(state.data))
        yield node
        assert cluster.running() == [state], "the node failed"
    assert node.errors_since(0) == ""


@pytest.fixture(scope="module")
def client_process(node: NodeUnderAttack, request: pytest.FixtureRequest) -> Iterator[OrdinaryClient]:
    client = OrdinaryClient.start(node, node.script_run(f"ordinary-client-{request.path.stem}").topic("t"))
    yield client
    client.stop()


@pytest.fixture
def ordinary_client(client_process: OrdinaryClient) -> Iterator[OrdinaryClient]:
    """Uses the node during a test; afterwards its records are complete and its round trips were short."""
    client_process.report()
    yield client_process
    result = client_process.report()
    assert result["failure"] is None, result["failure"]
    assert result["read"] == result["written"] > 0
    assert result["slowest_s"] < MAX_ROUND_TRIP_S, f"an ordinary client waited {result['slowest_s']:.2f} s"
