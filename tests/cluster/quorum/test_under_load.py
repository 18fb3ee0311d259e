"""Nodes that are killed, paused and restarted while metadata is written: nothing that was acknowledged is lost."""

from __future__ import annotations

import time

import pytest

from cluster.handlers.talk import Closed
from cluster.quorum.asking import Refused, create_topic, eventually, live_brokers, quorum, topics
from cluster.quorum.inventory import inventory
from cluster.quorum.load import MetadataLoad
from strandline.testing import Cluster

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("quorum")]


def addresses(cluster: Cluster) -> list[str]:
    return [node.endpoint for node in cluster.nodes]


def leader_of(cluster: Cluster) -> int:
    """The active controller, as one of the brokers that run tells it."""
    asked = [node.endpoint for node in cluster.running()]
    return eventually(lambda: quorum(asked[0]).leader_id, lambda found: found > 0)


def test_leaders_and_followers_are_killed_in_turn(lasting: Cluster) -> None:
    with MetadataLoad(addresses(lasting), "killed") as load:
        load.wait_until_in_flow()
        for turn in range(4):
            leader = leader_of(lasting)
            victim = leader if turn % 2 == 0 else leader % 3 + 1
            lasting.kill(victim)
            load.wait_until_in_flow()
            lasting.start(victim)
            load.wait_until_in_flow()
    load.check()
    assert len(load.acked) > 160


def test_everybody_is_killed_at_once_again_and_again(lasting: Cluster) -> None:
    with MetadataLoad(addresses(lasting), "all-killed") as load:
        for _ in range(2):
            load.wait_until_in_flow(40)
            for node in lasting.nodes:
                lasting.kill(node.id)
            lasting.up(port=None)
        load.wait_until_in_flow()
    load.check()
    before = eventually(lambda: inventory(*addresses(lasting)))
    for node in lasting.nodes:
        lasting.kill(node.id)
    lasting.up(port=None)
    for broker in addresses(lasting):
        eventually(lambda broker=broker: inventory(broker, *addresses(lasting)), lambda found: found == before)  # type: ignore[misc]


def test_a_leader_that_is_paused_is_replaced_and_changes_nothing_when_it_wakes(lasting: Cluster) -> None:
    with MetadataLoad(addresses(lasting), "paused") as load:
        load.wait_until_in_flow()
        silent = leader_of(lasting)
        lasting.pause(silent)
        others = [node.endpoint for node in lasting.nodes if node.id != silent]
        eventually(lambda: quorum(others[0]).leader_id, lambda found: found not in (silent, -1))
        load.wait_until_in_flow(5)
        epoch = eventually(lambda: quorum(others[0])).leader_epoch
        lasting.resume(silent)
        load.wait_until_in_flow()
    load.check()
    lasting.wait_until_healthy()
    assert eventually(lambda: quorum(others[0])).leader_epoch == epoch, (
        "it did not disturb the one that had been elected"
    )


def test_a_rolling_restart_keeps_metadata_available(lasting: Cluster) -> None:
    with MetadataLoad(addresses(lasting), "rolling") as load:
        load.wait_until_in_flow()
        for node in lasting.nodes:
            lasting.restart(node.id)
            load.wait_until_in_flow()
            eventually(lambda: live_brokers(addresses(lasting)[0]) == {1, 2, 3})
    load.check()
    lasting.wait_until_healthy()
    assert load.longest_gap_s < 6.0, "a leader that leaves in good order is replaced at once"


def test_a_minority_elects_nobody_and_still_tells_what_it_knows(lasting: Cluster) -> None:
    create_topic(addresses(lasting)[0], "before", 2, 3)
    eventually(lambda: all("before" in topics(broker) for broker in addresses(lasting)))
    survivor = next(node for node in lasting.nodes if node.id != leader_of(lasting))
    before = eventually(lambda: quorum(survivor.endpoint))
    for node in lasting.nodes:
        if node.id != survivor.id:
            lasting.kill(node.id)
    ends = time.monotonic() + 4
    while time.monotonic() < ends:
        with pytest.raises((Refused, OSError, Closed)):
            found = quorum(survivor.endpoint, timeout_s=1.0)
            raise AssertionError(f"somebody leads: {found}")
        assert "before" in topics(survivor.endpoint)
    with pytest.raises((Refused, OSError, Closed)):
        create_topic(survivor.endpoint, "never", 1, 1, timeout_ms=1500)
    first = next(node.id for node in lasting.nodes if node.id != survivor.id)
    lasting.start(first)
    after = eventually(lambda: quorum(survivor.endpoint), lambda found: found.leader_id > 0)
    assert after.leader_epoch <= before.leader_epoch + 2, "pre-votes alone raise no epoch"
    create_topic(survivor.endpoint, "after", 1, 2)
    lasting.up(port=None)
    for broker in addresses(lasting):
        eventually(lambda broker=broker: {"before", "after"} <= topics(broker).keys())  # type: ignore[misc]
