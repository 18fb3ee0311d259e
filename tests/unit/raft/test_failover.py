"""How long a quorum is without a leader, when messages and syncs take time."""

from __future__ import annotations

import pytest

from strandline.raft.machine.settings import QuorumSettings
from unit.raft.timed_cluster import TimedCluster

_TRIALS = 25


def trials(voters: int) -> list[TimedCluster]:
    """Quorums that have had a leader for a while, each at another point of its fetch interval."""
    clusters = [TimedCluster(seed, voters) for seed in range(_TRIALS)]
    for cluster in clusters:
        for node in cluster.nodes.values():
            node.start()
        assert cluster.run_until_led() < 1000, "a new quorum has a leader within a second"
        cluster.run(2000 + cluster.draw.randrange(500))
    return clusters


@pytest.mark.parametrize("voters", [3, 5])
def test_a_killed_leader_is_replaced_within_half_a_second(voters: int) -> None:
    for cluster in trials(voters):
        killed = cluster.leader
        killed.kill()
        assert cluster.run_until_led(by_others_than=killed.id) < 500


@pytest.mark.parametrize("voters", [3, 5])
def test_an_unresponsive_leader_is_nearly_always_replaced_within_the_fetch_timeout(voters: int) -> None:
    waits = []
    for cluster in trials(voters):
        cluster.silent = [cluster.leader.id]
        waits.append(cluster.run_until_led(by_others_than=cluster.leader.id))
    assert sorted(waits)[_TRIALS * 9 // 10] <= 2000
    assert max(waits) <= 3000


def test_a_leader_that_resigns_is_replaced_within_a_fifth_of_a_second() -> None:
    for cluster in trials(3):
        resigning = cluster.leader
        resigning.perform(resigning.machine.resign(cluster.now_ms))
        assert cluster.run_until_led(by_others_than=resigning.id) < 200


def test_a_quorum_that_is_killed_as_a_whole_has_a_leader_soon_after_its_restart() -> None:
    for cluster in trials(3):
        for node in cluster.nodes.values():
            node.kill()
        for node in cluster.nodes.values():
            node.start()
        assert cluster.run_until_led() < 500


def test_a_killed_leader_that_restarts_soon_follows_its_successor_at_once() -> None:
    for cluster in trials(3):
        killed = cluster.leader
        killed.kill()
        cluster.run_until_led(by_others_than=killed.id)
        cluster.run(100)
        killed.start()
        began_ms = cluster.now_ms
        while killed.machine.leader_id < 0:
            cluster.run(5)
        assert cluster.now_ms - began_ms < 250


@pytest.mark.parametrize("fetch_timeout_ms", [200, 600])
def test_an_idle_quorum_keeps_its_leader_however_short_the_timeouts(fetch_timeout_ms: int) -> None:
    for seed in range(_TRIALS):
        cluster = TimedCluster(seed, 3, QuorumSettings(fetch_timeout_ms=fetch_timeout_ms))
        for node in cluster.nodes.values():
            node.start()
        cluster.run_until_led()
        cluster.run(1_000)
        epoch = cluster.leader.machine.epoch
        cluster.run(10_000)
        assert cluster.leader.machine.epoch == epoch
