"""One cluster for the tools of Apache Kafka: three combined nodes that vote, and a fourth that is an observer.

With `STRANDLINE_ORACLE_CLUSTER=kafka` the cluster consists of Apache Kafka nodes: the tests pass there too.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator

import pytest

from compat.java.jvm import ToolResult, Tools
from oracle.cluster.mixed_cluster import Implementation, MixedCluster
from strandline.launch.cluster_state import COMBINED

IMPLEMENTATION: Implementation = "kafka" if os.environ.get("STRANDLINE_ORACLE_CLUSTER") == "kafka" else "ours"
Run = Callable[..., ToolResult]

SETTINGS = {
    "num.partitions": "2",
    "default.replication.factor": "3",
    "auto.leader.rebalance.enable": "false",
    # Several snapshots are written during the tests.
    "metadata.log.max.record.bytes.between.snapshots": "6000",
}


@pytest.fixture(scope="session")
def cluster(kafka_classpath: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[MixedCluster]:
    cluster = MixedCluster(tmp_path_factory.mktemp("cluster"), kafka_classpath, [COMBINED] * 4, 3, SETTINGS)
    cluster.format()
    with cluster.killed_on_exit():
        cluster.start(IMPLEMENTATION)
        yield cluster


@pytest.fixture
def run(tools: Tools, cluster: MixedCluster) -> Run:
    """Runs a tool against the cluster and checks its exit code.

    A tool may connect to any broker: before it starts, all have replayed the changes of earlier tools."""

    def run_tool(tool: str, *arguments: str, code: int = 0) -> ToolResult:
        cluster.wait_until_replayed()
        where = [] if any("bootstrap" in each for each in arguments) else ["--bootstrap-server", cluster.bootstrap]
        given = [*arguments, *where] if tool.endswith("ClusterTool") else [*where, *arguments]
        ran = tools.run(tool, *given)
        assert ran.code == code, ran.output
        return ran

    return run_tool
