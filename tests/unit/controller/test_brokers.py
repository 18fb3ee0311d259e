"""A broker's life: registered, unfenced, heard, leaving, fenced, gone."""

from __future__ import annotations

from typing import Any

import pytest

from strandline.controller.brokers import Brokers
from strandline.controller.decisions import finish
from strandline.model.errors import ErrorCode, KafkaError
from strandline.model.ids import Uuid
from strandline.protocol.messages.brokers import (
    BrokerHeartbeatRequest,
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
from unit.controller.broker_lifecycle import FIRST, SECOND, BrokerLifecycle, alone, registration
from unit.controller.machine_cluster import MachineCluster, directory


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
    scene = MachineCluster(0)
    scene.register(2)
    with pytest.raises(KafkaError) as refusal:
        BrokerLifecycle(scene).register(registration(**fields))
    assert refusal.value.code is code
    assert scene.view.broker(1) is None


def test_a_broker_that_comes_back_without_its_memory_loses_its_place_in_sync_in_the_same_batch() -> None:
    scene = MachineCluster(2)
    scene.topic("t", [1, 2])
    life = BrokerLifecycle(scene)
    decision = finish(life.brokers.register(registration(previous_broker_epoch=-1), scene.image.end_offset, 0))
    assert [type(record) for record in decision.records] == [PartitionChangeRecord, RegisterBrokerRecord]
    assert decision.answer.broker_epoch == scene.image.end_offset + 1, "the offset of its own record"
    assert decision.atomic
    scene.write(*decision.records)
    found = scene.partition("t")
    assert (found.leader, found.isr, found.elr) == (2, (2,), ())


def test_a_broker_that_kept_its_memory_is_in_sync_with_nobody_but_stays_eligible() -> None:
    scene = MachineCluster(2)
    scene.topic("t", [1, 2], [1, 2])
    scene.configure("t", "min.insync.replicas", "2")
    life = BrokerLifecycle(scene)
    life.register(registration(previous_broker_epoch=scene.epoch(1)))
    found = scene.partition("t")
    assert (found.leader, found.isr, found.elr) == (2, (2,), (1,))


def test_a_broker_that_comes_back_without_one_of_its_directories_is_not_eligible() -> None:
    scene = MachineCluster(2)
    scene.topic("t", [1, 2], [1, 2])
    scene.configure("t", "min.insync.replicas", "2")
    life = BrokerLifecycle(scene)
    life.register(registration(previous_broker_epoch=scene.epoch(1), log_dirs=[directory(7)]))
    found = scene.partition("t")
    assert (found.leader, found.isr, found.elr) == (2, (2,), ())


def test_what_was_in_a_failed_directory_is_not_eligible() -> None:
    scene = MachineCluster(1)
    life = BrokerLifecycle(scene)
    life.register(registration(2, log_dirs=[directory(2), directory(5)]))
    life.beat(2)
    topic_id = scene.topic("t", [2, 1])
    scene.configure("t", "min.insync.replicas", "2")
    scene.write(PartitionChangeRecord(topic_id=topic_id, partition_id=0, directories=[directory(5), directory(1)]))
    life.beat(2, offline_log_dirs=[directory(5)])
    found = scene.partition("t")
    assert (found.leader, found.isr, found.elr) == (1, (1,), ())


def test_a_broker_whose_predecessor_was_never_fenced_leads_nothing_while_it_starts() -> None:
    scene = MachineCluster(2, elr=False)
    scene.topic("t", [1, 2])
    life = BrokerLifecycle(scene)
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
    scene = MachineCluster(2)
    scene.topic("t", [1, 2])
    life = BrokerLifecycle(scene)
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


def test_a_broker_that_wants_to_be_fenced_is() -> None:
    scene = MachineCluster(2)
    scene.topic("t", [1, 2])
    life = BrokerLifecycle(scene)
    assert life.told(1, want_fence=True) == (True, True, False)
    assert scene.partition("t").isr == (2,)


def test_controlled_shutdown_moves_leaders_first_and_ends_when_all_others_have_seen_it() -> None:
    scene = MachineCluster(2)
    scene.topic("t", [1, 2])
    life = BrokerLifecycle(scene)
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
    scene = MachineCluster(2)
    scene.topic("t", [2, 1])
    life = BrokerLifecycle(scene)
    assert life.told(1, want_shut_down=True) == (True, True, True)
    assert scene.partition("t").isr == (2,)
    assert life.told(1, want_shut_down=True) == (True, True, True)


def test_an_unfenced_broker_brings_a_leader_to_partitions_that_have_none() -> None:
    scene = MachineCluster(2, elr=False)
    scene.topic("t", [1])
    life = BrokerLifecycle(scene)
    scene.decide(life.brokers.fence(1))
    assert (scene.partition("t").leader, scene.partition("t").isr) == (-1, (1,))
    life.beat(1)
    assert (scene.partition("t").leader, scene.partition("t").leader_epoch) == (1, 2)


def test_cordoned_directories_are_recorded_when_they_change() -> None:
    scene = MachineCluster(0)
    life = BrokerLifecycle(scene)
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
    scene = MachineCluster(1)
    life = BrokerLifecycle(scene)
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
    scene = MachineCluster(0, elr=False)
    life = BrokerLifecycle(scene)
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
    scene = MachineCluster(2)
    scene.topic("t", [1, 2])
    life = BrokerLifecycle(scene)
    answer = scene.decide(life.brokers.unregister(UnregisterBrokerRequest(broker_id=1)))
    assert answer.error_code == 0
    assert scene.view.broker(1) is None
    assert (scene.partition("t").leader, scene.partition("t").replicas) == (2, (1, 2))
    assert scene.partition("t").elr == (), "whoever registers under this id next is somebody else"
    with pytest.raises(KafkaError) as refusal:
        finish(life.brokers.unregister(UnregisterBrokerRequest(broker_id=1)))
    assert refusal.value.code is ErrorCode.BROKER_ID_NOT_REGISTERED


def test_a_controller_registers_its_listeners_and_features() -> None:
    scene = MachineCluster(0)
    request = ControllerRegistrationRequest(
        controller_id=100, incarnation_id=FIRST, listeners=[Listener(name="CONTROLLER", host="h", port=9093)]
    )
    scene.decide(Brokers(scene.view, scene.settings).register_controller(request))
    controller = scene.view.controller(100)
    assert controller is not None
    assert controller.endpoints[0].port == 9093


def test_controllers_do_not_register_where_metadata_cannot_say_so() -> None:
    scene = MachineCluster(0)
    scene.write(FeatureLevelRecord(name="metadata.version", feature_level=14))
    with pytest.raises(KafkaError) as refusal:
        Brokers(scene.view, scene.settings).register_controller(ControllerRegistrationRequest(controller_id=100))
    assert refusal.value.code is ErrorCode.UNSUPPORTED_VERSION


def test_a_broker_without_memory_that_held_very_many_replicas_registers_in_many_batches() -> None:
    scene = MachineCluster(2)
    for topic in range(11):
        scene.topic(f"t{topic}", *[[1, 2]] * 1000)
    decision = finish(Brokers(scene.view, scene.settings).register(registration(), scene.image.end_offset, 0))
    assert len(decision.records) == 11_001
    assert not decision.atomic
    assert isinstance(decision.records[-1], RegisterBrokerRecord)


def test_a_failed_broker_that_led_thousands_is_a_walk_in_many_steps() -> None:
    scene = MachineCluster(2)
    scene.topic("t", *[[1, 2]] * 3000)
    steps = Brokers(scene.view, scene.settings).fence(1)
    breaths = sum(1 for _ in steps)
    assert breaths >= 15
