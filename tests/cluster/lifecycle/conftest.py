"""One cluster of three combined nodes for the tests of this directory."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from strandline.testing import Cluster


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Each test starts and ends with all nodes running."""
    with Cluster(tmp_path_factory.mktemp("three-nodes"), nodes=3) as started:
        yield started
