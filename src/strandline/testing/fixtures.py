"""A pytest plugin: `pytest_plugins = ["strandline.testing.fixtures"]` in a conftest.py.

`strandline_cluster` is one cluster for the whole test session, started by the first test that uses it. Override
`strandline_nodes` or `strandline_settings` in your own conftest.py to start it with more nodes or other settings.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import pytest

from strandline.testing import Cluster


@pytest.fixture(scope="session")
def strandline_nodes() -> int:
    return 1


@pytest.fixture(scope="session")
def strandline_settings() -> Mapping[str, str]:
    return {}


@pytest.fixture(scope="session")
def strandline_cluster(strandline_nodes: int, strandline_settings: Mapping[str, str]) -> Iterator[Cluster]:
    with Cluster(nodes=strandline_nodes, settings=strandline_settings) as cluster:
        yield cluster


@pytest.fixture
def strandline_bootstrap(strandline_cluster: Cluster) -> str:
    """The `bootstrap.servers` of the session's cluster."""
    return strandline_cluster.bootstrap
