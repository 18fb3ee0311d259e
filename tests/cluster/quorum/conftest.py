"""Three nodes, each a broker and a controller, as processes that are hurt in one test after the other."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from strandline.testing import Cluster

# Snapshots come soon, and several of them.
SETTINGS = {"metadata.log.max.record.bytes.between.snapshots": "5000"}


@pytest.fixture(scope="session")
def lasting(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """One for all tests of this directory: each finds it complete and leaves it so."""
    with Cluster(tmp_path_factory.mktemp("lasting"), nodes=3, settings=SETTINGS) as started:
        yield started
