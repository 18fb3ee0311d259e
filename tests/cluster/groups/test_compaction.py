"""`__consumer_offsets` is compacted: offsets that were committed many times take little space, and none is lost."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

from cluster.connection import Connection
from strandline.launch.cluster import Cluster
from strandline.protocol.messages.coordinators import FindCoordinatorRequest
from strandline.protocol.messages.offsets import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
)
from strandline.protocol.messages.topics import CreatableTopic, CreateTopicsRequest

PARTITIONS = 100
ROUNDS = 400
SETTINGS = {
    "offsets.topic.num.partitions": "1",
    "offsets.topic.segment.bytes": "1048576",
    "log.cleaner.backoff.ms": "100",
    "log.initial.task.delay.ms": "100",
    "log.cleaner.min.cleanable.ratio": "0.1",
}


def connect(cluster: Cluster) -> Connection:
    node = cluster.nodes[0]
    return Connection(node.host, node.port)


def commit(connection: Connection, offset: int) -> None:
    partitions = [OffsetCommitRequestPartition(index, offset) for index in range(PARTITIONS)]
    request = OffsetCommitRequest(group_id="g", topics=[OffsetCommitRequestTopic("t", partitions=partitions)])
    response = connection.call(request, 9)
    assert not any(each.error_code for each in response.topics[0].partitions), response


def committed(connection: Connection) -> list[int]:
    deadline = time.monotonic() + 60
    while True:
        (group,) = connection.call(OffsetFetchRequest(groups=[OffsetFetchRequestGroup("g", topics=None)]), 8).groups
        if not group.error_code:
            return [each.committed_offset for topic in group.topics for each in topic.partitions]
        assert time.monotonic() < deadline, group
        time.sleep(0.05)


def coordinator_error(connection: Connection) -> int:
    found = connection.call(FindCoordinatorRequest(coordinator_keys=["g"]), 4).coordinators[0]
    return int(found.error_code)


def wait_until(condition: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline, what
        time.sleep(0.05)


def size_bytes(cluster: Cluster) -> int:
    return sum(file.stat().st_size for file in Path(cluster.nodes[0].data).glob("__consumer_offsets-0/*.log"))


def test_committed_offsets_are_compacted_and_survive_a_kill(tmp_path: Path) -> None:
    with Cluster.started(tmp_path, settings=SETTINGS) as cluster:
        node = cluster.nodes[0]
        connection = connect(cluster)
        topic = CreatableTopic("t", num_partitions=PARTITIONS, replication_factor=1)
        assert not connection.call(CreateTopicsRequest(topics=[topic], timeout_ms=30_000), 7).topics[0].error_code
        wait_until(lambda: coordinator_error(connection) == 0, "there is no coordinator")
        assert committed(connection) == []
        for offset in range(ROUNDS):
            commit(connection, offset)
        written = PARTITIONS * ROUNDS * 60
        wait_until(lambda: size_bytes(cluster) < written / 2, "nothing is compacted")
        connection.close()
        cluster.kill(node.id)
        cluster.start(node.id)
        connection = connect(cluster)
        assert committed(connection) == [ROUNDS - 1] * PARTITIONS
        connection.close()
