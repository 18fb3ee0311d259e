"""Which brokers can lead, and the directories of new replicas."""

from __future__ import annotations

import pytest

from strandline.controller.leader_eligibility import LiveBrokers, is_online
from strandline.model.ids import DIRECTORY_LOST, DIRECTORY_MIGRATING, DIRECTORY_UNASSIGNED, Uuid
from strandline.protocol.messages.metadata_records import (
    BrokerRegistrationChangeRecord,
    FeatureLevelRecord,
    RegisterBrokerRecord,
)
from unit.controller.machine_cluster import MachineCluster, directory

HERE, THERE = Uuid.of(3, 1001), Uuid.of(3, 1002)


@pytest.mark.parametrize(
    ("at", "online", "found"),
    [
        (HERE, (HERE,), True),
        (THERE, (HERE,), False),
        (DIRECTORY_UNASSIGNED, (HERE,), True),
        (DIRECTORY_MIGRATING, (HERE,), True),
        (DIRECTORY_LOST, (HERE,), False),
        (HERE, (), True),
        (DIRECTORY_LOST, (), False),
    ],
)
def test_a_replica_is_online_where_its_broker_has_the_directory(
    at: Uuid, online: tuple[Uuid, ...], found: bool
) -> None:
    assert is_online(at, online) is found


def test_only_active_brokers_can_lead_except_one_that_is_coming_or_leaving() -> None:
    cluster = MachineCluster(3)
    cluster.write(
        BrokerRegistrationChangeRecord(broker_id=2, broker_epoch=cluster.epoch(2), in_controlled_shutdown=1),
        BrokerRegistrationChangeRecord(broker_id=3, broker_epoch=cluster.epoch(3), fenced=1),
    )

    def leaders(brokers: LiveBrokers) -> list[int]:
        return [each for each in (1, 2, 3, 4) if brokers.can_lead(each, DIRECTORY_UNASSIGNED)]

    assert leaders(LiveBrokers(cluster.view)) == [1]
    assert leaders(LiveBrokers(cluster.view, coming=3)) == [1, 3]
    assert leaders(LiveBrokers(cluster.view, leaving=1)) == []
    assert not LiveBrokers(cluster.view).can_lead(1, directory(2))


def test_a_new_replica_is_assigned_to_the_only_directory_of_its_broker_or_left_unassigned() -> None:
    cluster = MachineCluster(1)
    cluster.write(
        RegisterBrokerRecord(broker_id=2, rack=None, log_dirs=[HERE, THERE], broker_epoch=5),
        RegisterBrokerRecord(broker_id=3, rack=None, log_dirs=[], broker_epoch=6),
    )
    brokers = LiveBrokers(cluster.view)
    found = [brokers.new_directory(each) for each in (1, 2, 3, 4)]
    assert found == [directory(1), DIRECTORY_UNASSIGNED, DIRECTORY_MIGRATING, DIRECTORY_UNASSIGNED]
    cluster.write(FeatureLevelRecord(name="metadata.version", feature_level=16))
    assert brokers.new_directory(1) == DIRECTORY_MIGRATING
