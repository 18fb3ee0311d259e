"""For users' tests: a cluster as a context manager, and a pytest fixture.

    from strandline.testing import Cluster

    with Cluster(nodes=3) as cluster:
        producer = KafkaProducer(bootstrap_servers=cluster.bootstrap)
        cluster.kill(2)                  # kill -9; also pause, resume, stop, start and restart
        cluster.start(2)
        cluster.wait_until_healthy()

With pytest, list the plugin in a conftest.py and use the fixture:

    pytest_plugins = ["strandline.testing.fixtures"]

    def test_orders(strandline_cluster): ...

A cluster consists of real processes with real files on free ports. It is ready when the block begins; at its end the
processes are stopped and a temporary directory is removed.
"""

from __future__ import annotations

from strandline.testing.cluster import Cluster, running_cluster

__all__ = ["Cluster", "running_cluster"]
