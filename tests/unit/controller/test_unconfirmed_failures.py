"""Sessions of earlier processes and former leaders, and unconfirmed failures."""

from __future__ import annotations

from functools import partial

import pytest

from strandline.controller.brokers import Brokers
from strandline.controller.elect_leaders import LeaderElections
from strandline.controller.partition_changes import PartitionChanges
from strandline.controller.sessions import FormerLeader, Sessions
from strandline.controller.settings import ControllerSettings
from strandline.model.errors import KafkaError
from strandline.protocol.messages.metadata_records import (
    PartitionChangeRecord,
)
from unit.controller.broker_lifecycle import FIRST, SECOND, THIRD, BrokerLifecycle, registration, without_brokers
from unit.controller.machine_cluster import MachineCluster


def test_an_earlier_process_of_the_controllers_own_broker_is_known_by_its_incarnation() -> None:
    cluster = MachineCluster(0, settings=ControllerSettings(node_id=100, cluster_id="cluster", incarnation_id=SECOND))
    lifecycle = BrokerLifecycle(cluster)
    lifecycle.register(registration(broker_id=100, incarnation=FIRST))
    assert lifecycle.brokers.predecessor() is None, "it is fenced"
    lifecycle.heartbeat(100)
    assert lifecycle.brokers.predecessor() is cluster.view.broker(100)
    lifecycle.brokers.activate(now_ms=0)
    with pytest.raises(KafkaError, match="still alive"):
        lifecycle.register(registration(broker_id=100, incarnation=THIRD))
    lifecycle.register(registration(broker_id=100, incarnation=SECOND))
    lifecycle.heartbeat(100)
    elsewhere = Brokers(cluster.view, cluster.settings)
    assert elsewhere.predecessor() is None
    elsewhere.activate(now_ms=0)
    assert elsewhere.sessions.expired(9000) == [100]


@pytest.mark.parametrize("failure_detection", [False, True])
def test_an_earlier_process_is_fenced_when_its_session_times_out_before_the_successor_registers(
    failure_detection: bool,
) -> None:
    settings = ControllerSettings(
        node_id=100, cluster_id="cluster", incarnation_id=SECOND, failure_detection=failure_detection
    )
    lifecycle = BrokerLifecycle(MachineCluster(0, settings=settings))
    lifecycle.register(registration(broker_id=100, incarnation=FIRST))
    lifecycle.heartbeat(100)
    lifecycle.brokers.activate(now_ms=0)
    assert lifecycle.brokers.sessions.expired(8_999) == []
    assert lifecycle.brokers.sessions.expired(9_000) == [100]


def test_a_newly_active_controller_rejects_duplicates_of_every_other_broker() -> None:
    lifecycle = without_brokers()
    lifecycle.register(registration(broker_id=1))
    lifecycle.heartbeat(1)
    lifecycle.brokers.activate(now_ms=0)
    with pytest.raises(KafkaError, match="still alive"):
        lifecycle.register(registration(broker_id=1, incarnation=SECOND))


@pytest.mark.parametrize(("now_ms", "ends_ms"), [(3_000, 10_000), (8_000, 12_500)])
def test_the_session_of_the_former_leader_starts_at_the_last_contact_but_lasts_another_half(
    now_ms: int, ends_ms: int
) -> None:
    lifecycle = without_brokers()
    for broker_id in (1, 2):
        lifecycle.register(registration(broker_id=broker_id))
        lifecycle.heartbeat(broker_id)
    lifecycle.brokers.activate(now_ms, FormerLeader(2, last_contact_ms=1_000))
    assert lifecycle.brokers.sessions.expired(ends_ms - 1) == []
    assert lifecycle.brokers.sessions.expired(ends_ms) == [2]
    assert lifecycle.brokers.sessions.expired(now_ms + 9_000) == [1, 2]


@pytest.mark.parametrize(
    ("session_ms", "interval_ms", "ends_ms"),
    [(9_000, 2_000, 4_500), (9_000, 4_000, 8_000), (3_000, 2_000, 3_000)],
)
def test_the_session_of_the_former_leader_lasts_two_heartbeats_but_no_longer_than_others(
    session_ms: int, interval_ms: int, ends_ms: int
) -> None:
    sessions = Sessions(session_ms, interval_ms)
    sessions.start(1, epoch=5, now_ms=20_000, last_contact_ms=1_000)
    assert sessions.next_deadline_ms() == 20_000 + ends_ms


def test_the_former_leader_has_a_whole_session_where_failure_detection_is_disabled() -> None:
    cluster = MachineCluster(1, settings=ControllerSettings(node_id=100, cluster_id="cluster", failure_detection=False))
    brokers = Brokers(cluster.view, cluster.settings)
    brokers.activate(8_000, FormerLeader(1, last_contact_ms=1_000))
    assert brokers.sessions.next_deadline_ms() == 17_000


@pytest.mark.parametrize(("failed", "leader"), [(False, 2), (True, -1)])
def test_a_detected_failure_elects_no_unclean_leader(failed: bool, leader: int) -> None:
    cluster = MachineCluster(2)
    topic_id = cluster.topic("t", [1, 2])
    cluster.configure("t", "unclean.leader.election.enable", "true")
    cluster.write(PartitionChangeRecord(topic_id=topic_id, partition_id=0, isr=[1]))
    brokers = Brokers(cluster.view, cluster.settings)
    brokers.activate(now_ms=0)
    cluster.decide(brokers.fence(1, failed=failed))
    assert cluster.partition("t").leader == leader
    broker = cluster.view.broker(1)
    assert broker is not None
    assert broker.fenced


@pytest.mark.parametrize("elr", [False, True])
def test_a_stale_replica_does_not_lead_while_the_failure_of_the_leader_is_unconfirmed(
    elr: bool,
) -> None:
    lifecycle = without_brokers(elr=elr)
    for broker_id in (1, 2):
        lifecycle.register(registration(broker_id=broker_id))
        lifecycle.heartbeat(broker_id)
    cluster, brokers = lifecycle.cluster, lifecycle.brokers
    leaders = LeaderElections(
        cluster.view, partial(PartitionChanges, cluster.view, cluster.settings, brokers.unconfirmed)
    )
    cluster.topic("t", [1, 2])
    cluster.configure("t", "unclean.leader.election.enable", "true")
    cluster.decide(brokers.fence(2))
    cluster.decide(brokers.fence(1, failed=True))
    lifecycle.now_ms = 50
    lifecycle.heartbeat(2)
    assert cluster.partition("t").leader == -1, "the stale replica was unfenced"
    cluster.decide(leaders.elect_unclean())
    assert cluster.partition("t").leader == -1, "the periodic task ran"
    assert not brokers.unconfirmed.expire(8_999)
    assert brokers.unconfirmed.expire(9_000)
    cluster.decide(leaders.elect_unclean())
    assert cluster.partition("t").leader == 2


def test_a_broker_wrongly_detected_as_failed_leads_its_partitions_again() -> None:
    lifecycle = without_brokers()
    lifecycle.register(registration())
    lifecycle.heartbeat()
    lifecycle.cluster.topic("t", [1])
    lifecycle.cluster.decide(lifecycle.brokers.fence(1, failed=True))
    lifecycle.heartbeat()
    assert (lifecycle.cluster.partition("t").leader, lifecycle.cluster.partition("t").leader_recovery_state) == (1, 0)


@pytest.mark.parametrize(("failure_detection", "leader"), [(True, -1), (False, 2)])
def test_for_a_new_active_controller_every_fenced_broker_is_an_unconfirmed_failure(
    failure_detection: bool, leader: int
) -> None:
    settings = ControllerSettings(node_id=100, cluster_id="cluster", failure_detection=failure_detection)
    cluster = MachineCluster(2, settings=settings)
    cluster.topic("t", [1, 2])
    cluster.configure("t", "unclean.leader.election.enable", "true")
    before = Brokers(cluster.view, settings)
    before.activate(now_ms=0)
    cluster.decide(before.fence(2))
    cluster.decide(before.fence(1, failed=True))
    lifecycle = BrokerLifecycle(cluster)
    lifecycle.brokers.activate(now_ms=0)
    lifecycle.heartbeat(2)
    assert cluster.partition("t").leader == leader
