"""A cluster of three combined nodes, in which each test makes nodes fail."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from strandline.testing import Cluster

# Several snapshots are written during the tests.
SETTINGS = {"metadata.log.max.record.bytes.between.snapshots": "5000"}


@pytest.fixture(scope="session")
def shared_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """One cluster for all tests of this directory: each test starts and ends with all nodes running."""
    with Cluster(tmp_path_factory.mktemp("shared_cluster"), nodes=3, settings=SETTINGS) as started:
        yield started
