"""A pytest plugin: `pytest_plugins = ["strandline.testing.fixtures"]` in a conftest.py.

`strandline_cluster` is one cluster for the whole test session, started by the first test that asks for it. Override
`strandline_settings` in your own conftest.py to start it with other broker settings.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import pytest

from strandline.testing import Cluster, running_cluster


@pytest.fixture(scope="session")
def strandline_settings() -> Mapping[str, str]:
    return {}


@pytest.fixture(scope="session")
def strandline_cluster(strandline_settings: Mapping[str, str]) -> Iterator[Cluster]:
    with running_cluster(settings=strandline_settings) as cluster:
        yield cluster


@pytest.fixture
def strandline_bootstrap(strandline_cluster: Cluster) -> str:
    """The `bootstrap.servers` of the session's cluster."""
    return strandline_cluster.bootstrap
