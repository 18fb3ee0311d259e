"""One node for all attacks: each must leave it able to serve the next test."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path

import pytest

from cluster.handlers.script_run import NodeAddress
from cluster.hostile.node_under_attack import NodeUnderAttack, OrdinaryClient, running_client
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


_numbers = itertools.count()


@pytest.fixture
def ordinary_client(node: NodeUnderAttack) -> Iterator[OrdinaryClient]:
    """Uses the node during a test; afterwards its records are complete and its round trips were short."""
    topic = node.script_run("ordinary-client").topic(f"t{next(_numbers)}")
    with running_client(node, topic) as client:
        yield client
