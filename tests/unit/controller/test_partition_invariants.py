"""Random histories of brokers and partitions keep the invariants I-6 and I-7, and no clean leader lacks a record.

A model of replication runs beside the controller's machines: every replica has a log end offset, the leader copies to
the ISR, and the high watermark rises while enough replicas are in sync. A broker may restart after an unclean shutdown,
or with empty disks. A cleanly elected leader must have every record below the high watermark.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random

import pytest

from strandline.controller.elect_leaders import LeaderElections
from strandline.controller.isr import IsrChanges
from strandline.controller.leader_eligibility import LiveBrokers
from strandline.controller.partition_changes import elect_leaderless, keep_leaderless_elr, remove_from_isrs
from strandline.controller.reassignments import Reassignments
from strandline.metadata.values import NO_LEADER, RECOVERING, BrokerInfo, PartitionInfo, PartitionKey
from strandline.model.ids import Uuid
from strandline.protocol.messages.brokers import (
    AlterPartitionRequest,
    AlterPartitionRequestPartitionData,
    AlterPartitionRequestTopicData,
    BrokerState,
)
from strandline.protocol.messages.elections import ElectLeadersRequest
from strandline.protocol.messages.metadata_records import (
    BrokerRegistrationChangeRecord,
    ClearElrRecord,
    ConfigRecord,
    FeatureLevelRecord,
    RegisterBrokerRecord,
    UnregisterBrokerRecord,
)
from strandline.protocol.messages.reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from strandline.protocol.types import Message
from unit.controller.machine_cluster import MachineCluster

BROKERS = range(1, 6)
EVENTS = 250


class World:
    def __init__(self, seed: int, *, elr: bool) -> None:
        self.random = random = Random(seed)
        self.elr = elr
        self.cluster = MachineCluster(len(BROKERS), elr=elr)
        self.log_ends: dict[tuple[PartitionKey, int], int] = {}
        self.watermarks: dict[PartitionKey, int] = {}
        self.before: dict[PartitionKey, PartitionInfo] = {}
        self.broker_epochs: dict[int, int] = {}
        self.wiped = 0
        self.commits = 0
        self.events_so_far: list[str] = []
        for topic in ("t", "u"):
            self.cluster.topic(topic, *([random.sample(BROKERS, random.randint(1, 3))] * 2))
            self.cluster.configure(topic, "min.insync.replicas", str(random.randint(1, 3)))
        self.check()

    def step(self) -> None:
        events: list[Callable[[], str]] = [
            self.fence,
            self.unfence,
            self.unfence,
            self.shut_down,
            self.restart,
            self.change_isr,
            self.change_isr,
            self.reassign,
            self.cancel,
            self.elect,
            self.balance,
        ]
        if self.random.random() < 0.05:
            events = [self.unregister, self.switch_elr_off, self.allow_unclean, self.change_min_isr]
        self.events_so_far.append(self.random.choice(events)())
        self.check()
        self.replicate()

    def a_broker(self, suits: Callable[[BrokerInfo], bool]) -> BrokerInfo | None:
        suitable = [broker for broker in self.cluster.view.brokers() if suits(broker)]
        return self.random.choice(suitable) if suitable else None

    def a_partition(self) -> tuple[str, int, PartitionInfo]:
        name = self.random.choice(("t", "u"))
        index = self.random.randrange(2)
        return name, index, self.cluster.partition(name, index)

    def fence(self) -> str:
        broker = self.a_broker(lambda each: not each.fenced)
        if broker is None:
            return "no broker to fence"
        self.cluster.fence(broker.id)
        return f"fence {broker.id}"

    def unfence(self) -> str:
        broker = self.a_broker(lambda each: each.fenced)
        if broker is None:
            return "no broker to unfence"
        if broker.in_controlled_shutdown:
            self.register(broker.id, lost_memory=False)
        records: list[Message] = [self.change_of(broker.id, fenced=-1)]
        for _ in elect_leaderless(self.cluster.view, self.cluster.rules, broker.id, records):
            pass
        self.cluster.write(*records)
        return f"unfence {broker.id}"

    def shut_down(self) -> str:
        broker = self.a_broker(lambda each: each.active)
        if broker is None:
            return "no broker to shut down"
        self.cluster.write(self.change_of(broker.id, in_controlled_shutdown=1), *self.leaving(broker.id))
        return f"shut down {broker.id}"

    def change_of(self, broker_id: int, **fields: int) -> BrokerRegistrationChangeRecord:
        return BrokerRegistrationChangeRecord(broker_id=broker_id, broker_epoch=self.cluster.epoch(broker_id), **fields)

    def leaving(self, broker_id: int, *, unclean: bool = False) -> list[Message]:
        records: list[Message] = []
        for _ in remove_from_isrs(self.cluster.view, self.cluster.rules, broker_id, records, unclean_shutdown=unclean):
            pass
        return records

    def restart(self) -> str:
        """Its predecessor may never have been fenced."""
        broker = self.a_broker(lambda each: True)
        assert broker is not None
        lost_memory = self.elr and self.random.random() < 0.4
        self.register(broker.id, lost_memory=lost_memory)
        return f"restart {broker.id}{' without its memory' if lost_memory else ''}"

    def register(self, broker_id: int, *, lost_memory: bool) -> None:
        directories = self.cluster.view.broker(broker_id)
        assert directories is not None
        records = self.leaving(broker_id, unclean=lost_memory)
        self.cluster.write(*records, self.registration(broker_id, list(directories.directories), len(records)))
        if lost_memory:
            for key, replica in self.log_ends:
                if replica == broker_id:
                    self.log_ends[key, replica] = self.random.randint(0, self.log_ends[key, replica])

    def registration(self, broker_id: int, directories: list[Uuid], behind: int = 0) -> RegisterBrokerRecord:
        epoch = self.cluster.image.end_offset + behind
        return RegisterBrokerRecord(
            broker_id=broker_id, broker_epoch=epoch, rack=None, fenced=True, log_dirs=directories
        )

    def unregister(self) -> str:
        """Restarts with empty disks."""
        broker = self.a_broker(lambda each: True)
        assert broker is not None
        unregistration = UnregisterBrokerRecord(broker_id=broker.id, broker_epoch=broker.epoch)
        self.cluster.write(*self.leaving(broker.id, unclean=True), unregistration)
        self.check()
        self.wiped += 1
        self.cluster.write(self.registration(broker.id, [Uuid.of(6, 1000 + self.wiped)]))
        for key, replica in self.log_ends:
            if replica == broker.id:
                self.log_ends[key, replica] = 0
        return f"replace {broker.id}"

    def change_isr(self) -> str:
        """The leader proposes an ISR whose new members have caught up."""
        name, index, partition = self.a_partition()
        topic, leader = self.cluster.view.topic(name), self.cluster.view.broker(partition.leader)
        if topic is None or leader is None:
            return f"{name}-{index} has no leader to report"
        followers = [replica for replica in partition.replicas if replica != leader.id]
        isr = [leader.id, *self.random.sample(followers, self.random.randint(0, len(followers)))]
        data = AlterPartitionRequestPartitionData(
            partition_index=index,
            leader_epoch=partition.leader_epoch,
            partition_epoch=partition.partition_epoch,
            new_isr_with_epochs=[BrokerState(member, -1) for member in isr],
        )
        request = AlterPartitionRequest(
            broker_id=leader.id,
            broker_epoch=leader.epoch,
            topics=[AlterPartitionRequestTopicData(topic_id=topic.id, partitions=[data])],
        )
        key = (topic.id, index)
        for member in isr:
            if member not in partition.isr:
                self.log_ends[key, member] = self.log_ends[key, leader.id]
        self.cluster.decide(IsrChanges(self.cluster.view, self.cluster.new_changes).alter(request, 3))
        return f"{leader.id} reports {isr} for {name}-{index}"

    def reassign(self) -> str:
        name, index, _ = self.a_partition()
        target = self.random.sample(BROKERS, self.random.randint(1, 3))
        self.alter_assignment(name, index, target)
        return f"move {name}-{index} to {target}"

    def cancel(self) -> str:
        name, index, _ = self.a_partition()
        self.alter_assignment(name, index, None)
        return f"cancel the move of {name}-{index}"

    def alter_assignment(self, name: str, index: int, replicas: list[int] | None) -> None:
        topic = ReassignableTopic(name=name, partitions=[ReassignablePartition(index, replicas)])
        request = AlterPartitionReassignmentsRequest(topics=[topic])
        self.cluster.decide(Reassignments(self.cluster.view, self.cluster.new_changes).alter(request))

    def elect(self) -> str:
        kind = int(self.random.random() < 0.2)
        request = ElectLeadersRequest(election_type=kind, topic_partitions=None)
        self.cluster.decide(LeaderElections(self.cluster.view, self.cluster.new_changes).elect(request))
        return "elect unclean leaders" if kind else "elect preferred leaders"

    def balance(self) -> str:
        leaders = LeaderElections(self.cluster.view, self.cluster.new_changes)
        self.cluster.decide(leaders.balance())
        self.cluster.decide(leaders.elect_unclean())
        return "balance"

    def change_min_isr(self) -> str:
        name, _, _ = self.a_partition()
        value = str(self.random.randint(1, 3))
        records: list[Message] = [
            ConfigRecord(resource_type=2, resource_name=name, name="min.insync.replicas", value=value)
        ]
        if self.elr:
            records.append(ClearElrRecord(topic_name=name))
        for _ in keep_leaderless_elr(self.cluster.view, records):
            pass
        self.cluster.write(*records)
        return f"min.insync.replicas of {name} is {value}"

    def allow_unclean(self) -> str:
        name, _, _ = self.a_partition()
        value = self.random.choice(("true", "false", None))
        self.cluster.configure(name, "unclean.leader.election.enable", value)
        return f"unclean leaders of {name}: {value}"

    def switch_elr_off(self) -> str:
        if self.elr and self.random.random() < 0.3:
            self.elr = False
            self.cluster.write(FeatureLevelRecord(name="eligible.leader.replicas.version", feature_level=0))
        return f"eligible leader replicas: {self.elr}"

    def min_isr(self, name: str, partition: PartitionInfo) -> int:
        return min(self.cluster.rules.of(name).min_insync_replicas, len(partition.replicas))

    def replicate(self) -> None:
        for key, partition in self.cluster.view.all_partitions():
            topic = self.cluster.view.topic_by_id(key[0])
            assert topic is not None
            if partition.leader == NO_LEADER or self.random.random() < 0.3:
                continue
            end = self.log_ends[key, partition.leader] = self.log_ends[key, partition.leader] + 1
            for replica in partition.isr:
                self.log_ends[key, replica] = end
            if len(partition.isr) >= self.min_isr(topic.name, partition):
                self.watermarks[key] = end
                self.commits += 1

    def check(self) -> None:
        for broker in self.cluster.view.brokers():
            assert broker.epoch >= self.broker_epochs.get(broker.id, 0), "I-7: a broker epoch fell"
            self.broker_epochs[broker.id] = broker.epoch
        for key, partition in self.cluster.view.all_partitions():
            topic = self.cluster.view.topic_by_id(key[0])
            assert topic is not None
            self.check_state(topic.name, partition)
            before = self.before.get(key)
            if before is not None:
                check_epochs(before, partition)
            self.check_leader(key, before, partition)
            self.before[key] = partition

    def check_state(self, name: str, partition: PartitionInfo) -> None:
        isr, elr = partition.isr, partition.elr
        assert partition.leader == NO_LEADER or partition.leader in isr, "I-6: the leader is not in the ISR"
        assert not set(isr) & set(elr), "I-6: ISR and ELR overlap"
        assert set(isr) | set(elr) <= set(partition.replicas), "ISR or ELR contain unassigned replicas"
        alone = not self.elr and partition.leader == NO_LEADER and len(isr) == 1
        for member in isr:
            broker = self.cluster.view.broker(member)
            assert alone or (broker is not None and broker.active), "I-6: a broker that is not live is in an ISR"
        if self.elr and len(isr) >= self.min_isr(name, partition):
            assert elr == (), "I-6: an ELR although enough replicas are in sync"
        if self.elr and partition.leader != NO_LEADER:
            assert partition.last_known_elr == ()
        if partition.leader == NO_LEADER:
            brokers = LiveBrokers(self.cluster.view)
            homes = dict(zip(partition.replicas, partition.directories, strict=True))
            able = [replica for replica in isr or elr if brokers.can_lead(replica, homes[replica])]
            assert not able, f"there is no leader although {able} could lead"

    def check_leader(self, key: PartitionKey, before: PartitionInfo | None, partition: PartitionInfo) -> None:
        for replica in [replica for known, replica in self.log_ends if known == key]:
            if replica not in partition.replicas:
                # Its broker deletes the replica.
                del self.log_ends[key, replica]
        for replica in partition.replicas:
            self.log_ends.setdefault((key, replica), 0)
        watermark = self.watermarks.setdefault(key, 0)
        if partition.leader == NO_LEADER or (before is not None and before.leader_epoch == partition.leader_epoch):
            return
        end = self.log_ends[key, partition.leader]
        if partition.leader_recovery_state == RECOVERING:
            self.watermarks[key] = min(watermark, end)
        assert end >= self.watermarks[key], f"a clean leader lacks records: {before} became {partition}"
        for replica in partition.replicas:
            self.log_ends[key, replica] = min(self.log_ends[key, replica], end)


def check_epochs(before: PartitionInfo, after: PartitionInfo) -> None:
    assert after.partition_epoch >= before.partition_epoch, "I-7: a partition epoch fell"
    assert after.leader_epoch >= before.leader_epoch, "I-7: a leader epoch fell"
    if after.leader != before.leader:
        assert after.leader_epoch > before.leader_epoch, "another leader in the same leader epoch"
    if after != before:
        assert after.partition_epoch > before.partition_epoch, "a change without a new partition epoch"


@pytest.mark.parametrize("elr", [True, False], ids=["elr", "plain"])
@pytest.mark.parametrize("seed", range(12))
def test_random_histories_keep_the_invariants_and_clean_leaders_have_every_committed_record(
    seed: int, elr: bool
) -> None:
    world = World(seed, elr=elr)
    for _ in range(EVENTS):
        try:
            world.step()
        except AssertionError as failure:
            raise AssertionError(f"{failure}, after:\n" + "\n".join(world.events_so_far[-12:])) from failure
    assert world.commits > 5, "the history contains commits"
