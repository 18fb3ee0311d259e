"""Which brokers may lead, and where new replicas go."""

from __future__ import annotations

import pytest

from strandline.controller.live_brokers import LiveBrokers, is_online, takes_new_replicas
from strandline.metadata.values import BrokerInfo
from strandline.model.ids import DIRECTORY_LOST, DIRECTORY_MIGRATING, DIRECTORY_UNASSIGNED, ZERO_UUID, Uuid
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


def test_only_active_brokers_lead_and_those_who_come_before_those_who_leave() -> None:
    scene = MachineCluster(3)
    scene.write(
        BrokerRegistrationChangeRecord(broker_id=2, broker_epoch=scene.epoch(2), in_controlled_shutdown=1),
        BrokerRegistrationChangeRecord(broker_id=3, broker_epoch=scene.epoch(3), fenced=1),
    )

    def leaders(hosts: LiveBrokers) -> list[int]:
        return [each for each in (1, 2, 3, 4) if hosts.can_lead(each, DIRECTORY_UNASSIGNED)]

    assert leaders(LiveBrokers(scene.view)) == [1]
    assert leaders(LiveBrokers(scene.view, coming=3)) == [1, 3]
    assert leaders(LiveBrokers(scene.view, leaving=1)) == []
    assert not LiveBrokers(scene.view).can_lead(1, directory(2))


def test_a_new_replica_goes_into_the_only_directory_or_where_its_broker_says_later() -> None:
    scene = MachineCluster(1)
    scene.write(
        RegisterBrokerRecord(broker_id=2, rack=None, log_dirs=[HERE, THERE], broker_epoch=5),
        RegisterBrokerRecord(broker_id=3, rack=None, log_dirs=[], broker_epoch=6),
    )
    hosts = LiveBrokers(scene.view)
    found = [hosts.new_directory(each) for each in (1, 2, 3, 4)]
    assert found == [directory(1), DIRECTORY_UNASSIGNED, DIRECTORY_MIGRATING, DIRECTORY_UNASSIGNED]
    scene.write(FeatureLevelRecord(name="metadata.version", feature_level=16))
    assert hosts.new_directory(1) == DIRECTORY_MIGRATING


@pytest.mark.parametrize(
    ("fields", "found"),
    [
        ({}, True),
        ({"fenced": True}, True),
        ({"in_controlled_shutdown": True}, False),
        ({"cordoned_directories": (HERE,)}, True),
        ({"cordoned_directories": (THERE, HERE)}, False),
        ({"cordoned_directories": ()}, True),
        ({"cordoned_directories": (HERE,), "directories": ()}, True),
    ],
)
def test_a_broker_takes_new_replicas_unless_it_leaves_or_is_cordoned(fields: dict[str, object], found: bool) -> None:
    given = {"fenced": False, "directories": (HERE, THERE), **fields}
    assert takes_new_replicas(BrokerInfo(1, 5, ZERO_UUID, (), (), **given)) is found  # type: ignore[arg-type]
