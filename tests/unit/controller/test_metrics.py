"""Metrics of controllers and brokers: counts by commit equal a full count."""

from __future__ import annotations

import asyncio
from random import Random

import pytest

from strandline.controller.brokers import Brokers
from strandline.controller.metrics import CONTROLLER, STATISTICS, ControllerMetrics
from strandline.metadata.image import Image
from strandline.metadata.replica_metrics import ReplicaMetrics
from strandline.model.ids import DIRECTORY_LOST, Uuid
from strandline.protocol.messages.metadata_records import (
    BrokerRegistrationChangeRecord,
    ConfigRecord,
    PartitionChangeRecord,
    RegisterBrokerRecord,
    RemoveTopicRecord,
)
from strandline.runtime.metrics import Metrics
from strandline.runtime.world import World
from unit.controller.active_controller import ActiveController, simulate
from unit.controller.machine_cluster import MachineCluster
from unit.metadata.random_records import History

REPLICA_METRICS = (
    "PartitionCount",
    "LeaderCount",
    "UnderReplicatedPartitions",
    "ReassigningPartitions",
    "UnderMinIsrPartitionCount",
    "AtMinIsrPartitionCount",
    "OfflineReplicaCount",
)


class Clock:
    def __init__(self) -> None:
        self.ms = 1000

    def now_ms(self) -> int:
        return self.ms

    def wall_ms(self) -> int:
        return self.ms


class Counted:
    def __init__(self, image: Image, *, active: bool = True, node_id: int = 1) -> None:
        self.clock = Clock()
        self.metrics = Metrics()
        self.active = active
        ControllerMetrics(image, self.clock, self.metrics, lambda: self.active).register()
        self.min_insync = 2
        ReplicaMetrics(node_id, image, self.min_insync_replicas).register(self.metrics)

    def min_insync_replicas(self, topic: str) -> int:
        return self.min_insync

    def __call__(self, name: str) -> float:
        return self.metrics.snapshot(self.clock.ms)[CONTROLLER + name]

    def of_elections(self, name: str) -> float:
        return self.metrics.snapshot(self.clock.ms)[STATISTICS + name]

    def of_replicas(self, name: str) -> float:
        return self.metrics.snapshot(self.clock.ms)["kafka.server:type=ReplicaManager,name=" + name]


def test_partitions_are_counted_as_they_are_created_deleted_and_lose_their_leaders() -> None:
    cluster = MachineCluster(2)
    cluster.topic("before", [1, 2])
    count = Counted(cluster.image)
    assert (count("GlobalTopicCount"), count("GlobalPartitionCount")) == (1, 1)
    topic_id = cluster.topic("t", [1], [2], [1])
    assert (count("GlobalTopicCount"), count("GlobalPartitionCount")) == (2, 4)
    assert (count("OfflinePartitionsCount"), count("PreferredReplicaImbalanceCount")) == (0, 0)
    cluster.decide(Brokers(cluster.view, cluster.settings).fence(1))
    assert (count("OfflinePartitionsCount"), count("PreferredReplicaImbalanceCount")) == (2, 3)
    assert (count("FencedBrokerCount"), count("ActiveBrokerCount")) == (1, 1)
    cluster.write(RemoveTopicRecord(topic_id=topic_id))
    assert (count("GlobalTopicCount"), count("GlobalPartitionCount")) == (1, 1)
    assert (count("OfflinePartitionsCount"), count("PreferredReplicaImbalanceCount")) == (0, 1)


def test_uncommitted_records_are_not_counted() -> None:
    cluster = MachineCluster(1)
    count = Counted(cluster.image)
    topic_id = cluster.topic("t", [1])
    offset = cluster.image.end_offset
    cluster.image.replay_batch(offset, [RemoveTopicRecord(topic_id=topic_id)])
    assert count("GlobalTopicCount") == 1
    cluster.image.revert_to_committed(offset)
    cluster.image.commit(offset)
    assert (count("GlobalTopicCount"), count("GlobalPartitionCount")) == (1, 1)


def test_unclean_elections_and_elections_from_the_elr_are_counted_separately() -> None:
    cluster = MachineCluster(2)
    count = Counted(cluster.image)
    topic_id = cluster.topic("t", [1, 2])
    cluster.write(PartitionChangeRecord(topic_id=topic_id, leader=2, partition_id=0))
    assert count.of_elections("UncleanLeaderElectionsPerSec") == 0
    cluster.write(
        PartitionChangeRecord(topic_id=topic_id, partition_id=0, leader=-1, isr=[], eligible_leader_replicas=[1])
    )
    cluster.write(
        PartitionChangeRecord(topic_id=topic_id, partition_id=0, leader=1, isr=[1], eligible_leader_replicas=[])
    )
    assert count.of_elections("ElectionFromEligibleLeaderReplicasPerSec") == 1
    cluster.write(
        PartitionChangeRecord(topic_id=topic_id, partition_id=0, leader=2, isr=[2], leader_recovery_state=1),
        PartitionChangeRecord(topic_id=topic_id, partition_id=0, leader_recovery_state=0),
    )
    assert count.of_elections("UncleanLeaderElectionsPerSec") == 0, "it recovered within one commit"
    cluster.write(PartitionChangeRecord(topic_id=topic_id, partition_id=0, leader=1, isr=[1], leader_recovery_state=1))
    assert count.of_elections("UncleanLeaderElectionsPerSec") == 1


def test_a_standby_controller_reports_its_lag_and_an_active_one_reports_none() -> None:
    cluster = MachineCluster(1)
    count = Counted(cluster.image, active=False)
    cluster.write(ConfigRecord(resource_type=4, resource_name="", name="k", value="v"))
    count.clock.ms = 1700
    assert (count("ActiveControllerCount"), count("LastAppliedRecordLagMs")) == (0, 700)
    assert count("LastAppliedRecordOffset") == count("LastCommittedRecordOffset") == cluster.image.end_offset - 1
    assert count("LastAppliedRecordTimestamp") == 1000
    count.active = True
    assert (count("ActiveControllerCount"), count("LastAppliedRecordLagMs")) == (1, 0)


def test_a_broker_counts_its_partitions_leaders_and_under_replicated_partitions() -> None:
    cluster = MachineCluster(3)
    count = Counted(cluster.image)
    first = cluster.topic("first", [1, 2, 3], [2, 1, 3])
    cluster.topic("other", [2, 3])

    def counts() -> tuple[float, ...]:
        names = ("PartitionCount", "LeaderCount", "UnderReplicatedPartitions", "UnderMinIsrPartitionCount")
        return tuple(count.of_replicas(name) for name in names)

    assert counts() == (2, 1, 0, 0)
    cluster.write(PartitionChangeRecord(topic_id=first, partition_id=0, isr=[1, 2]))
    assert counts() == (2, 1, 1, 0)
    cluster.write(PartitionChangeRecord(topic_id=first, partition_id=0, isr=[1]))
    assert counts() == (2, 1, 1, 1)
    count.min_insync = 1
    assert counts() == (2, 1, 1, 0)
    cluster.write(PartitionChangeRecord(topic_id=first, partition_id=0, leader=2, isr=[2], adding_replicas=[3]))
    assert counts() == (2, 0, 0, 0)
    cluster.write(PartitionChangeRecord(topic_id=first, partition_id=0, leader=1, isr=[1, 2]))
    assert counts() == (2, 1, 0, 0), "a replica that is being added is not under-replicated yet"
    assert count.of_replicas("ReassigningPartitions") == 1


def test_a_broker_counts_partitions_at_and_under_min_isr() -> None:
    cluster = MachineCluster(3)
    count = Counted(cluster.image)
    three = cluster.topic("three", [1, 2, 3], [1, 2, 3])
    cluster.topic("one", [1])
    cluster.topic("elsewhere", [2, 3])
    assert count.of_replicas("AtMinIsrPartitionCount") == 1, "a single replica is at its minimum"
    cluster.write(PartitionChangeRecord(topic_id=three, partition_id=0, isr=[1, 2]))
    assert count.of_replicas("AtMinIsrPartitionCount") == 2
    cluster.write(PartitionChangeRecord(topic_id=three, partition_id=0, isr=[1]))
    assert count.of_replicas("AtMinIsrPartitionCount") == 1
    assert count.of_replicas("UnderMinIsrPartitionCount") == 1
    count.min_insync = 3
    assert count.of_replicas("AtMinIsrPartitionCount") == 2
    cluster.write(RemoveTopicRecord(topic_id=three))
    assert count.of_replicas("AtMinIsrPartitionCount") == 1


def test_a_broker_counts_its_replicas_in_failed_directories() -> None:
    cluster = MachineCluster(2)
    first, second = Uuid.of(5, 1001), Uuid.of(5, 1002)
    epoch = cluster.image.end_offset
    cluster.write(RegisterBrokerRecord(broker_id=1, broker_epoch=epoch, fenced=False, log_dirs=[first, second]))
    count = Counted(cluster.image)
    topic_id = cluster.topic("t", [1, 2], [1, 2], [1, 2])
    for index, home in enumerate((first, second, DIRECTORY_LOST)):
        homes = [home, cluster.partition("t", index).directories[1]]
        cluster.write(PartitionChangeRecord(topic_id=topic_id, partition_id=index, directories=homes))
    assert count.of_replicas("OfflineReplicaCount") == 1
    cluster.write(BrokerRegistrationChangeRecord(broker_id=1, broker_epoch=epoch, log_dirs=[first]))
    assert count.of_replicas("OfflineReplicaCount") == 2


@pytest.mark.parametrize("seed", range(5))
def test_counts_by_commit_equal_a_full_count(seed: int) -> None:
    image, random = Image(), Random(seed)
    counted = Counted(image, node_id=3)
    for base_offset, records, _ in History(seed, level=29).batches(300):
        image.replay_batch(base_offset, records)
        if random.random() < 0.3:
            image.commit(base_offset + len(records))
            again = Counted(image, node_id=3)
            for name in ("GlobalTopicCount", "GlobalPartitionCount", "OfflinePartitionsCount"):
                assert counted(name) == again(name)
            assert counted("PreferredReplicaImbalanceCount") == again("PreferredReplicaImbalanceCount")
            for name in REPLICA_METRICS:
                assert counted.of_replicas(name) == again.of_replicas(name)
            del image.commit_listeners[-(len(image.commit_listeners) // 2) :]
    assert counted("GlobalPartitionCount") > 0


def test_a_controller_registers_its_metrics() -> None:
    async def scenario(world: World) -> None:
        active = ActiveController(world)
        active.controller.register_metrics()
        assert active.measured(CONTROLLER + "ActiveControllerCount") == 0
        await active.with_broker()
        assert active.measured(CONTROLLER + "ActiveControllerCount") == 1
        await active.committing(active.create("t", 3))
        assert active.measured(CONTROLLER + "GlobalPartitionCount") == 3
        active.lose()
        await active.win()
        assert active.measured(CONTROLLER + "NewActiveControllersCount") == 2
        await active.controller._events._turn.acquire()
        late = asyncio.ensure_future(active.heartbeat())
        await asyncio.sleep(1.5)
        active.controller._events._turn.release()
        with pytest.raises(Exception, match="timed out"):
            await late
        assert active.measured(CONTROLLER + "TimedOutBrokerHeartbeatCount") == 1

    simulate(scenario)
