"""One node for all attacks: each must leave it fit for the next."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path

import pytest

from cluster.handlers.talk import Target
from cluster.hostile.siege import Besieged, Bystander, bystanding
from strandline.launch.cluster import Cluster


@pytest.fixture(scope="session")
def besieged(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Besieged]:
    with Cluster.started(tmp_path_factory.mktemp("siege"), settings={"num.partitions": "1"}) as cluster:
        node = cluster.nodes[0]
        assert node.pid is not None
        target = Target(node.host, node.port, node.controller_port, node.id, is_kafka=False)
        besieged = Besieged(target, node.pid, Path(node.log), Path(node.data))
        yield besieged
        assert cluster.running() == [node], "the node died"
    assert besieged.bugs_since(0) == ""


_numbers = itertools.count()


@pytest.fixture
def bystander(besieged: Besieged) -> Iterator[Bystander]:
    """Uses the node for the length of a test, and must not have suffered."""
    topic = besieged.talk("bystander").topic(f"t{next(_numbers)}")
    with bystanding(besieged, topic) as bystander:
        yield bystander
