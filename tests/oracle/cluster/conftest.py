"""One cluster for the tools of Apache Kafka: three voters, and a fourth node, broker and controller, without a vote.

`STRANDLINE_ORACLE_CLUSTER=kafka` lets Apache Kafka itself be that cluster: what the tests expect of us is what they
find there.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator

import pytest

from compat.java.conftest import programs, tools
from compat.java.jvm import Ran, Tools
from oracle.cluster.members import Members, Who
from strandline.launch.cluster_state import COMBINED

__all__ = ["programs", "tools"]

WHO: Who = "kafka" if os.environ.get("STRANDLINE_ORACLE_CLUSTER") == "kafka" else "ours"
Run = Callable[..., Ran]

SETTINGS = {
    "num.partitions": "2",
    "default.replication.factor": "3",
    "auto.leader.rebalance.enable": "false",
    # Several snapshots while the tools are at work.
    "metadata.log.max.record.bytes.between.snapshots": "6000",
}


@pytest.fixture(scope="session")
def members(kafka_classpath: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Members]:
    cluster = Members(tmp_path_factory.mktemp("members"), kafka_classpath, [COMBINED] * 4, 3, SETTINGS)
    cluster.format()
    with cluster.ended():
        cluster.start(WHO)
        yield cluster


@pytest.fixture
def run(tools: Tools, members: Members) -> Run:
    """A tool that is pointed at the cluster, and is expected to succeed unless `code` says otherwise.

    Wherever it is pointed, a tool asks any broker there is: they all know what the tools before it have done."""

    def run_tool(tool: str, *arguments: str, code: int = 0) -> Ran:
        members.settle()
        where = [] if any("bootstrap" in each for each in arguments) else ["--bootstrap-server", members.bootstrap]
        given = [*arguments, *where] if tool.endswith("ClusterTool") else [*where, *arguments]
        ran = tools.run(tool, *given)
        assert ran.code == code, ran.output
        return ran

    return run_tool
