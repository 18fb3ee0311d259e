"""Who is given how much time when deaths are noticed by evidence: predecessors, former leaders, and the doubted."""

from __future__ import annotations

import pytest

from strandline.controller.brokers import Brokers
from strandline.controller.elect_leaders import LeaderElections
from strandline.controller.sessions import FormerLeader, Sessions
from strandline.controller.settings import ControllerSettings
from strandline.model.errors import KafkaError
from strandline.protocol.messages.metadata_records import (
    PartitionChangeRecord,
)
from unit.controller.broker_lifecycle import FIRST, SECOND, THIRD, BrokerLifecycle, alone, registration
from unit.controller.machine_cluster import MachineCluster


def test_the_predecessor_of_the_controllers_own_broker_is_known_by_its_incarnation_and_dead() -> None:
    scene = MachineCluster(0, settings=ControllerSettings(node_id=100, cluster_id="cluster", incarnation_id=SECOND))
    life = BrokerLifecycle(scene)
    life.register(registration(broker_id=100, incarnation=FIRST))
    assert life.brokers.predecessor() is None, "it is fenced"
    life.beat(100)
    assert life.brokers.predecessor() is scene.view.broker(100)
    life.brokers.activate(now_ms=0)
    with pytest.raises(KafkaError, match="still alive"):
        life.register(registration(broker_id=100, incarnation=THIRD))
    life.register(registration(broker_id=100, incarnation=SECOND))
    life.beat(100)
    elsewhere = Brokers(scene.view, scene.settings)
    assert elsewhere.predecessor() is None
    elsewhere.activate(now_ms=0)
    assert elsewhere.sessions.expired(9000) == [100]


@pytest.mark.parametrize("failure_detection", [False, True])
def test_a_predecessor_whose_successor_takes_its_time_is_fenced_when_its_session_is_over(
    failure_detection: bool,
) -> None:
    settings = ControllerSettings(
        node_id=100, cluster_id="cluster", incarnation_id=SECOND, failure_detection=failure_detection
    )
    life = BrokerLifecycle(MachineCluster(0, settings=settings))
    life.register(registration(broker_id=100, incarnation=FIRST))
    life.beat(100)
    life.brokers.activate(now_ms=0)
    assert life.brokers.sessions.expired(8_999) == []
    assert life.brokers.sessions.expired(9_000) == [100]


def test_every_other_broker_must_be_heard_by_a_newly_active_controller() -> None:
    life = alone()
    life.register(registration(broker_id=1))
    life.beat(1)
    life.brokers.activate(now_ms=0)
    with pytest.raises(KafkaError, match="still alive"):
        life.register(registration(broker_id=1, incarnation=SECOND))


@pytest.mark.parametrize(("now_ms", "ends_ms"), [(3_000, 10_000), (8_000, 12_500)])
def test_who_led_before_has_been_silent_for_a_while_already_but_gets_half_a_session(now_ms: int, ends_ms: int) -> None:
    life = alone()
    for broker_id in (1, 2):
        life.register(registration(broker_id=broker_id))
        life.beat(broker_id)
    life.brokers.activate(now_ms, FormerLeader(2, heard_ms=1_000))
    assert life.brokers.sessions.expired(ends_ms - 1) == []
    assert life.brokers.sessions.expired(ends_ms) == [2]
    assert life.brokers.sessions.expired(now_ms + 9_000) == [1, 2]


@pytest.mark.parametrize(
    ("session_ms", "interval_ms", "ends_ms"),
    [(9_000, 2_000, 4_500), (9_000, 4_000, 8_000), (3_000, 2_000, 3_000)],
)
def test_who_led_before_is_given_the_time_of_two_heartbeats_but_no_longer_session_than_others(
    session_ms: int, interval_ms: int, ends_ms: int
) -> None:
    sessions = Sessions(session_ms, interval_ms)
    sessions.start(1, epoch=5, now_ms=20_000, heard_ms=1_000)
    assert sessions.next_deadline_ms() == 20_000 + ends_ms


def test_who_led_before_has_a_session_like_others_where_deaths_are_not_detected() -> None:
    scene = MachineCluster(1, settings=ControllerSettings(node_id=100, cluster_id="cluster", failure_detection=False))
    brokers = Brokers(scene.view, scene.settings)
    brokers.activate(8_000, FormerLeader(1, heard_ms=1_000))
    assert brokers.sessions.next_deadline_ms() == 17_000


@pytest.mark.parametrize(("on_evidence", "leader"), [(False, 2), (True, -1)])
def test_mere_evidence_of_a_death_elects_nobody_who_was_not_in_sync(on_evidence: bool, leader: int) -> None:
    scene = MachineCluster(2)
    topic_id = scene.topic("t", [1, 2])
    scene.configure("t", "unclean.leader.election.enable", "true")
    scene.write(PartitionChangeRecord(topic_id=topic_id, partition_id=0, isr=[1]))
    brokers = Brokers(scene.view, scene.settings)
    brokers.activate(now_ms=0)
    scene.decide(brokers.fence(1, on_evidence=on_evidence))
    assert scene.partition("t").leader == leader
    broker = scene.view.broker(1)
    assert broker is not None
    assert broker.fenced


@pytest.mark.parametrize("elr", [False, True])
def test_a_stale_replica_that_comes_while_a_death_is_in_doubt_does_not_lead_before_the_session_is_over(
    elr: bool,
) -> None:
    life = alone(elr=elr)
    for broker_id in (1, 2):
        life.register(registration(broker_id=broker_id))
        life.beat(broker_id)
    scene, brokers = life.scene, life.brokers
    leaders = LeaderElections(scene.view, scene.settings, brokers.doubts)
    scene.topic("t", [1, 2])
    scene.configure("t", "unclean.leader.election.enable", "true")
    scene.decide(brokers.fence(2))
    scene.decide(brokers.fence(1, on_evidence=True))
    life.now_ms = 50
    life.beat(2)
    assert scene.partition("t").leader == -1, "it came"
    scene.decide(leaders.elect_unclean())
    assert scene.partition("t").leader == -1, "somebody looked around"
    assert not brokers.doubts.end(8_999)
    assert brokers.doubts.end(9_000)
    scene.decide(leaders.elect_unclean())
    assert scene.partition("t").leader == 2


def test_a_broker_wrongly_held_dead_leads_again_what_it_led() -> None:
    life = alone()
    life.register(registration())
    life.beat()
    life.scene.topic("t", [1])
    life.scene.decide(life.brokers.fence(1, on_evidence=True))
    life.beat()
    assert (life.scene.partition("t").leader, life.scene.partition("t").leader_recovery_state) == (1, 0)


@pytest.mark.parametrize(("failure_detection", "leader"), [(True, -1), (False, 2)])
def test_a_new_controller_does_not_know_why_a_broker_was_fenced_and_doubts_it(
    failure_detection: bool, leader: int
) -> None:
    settings = ControllerSettings(node_id=100, cluster_id="cluster", failure_detection=failure_detection)
    scene = MachineCluster(2, settings=settings)
    scene.topic("t", [1, 2])
    scene.configure("t", "unclean.leader.election.enable", "true")
    before = Brokers(scene.view, settings)
    before.activate(now_ms=0)
    scene.decide(before.fence(2))
    scene.decide(before.fence(1, on_evidence=True))
    life = BrokerLifecycle(scene)
    life.brokers.activate(now_ms=0)
    life.beat(2)
    assert scene.partition("t").leader == leader
