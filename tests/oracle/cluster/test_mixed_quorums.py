"""Our nodes and Apache Kafka's in one quorum: voters of both implementations elect each other, brokers of both follow.

One of these is part of ./check; the others take minutes and run on request:

    PYTHONPATH=src .venv/bin/python -m pytest -m long tests/oracle/cluster/test_mixed_quorums.py
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from pathlib import Path

import pytest
from confluent_kafka import Producer

from cluster.connection import ConnectionClosed
from cluster.quorum.admin_requests import (
    TOPIC,
    RequestFailed,
    create_topic,
    describe_quorum,
    eventually,
    set_config,
    topics,
)
from cluster.quorum.inventory import inventory
from compat.java.jvm import Tools
from oracle.cluster.mixed_cluster import Implementation, MixedCluster
from oracle.cluster.test_quorum_handover import read
from oracle.cluster.tool_output import QUORUM
from strandline.launch.cluster_state import BROKER, COMBINED, CONTROLLER

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("cluster")]

SETTINGS = {"metadata.log.max.record.bytes.between.snapshots": "5000", "broker.session.timeout.ms": "4000"}


def start(cluster: MixedCluster, kinds: dict[int, Implementation]) -> None:
    for node_id, implementation in kinds.items():
        cluster.nodes[node_id].start(implementation)
    cluster.wait_until_ready()


def leader_of(cluster: MixedCluster) -> int:
    """Described by the controllers: a Kafka broker may keep sending to the previous leader after that has restarted."""
    for node in cluster.nodes.values():
        with contextlib.suppress(OSError, ConnectionClosed, RequestFailed):
            if node.is_running and node.state.is_controller:
                return describe_quorum(node.controller).leader_id
    return 0


def lead(cluster: MixedCluster, wanted: int, kinds: dict[int, Implementation]) -> None:
    """Makes the quorum elect this voter: when the leader stops, no other running voter has its last record."""
    leader = eventually(lambda: leader_of(cluster), bool)
    if leader == wanted:
        return
    (third,) = kinds.keys() - {leader, wanted}
    cluster.stop(third)
    set_config(cluster.nodes[leader].address, TOPIC, "records", "segment.ms", str(3_600_000 + wanted))
    cluster.stop(leader)
    start(cluster, {third: kinds[third]})
    assert eventually(lambda: leader_of(cluster), lambda found: found not in (leader, 0)) == wanted
    start(cluster, {leader: kinds[leader]})


def wait_for_another_leader(cluster: MixedCluster, leader: int) -> str:
    """Waits until another node leads; returns the address of a running broker."""
    eventually(lambda: leader_of(cluster), lambda found: found not in (leader, 0))
    return next(each.address for each in cluster.nodes.values() if each.is_running and each.state.is_broker)


def produced(brokers: Sequence[str], number: int, count: int = 60) -> None:
    producer = Producer({"bootstrap.servers": ",".join(brokers), "acks": "all", "message.timeout.ms": 150_000})
    refused: list[str] = []
    for index in range(count):
        producer.produce(
            "records",
            f"value {number} {index}",
            partition=index % 3,
            on_delivery=lambda error, _: refused.append(str(error)) if error else None,
        )
    assert producer.flush(180) == 0 and refused == []


@pytest.mark.long
def test_a_kafka_broker_joins_our_quorum(kafka_classpath: str, tmp_path: Path) -> None:
    cluster = MixedCluster(tmp_path, kafka_classpath, [CONTROLLER] * 3 + [BROKER] * 3, 3, SETTINGS)
    cluster.format()
    kinds: dict[int, Implementation] = {1: "ours", 2: "ours", 3: "ours", 4: "ours", 5: "kafka", 6: "ours"}
    with cluster.killed_on_exit():
        start(cluster, kinds)
        brokers = cluster.brokers
        create_topic(brokers[1], "records", 3, 3, {"retention.ms": "-1"})
        set_config(brokers[1], TOPIC, "records", "segment.bytes", "1234567")
        for broker in brokers:
            eventually(lambda broker=broker: "records" in topics(broker))  # type: ignore[misc]
        produced(brokers, 1)
        assert sum(map(len, read(brokers).values())) == 60
        eventually(lambda: inventory(brokers[1], *brokers) == inventory(brokers[0], *brokers))
        # Our leader is killed, and Kafka's broker continues with another controller.
        leader = leader_of(cluster)
        cluster.kill(leader)
        wait_for_another_leader(cluster, leader)
        create_topic(brokers[1], "later", 2, 3)
        produced(brokers, 2)
        cluster.stop(5)
        eventually(lambda: {each.leader_id for each in topics(brokers[0])["records"].partitions} <= {4, 6})
        produced([brokers[0], brokers[2]], 3)
        start(cluster, {5: "kafka", leader: "ours"})
        eventually(
            lambda: [sorted(each.isr_nodes) for each in topics(brokers[1])["records"].partitions],
            lambda isrs: isrs == [[4, 5, 6]] * 3,
        )
        assert sum(map(len, read(brokers).values())) == 180


@pytest.mark.long
@pytest.mark.parametrize(
    ("kinds", "static"),
    [
        ({1: "kafka", 2: "kafka", 3: "ours"}, False),
        ({1: "ours", 2: "ours", 3: "kafka"}, False),
        ({1: "kafka", 2: "kafka", 3: "ours"}, True),
    ],
    ids=["ours among Kafka's", "Kafka's among ours", "ours among Kafka's, static voters"],
)
def test_a_voter_of_the_other_implementation_follows_votes_and_leads(
    kinds: dict[int, Implementation], static: bool, kafka_classpath: str, tools: Tools, tmp_path: Path
) -> None:
    cluster = MixedCluster(tmp_path, kafka_classpath, [COMBINED] * 3, 3, SETTINGS, static)
    if static:
        cluster.format_by_kafka(tools)
    else:
        cluster.format()
    with cluster.killed_on_exit():
        start(cluster, kinds)
        brokers = cluster.brokers
        create_topic(brokers[0], "records", 3, 3, {"retention.ms": "-1"})
        for number, leader in enumerate((1, 3, 2), 1):
            lead(cluster, leader, kinds)
            create_topic(brokers[number % 3], f"under-{leader}", 2, 3)
            for round_ in range(10):
                set_config(
                    brokers[round_ % 3], TOPIC, "records", "segment.bytes", str(1_100_000 + number * 10 + round_)
                )
            eventually(
                lambda: [sorted(each.isr_nodes) for each in topics(brokers[0])["records"].partitions],
                lambda isrs: isrs == [[1, 2, 3]] * 3,
            )
            produced(brokers, number)
        expected = eventually(
            lambda: [inventory(broker, *brokers) for broker in brokers], lambda found: found == [found[0]] * 3
        )[0]
        assert {"records", "under-1", "under-2", "under-3"} <= expected["topics"].keys()
        assert sum(map(len, read(brokers).values())) == 180
        # A node of each implementation is killed and restarted during writes.
        for node_id in (3, 1):
            cluster.kill(node_id)
            create_topic(wait_for_another_leader(cluster, node_id), f"without-{node_id}", 1, 1)
            start(cluster, {node_id: kinds[node_id]})
            eventually(lambda node_id=node_id: f"without-{node_id}" in topics(cluster.nodes[node_id].address))  # type: ignore[misc]


@pytest.mark.parametrize(
    ("voters", "joiner"), [("ours", "kafka"), pytest.param("kafka", "ours", marks=pytest.mark.long)]
)
def test_a_new_node_fetches_a_snapshot_of_the_other_implementation_and_becomes_a_voter(
    voters: Implementation, joiner: Implementation, kafka_classpath: str, tools: Tools, tmp_path: Path
) -> None:
    cluster = MixedCluster(tmp_path, kafka_classpath, [COMBINED] * 4, 3, SETTINGS)
    cluster.format()
    with cluster.killed_on_exit():
        start(cluster, dict.fromkeys((1, 2, 3), voters))
        brokers = cluster.brokers
        for number in range(40):
            create_topic(brokers[number % 3], f"early-{number}", 2, 2)
        for node in cluster.nodes.values():
            taken = node.directory / "__cluster_metadata-0"
            if node.is_running:
                eventually(lambda taken=taken: len(list(taken.glob("*.checkpoint"))) > 1)  # type: ignore[misc]
        start(cluster, {4: joiner})
        late = cluster.nodes[4]
        assert len(eventually(lambda: topics(late.address))) == 40
        fetched = sorted((late.directory / "__cluster_metadata-0").glob("*.checkpoint"))
        assert any(not file.name.startswith("0" * 20) for file in fetched), "the node fetched a snapshot"
        joining = ("--command-config", str(late.properties), "--bootstrap-server", cluster.bootstrap)
        added = tools.run(QUORUM, *joining, "add-controller")
        assert added.code == 0, added.output
        voter_ids = eventually(lambda: [voter.replica_id for voter in describe_quorum(brokers[0]).current_voters])
        assert sorted(voter_ids) == [1, 2, 3, 4]
        # Of four voters a majority is three: with one killed, the new voter is needed.
        cluster.kill(1)
        create_topic(wait_for_another_leader(cluster, 1), "with-its-vote", 2, 3)
        expected = eventually(
            lambda: [inventory(broker, *brokers[1:]) for broker in brokers[1:]], lambda found: found == [found[0]] * 3
        )[0]
        assert len(expected["topics"]) == 41
