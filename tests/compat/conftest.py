"""One node as a process, for client libraries."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from strandline.launch.cluster import Cluster


@pytest.fixture(scope="session")
def bootstrap(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with Cluster.started(tmp_path_factory.mktemp("node"), settings={"num.partitions": "3"}) as cluster:
        yield cluster.bootstrap


@pytest.fixture
def topic(request: pytest.FixtureRequest) -> str:
    """A valid topic name, unique to the test."""
    return "".join(letter if letter.isalnum() else "-" for letter in request.node.nodeid)[-200:]
