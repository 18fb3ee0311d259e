from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from strandline.testing import Cluster


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    """Three nodes, each a broker and a controller."""
    with Cluster(tmp_path, nodes=3) as started:
        yield started
