"""Nodes are killed, paused and restarted during metadata writes: no acknowledged write is lost."""

from __future__ import annotations

import time

import pytest

from cluster.connection import ConnectionClosed
from cluster.quorum.admin_requests import RequestFailed, create_topic, describe_quorum, eventually, live_brokers, topics
from cluster.quorum.inventory import inventory
from cluster.quorum.metadata_load import MetadataLoad
from strandline.testing import Cluster

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("quorum")]


def addresses(cluster: Cluster) -> list[str]:
    return [node.endpoint for node in cluster.nodes]


def leader_of(cluster: Cluster) -> int:
    """The active controller, according to a running broker."""
    brokers = [node.endpoint for node in cluster.running()]
    return eventually(lambda: describe_quorum(brokers[0]).leader_id, lambda found: found > 0)


def test_no_write_is_lost_when_leaders_and_followers_are_killed_in_turn(shared_cluster: Cluster) -> None:
    with MetadataLoad(addresses(shared_cluster), "killed") as load:
        load.wait_for_acks()
        for turn in range(4):
            leader = leader_of(shared_cluster)
            victim = leader if turn % 2 == 0 else leader % 3 + 1
            shared_cluster.kill(victim)
            load.wait_for_acks()
            shared_cluster.start(victim)
            load.wait_for_acks()
    load.check()
    assert len(load.acked) > 160


def test_no_write_is_lost_when_all_nodes_are_killed_at_once(shared_cluster: Cluster) -> None:
    with MetadataLoad(addresses(shared_cluster), "all-killed") as load:
        load.wait_for_acks(40)
        for node in shared_cluster.nodes:
            shared_cluster.kill(node.id)
        assert [node.id for node in shared_cluster.up(port=None)] == [1, 2, 3]
        load.wait_for_acks()
    load.check()
    before = eventually(lambda: inventory(*addresses(shared_cluster)))
    for node in shared_cluster.nodes:
        shared_cluster.kill(node.id)
    shared_cluster.up(port=None)
    for broker in addresses(shared_cluster):
        eventually(lambda broker=broker: inventory(broker, *addresses(shared_cluster)), lambda found: found == before)  # type: ignore[misc]


def test_a_paused_leader_is_replaced_and_does_not_disturb_the_new_leader_when_resumed(shared_cluster: Cluster) -> None:
    with MetadataLoad(addresses(shared_cluster), "paused") as load:
        load.wait_for_acks()
        silent = leader_of(shared_cluster)
        shared_cluster.pause(silent)
        others = [node.endpoint for node in shared_cluster.nodes if node.id != silent]
        eventually(lambda: describe_quorum(others[0]).leader_id, lambda found: found not in (silent, -1))
        load.wait_for_acks(5)
        epoch = eventually(lambda: describe_quorum(others[0])).leader_epoch
        shared_cluster.resume(silent)
        load.wait_for_acks()
    load.check()
    shared_cluster.wait_until_healthy()
    assert eventually(lambda: describe_quorum(others[0])).leader_epoch == epoch, "the resumed node caused an election"


def test_a_rolling_restart_keeps_metadata_available(shared_cluster: Cluster) -> None:
    with MetadataLoad(addresses(shared_cluster), "rolling") as load:
        load.wait_for_acks()
        for node in shared_cluster.nodes:
            shared_cluster.restart(node.id)
            load.wait_for_acks()
            eventually(lambda: live_brokers(addresses(shared_cluster)[0]) == {1, 2, 3})
    load.check()
    shared_cluster.wait_until_healthy()
    assert load.longest_gap_s < 6.0, "a leader that stops cleanly is replaced at once"


def test_a_minority_elects_no_leader_and_still_serves_metadata(shared_cluster: Cluster) -> None:
    create_topic(addresses(shared_cluster)[0], "before", 2, 3)
    eventually(lambda: all("before" in topics(broker) for broker in addresses(shared_cluster)))
    survivor = next(node for node in shared_cluster.nodes if node.id != leader_of(shared_cluster))
    before = eventually(lambda: describe_quorum(survivor.endpoint))
    for node in shared_cluster.nodes:
        if node.id != survivor.id:
            shared_cluster.kill(node.id)
    ends = time.monotonic() + 4
    while time.monotonic() < ends:
        with pytest.raises((RequestFailed, OSError, ConnectionClosed)):
            found = describe_quorum(survivor.endpoint, timeout_s=1.0)
            raise AssertionError(f"a leader was elected: {found}")
        assert "before" in topics(survivor.endpoint)
    with pytest.raises((RequestFailed, OSError, ConnectionClosed)):
        create_topic(survivor.endpoint, "never", 1, 1, timeout_ms=1500)
    first = next(node.id for node in shared_cluster.nodes if node.id != survivor.id)
    shared_cluster.start(first)
    after = eventually(lambda: describe_quorum(survivor.endpoint), lambda found: found.leader_id > 0)
    assert after.leader_epoch <= before.leader_epoch + 2, "pre-votes do not raise the epoch"
    create_topic(survivor.endpoint, "after", 1, 2)
    shared_cluster.up(port=None)
    for broker in addresses(shared_cluster):
        eventually(lambda broker=broker: {"before", "after"} <= topics(broker).keys())  # type: ignore[misc]
