"""The lifecycle of a broker: registration, heartbeats, controlled shutdown, fencing, unregistration."""

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
from unit.controller.broker_lifecycle import FIRST, SECOND, BrokerLifecycle, registration, without_brokers
from unit.controller.machine_cluster import MachineCluster, directory


def test_a_broker_registers_fenced_and_its_epoch_is_the_offset_of_its_record() -> None:
    lifecycle = without_brokers()
    offset = lifecycle.cluster.image.end_offset
    assert lifecycle.register(registration()) == offset
    broker = lifecycle.cluster.view.broker(1)
    assert broker is not None
    assert (broker.epoch, broker.fenced, broker.rack, broker.directories) == (offset, True, "r", (directory(1),))
    assert broker.endpoints[0].port == 9092


def test_a_broker_is_unfenced_once_it_has_replayed_its_own_registration() -> None:
    lifecycle = without_brokers()
    epoch = lifecycle.register(registration())
    assert lifecycle.heartbeat_flags(current_metadata_offset=epoch - 1) == (False, True, False)
    assert lifecycle.heartbeat_flags(want_fence=True) == (True, True, False)
    assert lifecycle.heartbeat_flags() == (True, False, False)
    assert lifecycle.heartbeat_flags() == (True, False, False)


def test_registering_the_same_incarnation_again_keeps_epoch_and_state() -> None:
    lifecycle = without_brokers()
    epoch = lifecycle.register(registration())
    lifecycle.heartbeat()
    assert lifecycle.register(registration(rack="moved")) == epoch
    broker = lifecycle.cluster.view.broker(1)
    assert broker is not None
    assert (broker.fenced, broker.rack) == (False, "moved")


def test_a_second_process_under_the_same_id_is_rejected_while_the_session_of_the_first_lasts() -> None:
    lifecycle = without_brokers()
    first = lifecycle.register(registration())
    lifecycle.heartbeat()
    lifecycle.now_ms = 8999
    with pytest.raises(KafkaError, match="still alive") as error:
        lifecycle.register(registration(incarnation=SECOND))
    assert error.value.code is ErrorCode.DUPLICATE_BROKER_REGISTRATION
    lifecycle.now_ms = 9000
    assert lifecycle.register(registration(incarnation=SECOND)) > first


def test_a_registration_without_a_heartbeat_does_not_block_another_one() -> None:
    lifecycle = without_brokers()
    first = lifecycle.register(registration())
    assert lifecycle.register(registration(incarnation=SECOND)) > first


def test_a_broker_may_register_again_right_after_a_controlled_shutdown() -> None:
    lifecycle = without_brokers()
    lifecycle.register(registration())
    lifecycle.heartbeat()
    lifecycle.cluster.topic("t", [1])
    assert lifecycle.heartbeat_flags(want_shut_down=True) == (True, False, False)
    assert lifecycle.heartbeat_flags(want_shut_down=True) == (True, True, True)
    epoch = lifecycle.cluster.epoch(1)
    assert lifecycle.register(registration(incarnation=SECOND, previous_broker_epoch=epoch)) > epoch
    assert lifecycle.cluster.partition("t").elr == (1,)
    assert lifecycle.heartbeat_flags() == (True, False, False)
    assert (lifecycle.cluster.partition("t").leader, lifecycle.cluster.partition("t").isr) == (1, (1,))


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
def test_a_registration_that_does_not_fit_the_cluster_is_rejected(fields: dict[str, Any], code: ErrorCode) -> None:
    cluster = MachineCluster(0)
    cluster.register(2)
    with pytest.raises(KafkaError) as error:
        BrokerLifecycle(cluster).register(registration(**fields))
    assert error.value.code is code
    assert cluster.view.broker(1) is None


def test_a_broker_that_registers_after_an_unclean_shutdown_leaves_its_isrs_in_the_same_batch() -> None:
    cluster = MachineCluster(2)
    cluster.topic("t", [1, 2])
    lifecycle = BrokerLifecycle(cluster)
    decision = finish(lifecycle.brokers.register(registration(previous_broker_epoch=-1), cluster.image.end_offset, 0))
    assert [type(record) for record in decision.records] == [PartitionChangeRecord, RegisterBrokerRecord]
    assert decision.response.broker_epoch == cluster.image.end_offset + 1, "the offset of its own record"
    assert decision.atomic
    cluster.write(*decision.records)
    found = cluster.partition("t")
    assert (found.leader, found.isr, found.elr) == (2, (2,), ())


def test_a_broker_that_knows_its_previous_epoch_leaves_its_isrs_but_stays_eligible() -> None:
    cluster = MachineCluster(2)
    cluster.topic("t", [1, 2], [1, 2])
    cluster.configure("t", "min.insync.replicas", "2")
    lifecycle = BrokerLifecycle(cluster)
    lifecycle.register(registration(previous_broker_epoch=cluster.epoch(1)))
    found = cluster.partition("t")
    assert (found.leader, found.isr, found.elr) == (2, (2,), (1,))


def test_a_broker_that_registers_without_one_of_its_directories_is_not_eligible() -> None:
    cluster = MachineCluster(2)
    cluster.topic("t", [1, 2], [1, 2])
    cluster.configure("t", "min.insync.replicas", "2")
    lifecycle = BrokerLifecycle(cluster)
    lifecycle.register(registration(previous_broker_epoch=cluster.epoch(1), log_dirs=[directory(7)]))
    found = cluster.partition("t")
    assert (found.leader, found.isr, found.elr) == (2, (2,), ())


def test_a_replica_in_a_failed_directory_is_not_eligible() -> None:
    cluster = MachineCluster(1)
    lifecycle = BrokerLifecycle(cluster)
    lifecycle.register(registration(2, log_dirs=[directory(2), directory(5)]))
    lifecycle.heartbeat(2)
    topic_id = cluster.topic("t", [2, 1])
    cluster.configure("t", "min.insync.replicas", "2")
    cluster.write(PartitionChangeRecord(topic_id=topic_id, partition_id=0, directories=[directory(5), directory(1)]))
    lifecycle.heartbeat(2, offline_log_dirs=[directory(5)])
    found = cluster.partition("t")
    assert (found.leader, found.isr, found.elr) == (1, (1,), ())


def test_a_broker_whose_predecessor_was_never_fenced_leads_nothing_while_it_starts() -> None:
    cluster = MachineCluster(2, elr=False)
    cluster.topic("t", [1, 2])
    lifecycle = BrokerLifecycle(cluster)
    lifecycle.register(registration(previous_broker_epoch=cluster.epoch(1)))
    assert (cluster.partition("t").leader, cluster.partition("t").isr) == (2, (2,))


def test_a_heartbeat_with_another_broker_epoch_is_rejected() -> None:
    lifecycle = without_brokers()
    epoch = lifecycle.register(registration())
    for wrong in (epoch - 1, epoch + 1):
        with pytest.raises(KafkaError) as error:
            lifecycle.heartbeat(broker_epoch=wrong)
        assert error.value.code is ErrorCode.STALE_BROKER_EPOCH
    with pytest.raises(KafkaError) as error:
        finish(lifecycle.brokers.heartbeat(BrokerHeartbeatRequest(broker_id=2, broker_epoch=0), 0))
    assert error.value.code is ErrorCode.STALE_BROKER_EPOCH


def test_the_record_that_fences_a_broker_follows_those_of_its_partitions() -> None:
    cluster = MachineCluster(2)
    cluster.topic("t", [1, 2])
    lifecycle = BrokerLifecycle(cluster)
    lifecycle.heartbeat(1)
    lifecycle.now_ms = 9000
    assert lifecycle.brokers.sessions.expired(8999) == []
    assert lifecycle.brokers.sessions.expired(9000) == [1]
    records = finish(lifecycle.brokers.fence(1)).records
    assert [type(record) for record in records] == [PartitionChangeRecord, BrokerRegistrationChangeRecord]
    cluster.write(*records)
    assert (cluster.partition("t").leader, cluster.partition("t").isr) == (2, (2,))
    broker = cluster.view.broker(1)
    assert broker is not None
    assert broker.fenced
    assert lifecycle.brokers.sessions.expired(99_999) == []
    assert finish(lifecycle.brokers.fence(1)).records == []


def test_a_broker_is_fenced_on_request() -> None:
    cluster = MachineCluster(2)
    cluster.topic("t", [1, 2])
    lifecycle = BrokerLifecycle(cluster)
    assert lifecycle.heartbeat_flags(1, want_fence=True) == (True, True, False)
    assert cluster.partition("t").isr == (2,)


def test_controlled_shutdown_moves_leaders_first_and_ends_when_all_other_brokers_have_replayed_it() -> None:
    cluster = MachineCluster(2)
    cluster.topic("t", [1, 2])
    lifecycle = BrokerLifecycle(cluster)
    lifecycle.heartbeat(2)
    assert lifecycle.heartbeat_flags(1, want_shut_down=True) == (True, False, False)
    moved_at = cluster.image.end_offset - 1
    assert (cluster.partition("t").leader, cluster.partition("t").isr) == (2, (2,))
    assert lifecycle.heartbeat_flags(1, want_shut_down=True) == (True, False, False), (
        "broker 2 has not replayed the change"
    )
    lifecycle.heartbeat(2, current_metadata_offset=moved_at)
    assert lifecycle.heartbeat_flags(1, want_shut_down=True) == (True, True, True)
    broker = cluster.view.broker(1)
    assert broker is not None
    assert broker.fenced


def test_a_broker_that_leads_nothing_may_shut_down_at_once() -> None:
    cluster = MachineCluster(2)
    cluster.topic("t", [2, 1])
    lifecycle = BrokerLifecycle(cluster)
    assert lifecycle.heartbeat_flags(1, want_shut_down=True) == (True, True, True)
    assert cluster.partition("t").isr == (2,)
    assert lifecycle.heartbeat_flags(1, want_shut_down=True) == (True, True, True)


def test_an_unfenced_broker_leads_partitions_that_had_no_leader() -> None:
    cluster = MachineCluster(2, elr=False)
    cluster.topic("t", [1])
    lifecycle = BrokerLifecycle(cluster)
    cluster.decide(lifecycle.brokers.fence(1))
    assert (cluster.partition("t").leader, cluster.partition("t").isr) == (-1, (1,))
    lifecycle.heartbeat(1)
    assert (cluster.partition("t").leader, cluster.partition("t").leader_epoch) == (1, 2)


def test_cordoned_directories_are_recorded_when_they_change() -> None:
    cluster = MachineCluster(0)
    lifecycle = BrokerLifecycle(cluster)
    lifecycle.register(registration(log_dirs=[directory(1), directory(5)]))
    lifecycle.heartbeat(cordoned_log_dirs=[])
    before = cluster.image.end_offset
    lifecycle.heartbeat(cordoned_log_dirs=[])
    assert cluster.image.end_offset == before
    lifecycle.heartbeat(cordoned_log_dirs=[directory(5)])
    broker = cluster.view.broker(1)
    assert broker is not None
    assert broker.cordoned_directories == (directory(5),)


def test_a_failed_directory_leaves_the_registration_after_its_replicas_have_left_the_isr() -> None:
    cluster = MachineCluster(1)
    lifecycle = BrokerLifecycle(cluster)
    lifecycle.register(registration(2, log_dirs=[directory(2), directory(5)]))
    lifecycle.heartbeat(2)
    first, second = cluster.topic("first", [2, 1]), cluster.topic("second", [2, 1])
    for topic_id, kept_in in ((first, directory(2)), (second, directory(5))):
        cluster.write(
            PartitionChangeRecord(topic_id=topic_id, partition_id=0, directories=[kept_in, directory(1)]),
        )
    assert lifecycle.heartbeat_flags(2, offline_log_dirs=[directory(5)], want_shut_down=True) == (True, False, False)
    assert (cluster.partition("first").leader, cluster.partition("first").isr) == (2, (2, 1))
    assert (cluster.partition("second").leader, cluster.partition("second").isr) == (1, (1,))
    broker = cluster.view.broker(2)
    assert broker is not None
    assert (broker.directories, broker.in_controlled_shutdown) == ((directory(2),), False)
    before = cluster.image.end_offset
    lifecycle.heartbeat(2, offline_log_dirs=[directory(5)])
    assert cluster.image.end_offset == before, "it is recorded already"


def test_a_fenced_broker_with_a_failed_directory_does_not_lead_what_was_in_it() -> None:
    cluster = MachineCluster(0, elr=False)
    lifecycle = BrokerLifecycle(cluster)
    lifecycle.register(registration(2, log_dirs=[directory(2), directory(5)]))
    lifecycle.heartbeat(2)
    topic_id = cluster.topic("t", [2])
    cluster.write(PartitionChangeRecord(topic_id=topic_id, partition_id=0, directories=[directory(5)]))
    cluster.decide(lifecycle.brokers.fence(2))
    assert lifecycle.heartbeat_flags(2, offline_log_dirs=[directory(5)]) == (True, True, False)
    assert lifecycle.heartbeat_flags(2, offline_log_dirs=[directory(5)]) == (True, False, False)
    assert cluster.partition("t").leader == -1


def test_a_heartbeat_in_the_event_queue_renews_its_brokers_session() -> None:
    lifecycle = without_brokers()
    epoch = lifecycle.register(registration())
    lifecycle.brokers.renew_session(BrokerHeartbeatRequest(broker_id=1, broker_epoch=epoch), 0)
    assert lifecycle.brokers.sessions.next_deadline_ms() is None, "it starts no session"
    lifecycle.heartbeat()
    lifecycle.brokers.renew_session(BrokerHeartbeatRequest(broker_id=1, broker_epoch=epoch - 1), 5000)
    assert lifecycle.brokers.sessions.next_deadline_ms() == 9000, "a stale epoch renews no session"
    lifecycle.brokers.renew_session(BrokerHeartbeatRequest(broker_id=1, broker_epoch=epoch), 5000)
    assert lifecycle.brokers.sessions.next_deadline_ms() == 14_000


def test_an_unregistered_broker_leaves_every_isr() -> None:
    cluster = MachineCluster(2)
    cluster.topic("t", [1, 2])
    lifecycle = BrokerLifecycle(cluster)
    response = cluster.decide(lifecycle.brokers.unregister(UnregisterBrokerRequest(broker_id=1)))
    assert response.error_code == 0
    assert cluster.view.broker(1) is None
    assert (cluster.partition("t").leader, cluster.partition("t").replicas) == (2, (1, 2))
    assert cluster.partition("t").elr == (), "the next registration under this id is another broker"
    with pytest.raises(KafkaError) as error:
        finish(lifecycle.brokers.unregister(UnregisterBrokerRequest(broker_id=1)))
    assert error.value.code is ErrorCode.BROKER_ID_NOT_REGISTERED


def test_a_controller_registers_its_listeners_and_features() -> None:
    cluster = MachineCluster(0)
    request = ControllerRegistrationRequest(
        controller_id=100, incarnation_id=FIRST, listeners=[Listener(name="CONTROLLER", host="h", port=9093)]
    )
    cluster.decide(Brokers(cluster.view, cluster.settings).register_controller(request))
    controller = cluster.view.controller(100)
    assert controller is not None
    assert controller.endpoints[0].port == 9093


def test_controllers_do_not_register_below_the_metadata_version_that_introduced_it() -> None:
    cluster = MachineCluster(0)
    cluster.write(FeatureLevelRecord(name="metadata.version", feature_level=14))
    with pytest.raises(KafkaError) as error:
        Brokers(cluster.view, cluster.settings).register_controller(ControllerRegistrationRequest(controller_id=100))
    assert error.value.code is ErrorCode.UNSUPPORTED_VERSION


def test_a_registration_after_an_unclean_shutdown_with_very_many_replicas_takes_many_batches() -> None:
    cluster = MachineCluster(2)
    for topic in range(11):
        cluster.topic(f"t{topic}", *[[1, 2]] * 1000)
    decision = finish(Brokers(cluster.view, cluster.settings).register(registration(), cluster.image.end_offset, 0))
    assert len(decision.records) == 11_001
    assert not decision.atomic
    assert isinstance(decision.records[-1], RegisterBrokerRecord)


def test_fencing_a_broker_that_leads_thousands_of_partitions_yields_many_times() -> None:
    cluster = MachineCluster(2)
    cluster.topic("t", *[[1, 2]] * 3000)
    steps = Brokers(cluster.view, cluster.settings).fence(1)
    yields = sum(1 for _ in steps)
    assert yields >= 15
