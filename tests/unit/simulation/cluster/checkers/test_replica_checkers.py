"""The checkers of partition replicas: maximal ISR (I-8), durable records of the ISR (I-9), equal logs (I-10)."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from strandline.log.partition_log import PartitionLog
from strandline.log.settings import LogSettings
from strandline.model.ids import TopicPartition, Uuid
from strandline.protocol.messages import metadata_records as kinds
from strandline.protocol.types import Message
from strandline.raft.disk.batches import MetadataBatch
from strandline.records.batch import Record, encode_batch
from strandline.replication.leader import IsrChange, Leader
from strandline.replication.partition import Partition
from strandline.simulation.cluster.checker import Checker
from strandline.simulation.cluster.checkers.isr_durability import IsrHoldsCommittedRecords
from strandline.simulation.cluster.checkers.maximal_isr import MaximalIsrContainsCommittedIsr
from strandline.simulation.cluster.checkers.replica_agreement import ReplicasAgree
from strandline.simulation.cluster.chronicle import Chronicle
from strandline.simulation.cluster.cluster import Cluster
from strandline.simulation.cluster.committed_records import CommittedRecords
from strandline.simulation.cluster.metadata_model import MetadataModel
from strandline.simulation.cluster.node_state import NOT_STARTED
from strandline.simulation.cluster.plan import Layout, Options, draw_plan
from strandline.simulation.cluster.replica_state import ReplicaState, replica_state_of
from strandline.simulation.cluster.violation import Violation
from strandline.simulation.disk import SimDisk
from strandline.simulation.world import Simulation
from unit.log.logs import truncate

PLACE = TopicPartition("records1", 0)
TOPIC_ID = Uuid.of(5, 5)
KEY = (TOPIC_ID, 0)
BROKERS = (11, 12, 13)
EPOCH = 3


class AllRegistered:
    """The leader's view of other brokers: all are registered, with their id as broker epoch."""

    def registered_epoch(self, broker_id: int) -> int:
        return broker_id

    def may_join(self, broker_id: int, broker_epoch: int) -> bool:
        return True


class Scene:
    """Leader 11, ISR 11 and 12, replica 13 out of sync, min.insync.replicas 2. No node runs: only the disks are
    read."""

    def __init__(self, simulation: Simulation, *, flushed: bool = False) -> None:
        plan = draw_plan(1, Options(layout=Layout((1,), BROKERS), faults=[]))
        self.cluster = Cluster(simulation, plan, Chronicle(simulation.loop))
        self.model = MetadataModel()
        self.cluster.metadata.subscribe(self.model.replay)
        committed_records = CommittedRecords(self.cluster, self.model)
        self.checkers: list[Checker] = [
            committed_records,
            MaximalIsrContainsCommittedIsr(self.cluster),
            ReplicasAgree(self.cluster, committed_records),
            IsrHoldsCommittedRecords(self.cluster, committed_records),
        ]
        configs = {"min.insync.replicas": "2", **({"flush.messages": "1"} if flushed else {})}
        self.commit(
            kinds.TopicRecord(name=PLACE.topic, topic_id=TOPIC_ID),
            *(
                kinds.ConfigRecord(resource_type=2, resource_name=PLACE.topic, name=key, value=value)
                for key, value in configs.items()
            ),
            *(
                kinds.RegisterBrokerRecord(broker_id=each, broker_epoch=each, incarnation_id=Uuid.of(each, 1))
                for each in BROKERS
            ),
            kinds.PartitionRecord(
                partition_id=0, topic_id=TOPIC_ID, replicas=[*BROKERS], isr=[11, 12], leader=11, leader_epoch=EPOCH
            ),
        )
        self.seen: dict[int, ReplicaState] = {}
        self.partitions = {each: self._partition(each) for each in BROKERS}

    def _partition(self, broker_id: int) -> Partition:
        member = self.cluster.member(broker_id)
        for checker in self.checkers:
            checker.node_started(member)
        info = self.cluster.metadata.image.latest.partition(*KEY)
        assert info is not None
        partition = Partition(PLACE, TOPIC_ID, info, None, None)  # type: ignore[arg-type]
        disk = SimDisk(member.machine.volume)
        disk.make_dirs("/data/records1-0")
        disk.sync_dir("/data")
        settings = LogSettings(min_insync_replicas=2)
        partition.log = PartitionLog.open(disk, "/data/records1-0", PLACE, settings, wall_ms=0)
        return partition

    def commit(self, *records: Message) -> None:
        metadata = self.cluster.metadata
        base = metadata.image.end_offset
        metadata.image.replay_batch(base, list(records))
        metadata.image.commit(base + len(records))
        metadata.notify(MetadataBatch(base, base + len(records), 1, 0, 0, False, records))
        for checker in self.checkers:
            checker.node_changed(self.cluster.member(1), NOT_STARTED, NOT_STARTED)

    def log(self, broker_id: int) -> PartitionLog:
        found = self.partitions[broker_id].log
        assert found is not None
        return found

    def lead(self) -> Leader:
        partition = self.partitions[11]
        info = self.cluster.metadata.image.latest.partition(*KEY)
        assert info is not None
        partition.leader = Leader(self.log(11), info, 11, AllRegistered(), lag_time_max_ms=30_000)
        self.see(11)
        return partition.leader

    def write(self, *values: str, to: tuple[int, ...] = BROKERS, epoch: int = EPOCH) -> None:
        for broker_id in to:
            log = self.log(broker_id)
            for value in values:
                batch = encode_batch(
                    [Record(0, 0, None, value.encode(), ())], base_offset=log.log_end_offset, leader_epoch=epoch
                )
                log.append_as_follower(batch)
            self.see(broker_id)

    def fetched(self, leader: Leader, broker_id: int, offset: int) -> None:
        leader.on_fetch(leader.remotes[broker_id], broker_id, offset, 0, now_ms=1)
        self.see(11)

    def see(self, broker_id: int) -> None:
        partition = self.partitions[broker_id]
        before, now = self.seen.get(broker_id), replica_state_of(self.log(broker_id), partition.leader)
        self.seen[broker_id] = now
        for checker in self.checkers:
            checker.replica_changed(self.cluster.member(broker_id), partition, before, now)


@pytest.fixture
def scene() -> Iterator[Scene]:
    with Simulation(1) as simulation:
        yield Scene(simulation)


@pytest.fixture
def flushed() -> Iterator[Scene]:
    with Simulation(1) as simulation:
        yield Scene(simulation, flushed=True)


def change(**fields: object) -> kinds.PartitionChangeRecord:
    return kinds.PartitionChangeRecord(partition_id=0, topic_id=TOPIC_ID, **fields)  # type: ignore[arg-type]


def committed(scene: Scene, *values: str) -> Leader:
    """Brokers 11 and 12 have these records, and the high watermark is above them."""
    leader = scene.lead()
    scene.write(*values, to=(11, 12))
    scene.fetched(leader, 12, len(values))
    assert leader.high_watermark.value == len(values)
    return leader


def test_a_correct_partition_violates_nothing(scene: Scene) -> None:
    leader = committed(scene, "a", "b")
    scene.write("a", "b", to=(13,))
    scene.fetched(leader, 13, 2)
    assert leader.proposed is not None
    scene.commit(change(isr=[11, 12, 13]))
    scene.log(13).advance_high_watermark(2)
    scene.see(13)


def test_a_maximal_isr_without_a_committed_isr_member_violates_i_8(scene: Scene) -> None:
    leader = scene.lead()
    leader.isr = (11,)
    with pytest.raises(Violation, match=r"I-8: .*has the maximal ISR \[11\]"):
        scene.see(11)


def test_a_high_watermark_that_advances_below_min_isr_violates_i_9(scene: Scene) -> None:
    scene.commit(change(isr=[11]))
    leader = scene.lead()
    scene.write("a", to=(11,))
    leader.high_watermark.advance(1)
    with pytest.raises(Violation, match=r"I-9: .*with the ISR \[11\], which needs 2"):
        scene.see(11)


def test_a_high_watermark_beyond_a_member_of_the_maximal_isr_violates_i_9(scene: Scene) -> None:
    leader = committed(scene, "a")
    scene.write("a", to=(13,))
    leader.proposed = IsrChange(EPOCH, 0, ((11, 11), (12, 12), (13, 13)))
    scene.fetched(leader, 13, 1)
    scene.write("b", to=(11, 12))
    leader.remotes[12].log_end_offset = 2
    leader.high_watermark.advance(2)
    with pytest.raises(Violation, match=r"I-9: .*broker 13 of the maximal ISR has fetched up to 1"):
        scene.see(11)


def test_a_leader_that_counts_records_a_follower_does_not_have_violates_i_9(scene: Scene) -> None:
    leader = committed(scene, "a")
    leader.remotes[13].broker_epoch, leader.remotes[13].log_end_offset = 13, 1
    with pytest.raises(Violation, match=r"I-9: node11 leads .*counts broker 13 up to 1, which has records up to 0"):
        scene.see(11)


def test_in_a_flushed_topic_only_durable_records_of_followers_count(flushed: Scene) -> None:
    leader = flushed.lead()
    flushed.write("a", to=(11, 12))
    flushed.log(11).flush()
    with pytest.raises(Violation, match=r"I-9: .*broker 12 .*has records up to 0"):
        flushed.fetched(leader, 12, 1)


def test_in_a_flushed_topic_only_durable_records_of_the_leader_count(flushed: Scene) -> None:
    leader = flushed.lead()
    flushed.write("a", to=(11, 12))
    flushed.log(12).flush()
    with pytest.raises(Violation, match=r"I-9: node11 advances .* its own log is durable only up to 0"):
        flushed.fetched(leader, 12, 1)


def test_a_replica_without_the_leaders_epoch_start_must_not_join_the_isr(scene: Scene) -> None:
    scene.write("a", "b", to=(11, 12))
    scene.write("a", to=(13,))
    leader = scene.lead()
    scene.fetched(leader, 13, 1)
    leader.proposed = IsrChange(EPOCH, 0, ((11, 11), (12, 12), (13, 13)))
    with pytest.raises(Violation, match=r"I-9: .*adds broker 13 to the ISR .*up to 1; epoch 3 started at 2"):
        scene.see(11)


def test_a_replica_without_committed_records_in_the_isr_violates_i_9(scene: Scene) -> None:
    leader = committed(scene, "a")
    leader.isr = (11, 12, 13)
    with pytest.raises(Violation, match=r"I-9: broker 13 is in the ISR or ELR .*has records up to 0"):
        scene.commit(change(isr=[11, 12, 13]))


def test_after_an_unclean_election_the_partition_is_excused(scene: Scene) -> None:
    committed(scene, "a")
    scene.commit(change(isr=[13], leader=13))
    truncate(scene.log(12), 0)
    scene.see(12)


def test_truncating_a_committed_batch_violates_i_10(scene: Scene) -> None:
    committed(scene, "a", "b")
    truncate(scene.log(12), 1)
    with pytest.raises(Violation, match=r"I-10: node12 truncates .*loses a committed batch: the batch at 1"):
        scene.see(12)


def test_uncommitted_batches_may_be_truncated(scene: Scene) -> None:
    scene.write("x", "y", to=(13,), epoch=2)
    committed(scene, "a", "b")
    truncate(scene.log(13), 0)
    scene.see(13)
    scene.write("a", "b", to=(13,))
    scene.log(13).advance_high_watermark(2)
    scene.see(13)


def test_logs_that_differ_below_the_high_watermark_violate_i_10(scene: Scene) -> None:
    scene.write("x", to=(13,), epoch=2)
    committed(scene, "a")
    scene.log(13).advance_high_watermark(1)
    with pytest.raises(Violation, match=r"I-10: node13 has at 0 of records1-0 a batch of epoch 2"):
        scene.see(13)


def test_a_high_watermark_beyond_that_of_every_leader_violates_i_10(scene: Scene) -> None:
    scene.lead()
    scene.write("a", to=(13,))
    scene.log(13).advance_high_watermark(1)
    with pytest.raises(Violation, match=r"I-10: node13 has the high watermark 1 .*no leader has committed beyond 0"):
        scene.see(13)


def test_a_leader_without_a_committed_batch_violates_i_10(scene: Scene) -> None:
    committed(scene, "a")
    scene.write("x", to=(13,), epoch=2)
    info = scene.cluster.metadata.image.latest.partition(*KEY)
    assert info is not None
    scene.partitions[13].leader = Leader(scene.log(13), info, 13, AllRegistered(), lag_time_max_ms=30_000)
    with pytest.raises(Violation, match=r"I-10: node13 has at 0 of records1-0 a batch of epoch 2"):
        scene.see(13)
