"""Fixtures of the Java tests: our programs, Kafka's tools, and one node for all of them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from oracle.conftest import kafka_classpath, kafka_lib, programs, tools
from strandline.launch.cluster import Cluster

__all__ = ["kafka_classpath", "kafka_lib", "programs", "tools"]

SETTINGS = {
    "num.partitions": "3",
    # As in the properties file of the Kafka node that the expected results come from.
    "offsets.topic.replication.factor": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
}


@pytest.fixture(scope="session")
def bootstrap(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A node of its own: these tests change configs of all brokers and count topics."""
    with Cluster.started(tmp_path_factory.mktemp("java"), settings=SETTINGS) as cluster:
        yield cluster.bootstrap
