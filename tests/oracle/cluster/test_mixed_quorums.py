"""Our nodes and Apache Kafka's in one quorum: voters of both kinds elect each other, brokers of both follow.

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
from oracle.cluster.members import Members, Who
from oracle.cluster.tables import QUORUM
from oracle.cluster.test_a_quorum_changes_hands import read
from strandline.launch.cluster_state import BROKER, COMBINED, CONTROLLER

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("cluster")]

SETTINGS = {"metadata.log.max.record.bytes.between.snapshots": "5000", "broker.session.timeout.ms": "4000"}


def start(members: Members, kinds: dict[int, Who]) -> None:
    for node_id, who in kinds.items():
        members.each[node_id].start(who)
    members.wait_until_ready()


def leader_of(members: Members) -> int:
    """Asked at the controllers: a broker of Kafka goes on asking the last leader, if that came back unnoticed."""
    for member in members.each.values():
        with contextlib.suppress(OSError, ConnectionClosed, RequestFailed):
            if member.runs and member.node.is_controller:
                return describe_quorum(member.controller).leader_id
    return 0


def lead(members: Members, wanted: int, kinds: dict[int, Who]) -> None:
    """Lets the quorum elect this voter: when the leader goes, nobody else who runs has what it wrote last."""
    leader = eventually(lambda: leader_of(members), bool)
    if leader == wanted:
        return
    (third,) = kinds.keys() - {leader, wanted}
    members.stop(third)
    set_config(members.each[leader].address, TOPIC, "records", "segment.ms", str(3_600_000 + wanted))
    members.stop(leader)
    start(members, {third: kinds[third]})
    assert eventually(lambda: leader_of(members), lambda found: found not in (leader, 0)) == wanted
    start(members, {leader: kinds[leader]})


def await_another(members: Members, leader: int) -> str:
    """When somebody other than this one leads: the address of a broker that runs."""
    eventually(lambda: leader_of(members), lambda found: found not in (leader, 0))
    return next(each.address for each in members.each.values() if each.runs and each.node.is_broker)


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
def test_a_broker_of_kafka_joins_a_quorum_of_ours(kafka_classpath: str, tmp_path: Path) -> None:
    members = Members(tmp_path, kafka_classpath, [CONTROLLER] * 3 + [BROKER] * 3, 3, SETTINGS)
    members.format()
    kinds: dict[int, Who] = {1: "ours", 2: "ours", 3: "ours", 4: "ours", 5: "kafka", 6: "ours"}
    with members.ended():
        start(members, kinds)
        brokers = members.brokers
        create_topic(brokers[1], "records", 3, 3, {"retention.ms": "-1"})
        set_config(brokers[1], TOPIC, "records", "segment.bytes", "1234567")
        for broker in brokers:
            eventually(lambda broker=broker: "records" in topics(broker))  # type: ignore[misc]
        produced(brokers, 1)
        assert sum(map(len, read(brokers).values())) == 60
        eventually(lambda: inventory(brokers[1], *brokers) == inventory(brokers[0], *brokers))
        # A leader of ours dies, and Kafka's broker goes on with another controller.
        leader = leader_of(members)
        members.kill(leader)
        await_another(members, leader)
        create_topic(brokers[1], "later", 2, 3)
        produced(brokers, 2)
        members.stop(5)
        eventually(lambda: {each.leader_id for each in topics(brokers[0])["records"].partitions} <= {4, 6})
        produced([brokers[0], brokers[2]], 3)
        start(members, {5: "kafka", leader: "ours"})
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
    ids=["ours among Kafka's", "Kafka's among ours", "ours among Kafka's, named in the files"],
)
def test_a_voter_of_the_other_kind_follows_votes_and_leads(
    kinds: dict[int, Who], static: bool, kafka_classpath: str, tools: Tools, tmp_path: Path
) -> None:
    members = Members(tmp_path, kafka_classpath, [COMBINED] * 3, 3, SETTINGS, static)
    if static:
        members.format_by_kafka(tools)
    else:
        members.format()
    with members.ended():
        start(members, kinds)
        brokers = members.brokers
        create_topic(brokers[0], "records", 3, 3, {"retention.ms": "-1"})
        for number, leader in enumerate((1, 3, 2), 1):
            lead(members, leader, kinds)
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
        # One of each kind is killed and comes back, with the quorum at work.
        for node_id in (3, 1):
            members.kill(node_id)
            create_topic(await_another(members, node_id), f"without-{node_id}", 1, 1)
            start(members, {node_id: kinds[node_id]})
            eventually(lambda node_id=node_id: f"without-{node_id}" in topics(members.each[node_id].address))  # type: ignore[misc]


@pytest.mark.parametrize(
    ("founders", "joiner"), [("ours", "kafka"), pytest.param("kafka", "ours", marks=pytest.mark.long)]
)
def test_one_that_comes_late_begins_with_a_snapshot_of_the_others_and_is_given_a_vote(
    founders: Who, joiner: Who, kafka_classpath: str, tools: Tools, tmp_path: Path
) -> None:
    members = Members(tmp_path, kafka_classpath, [COMBINED] * 4, 3, SETTINGS)
    members.format()
    with members.ended():
        start(members, dict.fromkeys((1, 2, 3), founders))
        brokers = members.brokers
        for number in range(40):
            create_topic(brokers[number % 3], f"early-{number}", 2, 2)
        for member in members.each.values():
            taken = member.directory / "__cluster_metadata-0"
            if member.runs:
                eventually(lambda taken=taken: len(list(taken.glob("*.checkpoint"))) > 1)  # type: ignore[misc]
        start(members, {4: joiner})
        late = members.each[4]
        assert len(eventually(lambda: topics(late.address))) == 40
        fetched = sorted((late.directory / "__cluster_metadata-0").glob("*.checkpoint"))
        assert any(not file.name.startswith("0" * 20) for file in fetched), "it came by a snapshot"
        joining = ("--command-config", str(late.properties), "--bootstrap-server", members.bootstrap)
        added = tools.run(QUORUM, *joining, "add-controller")
        assert added.code == 0, added.output
        voters = eventually(lambda: [voter.replica_id for voter in describe_quorum(brokers[0]).current_voters])
        assert sorted(voters) == [1, 2, 3, 4]
        # With the fourth vote a majority is three: it counts.
        members.kill(1)
        create_topic(await_another(members, 1), "with-its-vote", 2, 3)
        expected = eventually(
            lambda: [inventory(broker, *brokers[1:]) for broker in brokers[1:]], lambda found: found == [found[0]] * 3
        )[0]
        assert len(expected["topics"]) == 41
