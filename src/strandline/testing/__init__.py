"""What users import in their own tests: a cluster in a `with`, and a pytest fixture.

    from strandline.testing import Cluster

    with Cluster(nodes=3) as cluster:
        producer = KafkaProducer(bootstrap_servers=cluster.bootstrap)
        cluster.kill(2)                  # kill -9; also pause, resume, stop, start and restart
        cluster.start(2)
        cluster.wait_until_healthy()

With pytest, name the plugin once in a conftest.py and ask for the fixture:

    pytest_plugins = ["strandline.testing.fixtures"]

    def test_orders(strandline_cluster): ...

A cluster is real processes with real files on ports of their own; it is ready when the `with` begins and gone, with
everything it stored, when it ends.
"""

from __future__ import annotations

from strandline.testing.cluster import Cluster, running_cluster

__all__ = ["Cluster", "running_cluster"]
