"""What users import in their own tests: a cluster in a `with`, and a pytest fixture.

    from strandline.testing import running_cluster

    with running_cluster() as cluster:
        producer = KafkaProducer(bootstrap_servers=cluster.bootstrap)

With pytest, name the plugin once in a conftest.py and ask for the fixture:

    pytest_plugins = ["strandline.testing.fixtures"]

    def test_orders(strandline_cluster): ...

A cluster is real processes with real files on ports of their own; it is ready when the `with` begins and gone, with
everything it stored, when it ends.
"""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Iterator, Mapping
from os import PathLike

from strandline.launch.cluster import Cluster

__all__ = ["Cluster", "running_cluster"]


@contextlib.contextmanager
def running_cluster(
    directory: str | PathLike[str] | None = None, *, nodes: int = 1, settings: Mapping[str, str] | None = None
) -> Iterator[Cluster]:
    """Without a directory, a temporary one; with one, what is stored stays there."""
    with contextlib.ExitStack() as stack:
        place = directory or stack.enter_context(tempfile.TemporaryDirectory(prefix="strandline-"))
        yield stack.enter_context(Cluster.started(place, nodes=nodes, settings=settings))
