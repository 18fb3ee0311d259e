"""A broker's life: registered, unfenced, heard, leaving, fenced, gone."""

from __future__ import annotations

from typing import Any

import pytest

from strandline.controller.brokers import Brokers
from strandline.controller.decisions import finish
from strandline.controller.leaders import Leaders
from strandline.controller.sessions import FormerLeader, Sessions
from strandline.controller.settings import ControllerSettings
from strandline.metadata.features import SUPPORTED_FEATURES
from strandline.model.errors import ErrorCode, KafkaError
from strandline.model.ids import Uuid
from strandline.protocol.messages.brokers import (
    BrokerHeartbeatRequest,
    BrokerHeartbeatResponse,
    BrokerRegistrationRequest,
    ControllerRegistrationRequest,
    Feature,
    Listener,
)
from strandline.protocol.messages.cluster import UnregisterBrokerRequest
from strandline.protocol.messages.metadata_records import (
    BrokerRegistrationChangeRecord,
    FeatureLevelRecord,
    PartitionChangeRecord,
    RegisterBrokerRecord,
)
from unit.controller.scene import Scene, directory

FIRST, SECOND, THIRD = Uuid.of(8, 1), Uuid.of(8, 2), Uuid.of(8, 3)


def registration(broker_id: int = 1, incarnation: Uuid = FIRST, **fields: Any) -> BrokerRegistrationRequest:
    given: dict[str, Any] = {
        "broker_id": broker_id,
        "cluster_id": "cluster",
        "incarnation_id": incarnation,
        "listeners": [Listener(name="PLAINTEXT", host="h", port=9092)],
        "features": [
            Feature(name=name, min_supported_version=low, max_supported_version=high)
            for name, (low, high) in SUPPORTED_FEATURES.items()
        ],
        "rack": "r",
        "log_dirs": [directory(broker_id)],
    }
    return BrokerRegistrationRequest(**{**given, **fields})


class Life:
    """A scene with a clock."""

    def __init__(self, scene: Scene) -> None:
        self.scene = scene
        self.brokers = Brokers(scene.view, scene.settings)
        self.now_ms = 0

    def register(self, request: BrokerRegistrationRequest) -> int:
        steps = self.brokers.register(request, self.scene.image.end_offset, self.now_ms)
        return self.scene.decide(steps).broker_epoch

    def beat(self, broker_id: int = 1, **fields: Any) -> BrokerHeartbeatResponse:
        given: dict[str, Any] = {
            "broker_id": broker_id,
            "broker_epoch": self.scene.epoch(broker_id),
            "current_metadata_offset": self.scene.image.end_offset - 1,
        }
        request = BrokerHeartbeatRequest(**{**given, **fields})
        return self.scene.decide(self.brokers.heartbeat(request, self.now_ms))

    def told(self, broker_id: int = 1, **fields: Any) -> tuple[bool, bool, bool]:
        answer = self.beat(broker_id, **fields)
        return answer.is_caught_up, answer.is_fenced, answer.should_shut_down


def alone(**options: Any) -> Life:
    return Life(Scene(0, **options))


def test_a_broker_registers_fenced_and_its_epoch_is_the_offset_of_its_record() -> None:
    life = alone()
    offset = life.scene.image.end_offset
    assert life.register(registration()) == offset
    broker = life.scene.view.broker(1)
    assert broker is not None
    assert (broker.epoch, broker.fenced, broker.rack, broker.directories) == (offset, True, "r", (directory(1),))
    assert broker.endpoints[0].port == 9092


def test_it_is_unfenced_once_it_has_seen_its_own_registration() -> None:
    life = alone()
    epoch = life.register(registration())
    assert life.told(current_metadata_offset=epoch - 1) == (False, True, False)
    assert life.told(want_fence=True) == (True, True, False)
    assert life.told() == (True, False, False)
    assert life.told() == (True, False, False)


def test_registering_again_in_the_same_life_keeps_epoch_and_state() -> None:
    life = alone()
    epoch = life.register(registration())
    life.beat()
    assert life.register(registration(rack="moved")) == epoch
    broker = life.scene.view.broker(1)
    assert broker is not None
    assert (broker.fenced, broker.rack) == (False, "moved")


def test_a_second_process_under_the_same_id_is_refused_while_the_first_is_heard() -> None:
    life = alone()
    first = life.register(registration())
    life.beat()
    life.now_ms = 8999
    with pytest.raises(KafkaError, match="still alive") as refusal:
        life.register(registration(incarnation=SECOND))
    assert refusal.value.code is ErrorCode.DUPLICATE_BROKER_REGISTRATION
    life.now_ms = 9000
    assert life.register(registration(incarnation=SECOND)) > first


def test_one_that_only_registered_keeps_nobody_else_from_it() -> None:
    life = alone()
    first = life.register(registration())
    assert life.register(registration(incarnation=SECOND)) > first


def test_a_broker_that_left_in_good_order_may_come_back_at_once() -> None:
    life = alone()
    life.register(registration())
    life.beat()
    life.scene.topic("t", [1])
    assert life.told(want_shut_down=True) == (True, False, False)
    assert life.told(want_shut_down=True) == (True, True, True)
    epoch = life.scene.epoch(1)
    assert life.register(registration(incarnation=SECOND, previous_broker_epoch=epoch)) > epoch
    assert life.scene.partition("t").elr == (1,)
    assert life.told() == (True, False, False)
    assert (life.scene.partition("t").leader, life.scene.partition("t").isr) == (1, (1,))


def test_the_predecessor_of_the_controllers_own_broker_is_known_by_its_incarnation_and_dead() -> None:
    scene = Scene(0, settings=ControllerSettings(node_id=100, cluster_id="cluster", incarnation_id=SECOND))
    life = Life(scene)
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


@pytest.mark.parametrize("death_detection", [False, True])
def test_a_predecessor_whose_successor_takes_its_time_is_fenced_when_its_session_is_over(death_detection: bool) -> None:
    settings = ControllerSettings(
        node_id=100, cluster_id="cluster", incarnation_id=SECOND, death_detection=death_detection
    )
    life = Life(Scene(0, settings=settings))
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
    scene = Scene(1, settings=ControllerSettings(node_id=100, cluster_id="cluster", death_detection=False))
    brokers = Brokers(scene.view, scene.settings)
    brokers.activate(8_000, FormerLeader(1, heard_ms=1_000))
    assert brokers.sessions.next_deadline_ms() == 17_000


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"cluster_id": "other"}, ErrorCode.INCONSISTENT_CLUSTER_ID),
        ({"log_dirs": []}, ErrorCode.INVALID_REGISTRATION),
        ({"log_dirs": [directory(1), directory(1)]}, ErrorCode.INVALID_REGISTRATION),
        ({"log_dirs": [Uuid.of(0, 5)]}, ErrorCode.INVALID_REGISTRATION),
        ({"log_dirs": [directory(2)]}, ErrorCode.INVALID_REGISTRATION),
        ({"features": []}, ErrorCode.INVALID_REGISTRATION),
        ({"features": [Feature(name="group.version")]}, ErrorCode.INVALID_REGISTRATION),
        (
            {"features": [Feature(name="metadata.version", min_supported_version=7, max_supported_version=30)]},
            ErrorCode.UNSUPPORTED_VERSION,
        ),
        ({"is_migrating_zk_broker": True}, ErrorCode.BROKER_ID_NOT_REGISTERED),
        (
            {"features": [Feature(name="metadata.version", min_supported_version=7, max_supported_version=29)]},
            ErrorCode.UNSUPPORTED_VERSION,
        ),
    ],
)
def test_a_registration_that_does_not_fit_the_cluster_is_refused(fields: dict[str, Any], code: ErrorCode) -> None:
    scene = Scene(0)
    scene.register(2)
    with pytest.raises(KafkaError) as refusal:
        Life(scene).register(registration(**fields))
    assert refusal.value.code is code
    assert scene.view.broker(1) is None


def test_a_broker_that_comes_back_without_its_memory_loses_its_place_in_sync_in_the_same_batch() -> None:
    scene = Scene(2)
    scene.topic("t", [1, 2])
    life = Life(scene)
    decision = finish(life.brokers.register(registration(previous_broker_epoch=-1), scene.image.end_offset, 0))
    assert [type(record) for record in decision.records] == [PartitionChangeRecord, RegisterBrokerRecord]
    assert decision.answer.broker_epoch == scene.image.end_offset + 1, "the offset of its own record"
    assert decision.atomic
    scene.write(*decision.records)
    found = scene.partition("t")
    assert (found.leader, found.isr, found.elr) == (2, (2,), ())


def test_a_broker_that_kept_its_memory_is_in_sync_with_nobody_but_stays_eligible() -> None:
    scene = Scene(2)
    scene.topic("t", [1, 2], [1, 2])
    scene.configure("t", "min.insync.replicas", "2")
    life = Life(scene)
    life.register(registration(previous_broker_epoch=scene.epoch(1)))
    found = scene.partition("t")
    assert (found.leader, found.isr, found.elr) == (2, (2,), (1,))


def test_a_broker_that_comes_back_without_one_of_its_directories_is_not_eligible() -> None:
    scene = Scene(2)
    scene.topic("t", [1, 2], [1, 2])
    scene.configure("t", "min.insync.replicas", "2")
    life = Life(scene)
    life.register(registration(previous_broker_epoch=scene.epoch(1), log_dirs=[directory(7)]))
    found = scene.partition("t")
    assert (found.leader, found.isr, found.elr) == (2, (2,), ())


def test_what_was_in_a_failed_directory_is_not_eligible() -> None:
    scene = Scene(1)
    life = Life(scene)
    life.register(registration(2, log_dirs=[directory(2), directory(5)]))
    life.beat(2)
    topic_id = scene.topic("t", [2, 1])
    scene.configure("t", "min.insync.replicas", "2")
    scene.write(PartitionChangeRecord(topic_id=topic_id, partition_id=0, directories=[directory(5), directory(1)]))
    life.beat(2, offline_log_dirs=[directory(5)])
    found = scene.partition("t")
    assert (found.leader, found.isr, found.elr) == (1, (1,), ())


def test_a_broker_whose_predecessor_was_never_fenced_leads_nothing_while_it_starts() -> None:
    scene = Scene(2, elr=False)
    scene.topic("t", [1, 2])
    life = Life(scene)
    life.register(registration(previous_broker_epoch=scene.epoch(1)))
    assert (scene.partition("t").leader, scene.partition("t").isr) == (2, (2,))


def test_only_the_current_epoch_of_a_broker_is_heard() -> None:
    life = alone()
    epoch = life.register(registration())
    for wrong in (epoch - 1, epoch + 1):
        with pytest.raises(KafkaError) as refusal:
            life.beat(broker_epoch=wrong)
        assert refusal.value.code is ErrorCode.STALE_BROKER_EPOCH
    with pytest.raises(KafkaError) as refusal:
        finish(life.brokers.heartbeat(BrokerHeartbeatRequest(broker_id=2, broker_epoch=0), 0))
    assert refusal.value.code is ErrorCode.STALE_BROKER_EPOCH


def test_a_silent_broker_is_fenced_after_its_partitions_have_moved() -> None:
    scene = Scene(2)
    scene.topic("t", [1, 2])
    life = Life(scene)
    life.beat(1)
    life.now_ms = 9000
    assert life.brokers.sessions.expired(8999) == []
    assert life.brokers.sessions.expired(9000) == [1]
    records = finish(life.brokers.fence(1)).records
    assert [type(record) for record in records] == [PartitionChangeRecord, BrokerRegistrationChangeRecord]
    scene.write(*records)
    assert (scene.partition("t").leader, scene.partition("t").isr) == (2, (2,))
    broker = scene.view.broker(1)
    assert broker is not None
    assert broker.fenced
    assert life.brokers.sessions.expired(99_999) == []
    assert finish(life.brokers.fence(1)).records == []


@pytest.mark.parametrize(("on_evidence", "leader"), [(False, 2), (True, -1)])
def test_mere_evidence_of_a_death_elects_nobody_who_was_not_in_sync(on_evidence: bool, leader: int) -> None:
    scene = Scene(2)
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
    leaders = Leaders(scene.view, scene.settings, brokers.doubts)
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


@pytest.mark.parametrize(("death_detection", "leader"), [(True, -1), (False, 2)])
def test_a_new_controller_does_not_know_why_a_broker_was_fenced_and_doubts_it(
    death_detection: bool, leader: int
) -> None:
    settings = ControllerSettings(node_id=100, cluster_id="cluster", death_detection=death_detection)
    scene = Scene(2, settings=settings)
    scene.topic("t", [1, 2])
    scene.configure("t", "unclean.leader.election.enable", "true")
    before = Brokers(scene.view, settings)
    before.activate(now_ms=0)
    scene.decide(before.fence(2))
    scene.decide(before.fence(1, on_evidence=True))
    life = Life(scene)
    life.brokers.activate(now_ms=0)
    life.beat(2)
    assert scene.partition("t").leader == leader


def test_a_broker_that_wants_to_be_fenced_is() -> None:
    scene = Scene(2)
    scene.topic("t", [1, 2])
    life = Life(scene)
    assert life.told(1, want_fence=True) == (True, True, False)
    assert scene.partition("t").isr == (2,)


def test_controlled_shutdown_moves_leaders_first_and_ends_when_all_others_have_seen_it() -> None:
    scene = Scene(2)
    scene.topic("t", [1, 2])
    life = Life(scene)
    life.beat(2)
    assert life.told(1, want_shut_down=True) == (True, False, False)
    moved_at = scene.image.end_offset - 1
    assert (scene.partition("t").leader, scene.partition("t").isr) == (2, (2,))
    assert life.told(1, want_shut_down=True) == (True, False, False), "broker 2 has not seen the move"
    life.beat(2, current_metadata_offset=moved_at)
    assert life.told(1, want_shut_down=True) == (True, True, True)
    broker = scene.view.broker(1)
    assert broker is not None
    assert broker.fenced


def test_a_broker_that_leads_nothing_may_go_at_once() -> None:
    scene = Scene(2)
    scene.topic("t", [2, 1])
    life = Life(scene)
    assert life.told(1, want_shut_down=True) == (True, True, True)
    assert scene.partition("t").isr == (2,)
    assert life.told(1, want_shut_down=True) == (True, True, True)


def test_an_unfenced_broker_brings_a_leader_to_partitions_that_have_none() -> None:
    scene = Scene(2, elr=False)
    scene.topic("t", [1])
    life = Life(scene)
    scene.decide(life.brokers.fence(1))
    assert (scene.partition("t").leader, scene.partition("t").isr) == (-1, (1,))
    life.beat(1)
    assert (scene.partition("t").leader, scene.partition("t").leader_epoch) == (1, 2)


def test_cordoned_directories_are_recorded_when_they_change() -> None:
    scene = Scene(0)
    life = Life(scene)
    life.register(registration(log_dirs=[directory(1), directory(5)]))
    life.beat(cordoned_log_dirs=[])
    before = scene.image.end_offset
    life.beat(cordoned_log_dirs=[])
    assert scene.image.end_offset == before
    life.beat(cordoned_log_dirs=[directory(5)])
    broker = scene.view.broker(1)
    assert broker is not None
    assert broker.cordoned_directories == (directory(5),)


def test_a_failed_directory_leaves_the_registration_after_its_replicas_have_left_the_isr() -> None:
    scene = Scene(1)
    life = Life(scene)
    life.register(registration(2, log_dirs=[directory(2), directory(5)]))
    life.beat(2)
    first, second = scene.topic("first", [2, 1]), scene.topic("second", [2, 1])
    for topic_id, kept_in in ((first, directory(2)), (second, directory(5))):
        scene.write(
            PartitionChangeRecord(topic_id=topic_id, partition_id=0, directories=[kept_in, directory(1)]),
        )
    assert life.told(2, offline_log_dirs=[directory(5)], want_shut_down=True) == (True, False, False)
    assert (scene.partition("first").leader, scene.partition("first").isr) == (2, (2, 1))
    assert (scene.partition("second").leader, scene.partition("second").isr) == (1, (1,))
    broker = scene.view.broker(2)
    assert broker is not None
    assert (broker.directories, broker.in_controlled_shutdown) == ((directory(2),), False)
    before = scene.image.end_offset
    life.beat(2, offline_log_dirs=[directory(5)])
    assert scene.image.end_offset == before, "it is known by now"


def test_a_fenced_broker_with_a_failed_directory_does_not_lead_what_was_in_it() -> None:
    scene = Scene(0, elr=False)
    life = Life(scene)
    life.register(registration(2, log_dirs=[directory(2), directory(5)]))
    life.beat(2)
    topic_id = scene.topic("t", [2])
    scene.write(PartitionChangeRecord(topic_id=topic_id, partition_id=0, directories=[directory(5)]))
    scene.decide(life.brokers.fence(2))
    assert life.told(2, offline_log_dirs=[directory(5)]) == (True, True, False)
    assert life.told(2, offline_log_dirs=[directory(5)]) == (True, False, False)
    assert scene.partition("t").leader == -1


def test_a_heartbeat_that_waits_in_line_keeps_its_broker_alive() -> None:
    life = alone()
    epoch = life.register(registration())
    life.brokers.heard(BrokerHeartbeatRequest(broker_id=1, broker_epoch=epoch), 0)
    assert life.brokers.sessions.next_deadline_ms() is None, "it begins no session"
    life.beat()
    life.brokers.heard(BrokerHeartbeatRequest(broker_id=1, broker_epoch=epoch - 1), 5000)
    assert life.brokers.sessions.next_deadline_ms() == 9000, "a ghost renews none"
    life.brokers.heard(BrokerHeartbeatRequest(broker_id=1, broker_epoch=epoch), 5000)
    assert life.brokers.sessions.next_deadline_ms() == 14_000


def test_unregistering_takes_a_broker_out_of_every_isr() -> None:
    scene = Scene(2)
    scene.topic("t", [1, 2])
    life = Life(scene)
    answer = scene.decide(life.brokers.unregister(UnregisterBrokerRequest(broker_id=1)))
    assert answer.error_code == 0
    assert scene.view.broker(1) is None
    assert (scene.partition("t").leader, scene.partition("t").replicas) == (2, (1, 2))
    assert scene.partition("t").elr == (), "whoever registers under this id next is somebody else"
    with pytest.raises(KafkaError) as refusal:
        finish(life.brokers.unregister(UnregisterBrokerRequest(broker_id=1)))
    assert refusal.value.code is ErrorCode.BROKER_ID_NOT_REGISTERED


def test_a_controller_registers_its_listeners_and_features() -> None:
    scene = Scene(0)
    request = ControllerRegistrationRequest(
        controller_id=100, incarnation_id=FIRST, listeners=[Listener(name="CONTROLLER", host="h", port=9093)]
    )
    scene.decide(Brokers(scene.view, scene.settings).register_controller(request))
    controller = scene.view.controller(100)
    assert controller is not None
    assert controller.endpoints[0].port == 9093


def test_controllers_do_not_register_where_metadata_cannot_say_so() -> None:
    scene = Scene(0)
    scene.write(FeatureLevelRecord(name="metadata.version", feature_level=14))
    with pytest.raises(KafkaError) as refusal:
        Brokers(scene.view, scene.settings).register_controller(ControllerRegistrationRequest(controller_id=100))
    assert refusal.value.code is ErrorCode.UNSUPPORTED_VERSION


def test_a_broker_without_memory_that_held_very_many_replicas_registers_in_many_batches() -> None:
    scene = Scene(2)
    for topic in range(11):
        scene.topic(f"t{topic}", *[[1, 2]] * 1000)
    decision = finish(Brokers(scene.view, scene.settings).register(registration(), scene.image.end_offset, 0))
    assert len(decision.records) == 11_001
    assert not decision.atomic
    assert isinstance(decision.records[-1], RegisterBrokerRecord)


def test_a_failed_broker_that_led_thousands_is_a_walk_in_many_steps() -> None:
    scene = Scene(2)
    scene.topic("t", *[[1, 2]] * 3000)
    steps = Brokers(scene.view, scene.settings).fence(1)
    breaths = sum(1 for _ in steps)
    assert breaths >= 15
