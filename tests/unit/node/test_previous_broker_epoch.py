"""After a crash a broker registers with its previous epoch only if it has certainly kept every record."""

from __future__ import annotations

from collections.abc import Callable

from strandline.log import maintenance, names
from strandline.log.settings import LogSettings
from strandline.log.store import LogStore
from strandline.metadata.image import Image
from strandline.model.ids import TopicPartition, Uuid
from strandline.node.previous_broker_epoch import PreviousBrokerEpoch
from strandline.protocol.messages.metadata_records import (
    FeatureLevelRecord,
    PartitionRecord,
    RemoveTopicRecord,
    TopicRecord,
)
from strandline.protocol.types import Message
from strandline.records.batch import Record, encode_batch
from strandline.runtime.disk import Disk
from strandline.runtime.world import World
from strandline.simulation.world import Simulation
from unit.log.logs import append_as_leader

NODE, EPOCH, WALL_MS = 1, 42, 1_700_000_000_000
TOPIC_ID = Uuid.of(1, 1)
HOMES = {"/one": Uuid.of(9, 1), "/two": Uuid.of(9, 2)}
DURABLE = LogSettings(flush_messages=1)
PARTITIONS = [TopicPartition("t", index) for index in range(3)]


class Past:
    """Two directories with three partitions, left by a broker that was killed while it was registered."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.settings = DURABLE
        self.image = Image()
        self.known: list[Message] = [
            FeatureLevelRecord(name="metadata.version", feature_level=30),
            FeatureLevelRecord(name="eligible.leader.replicas.version", feature_level=1),
            TopicRecord(name="t", topic_id=TOPIC_ID),
            *(PartitionRecord(partition_id=each, topic_id=TOPIC_ID, replicas=[NODE], isr=[NODE]) for each in range(3)),
        ]
        for path in HOMES:
            world.disk.make_dirs(path)
        store = self.store()
        for topic_partition in PARTITIONS:
            log = store.open_log(topic_partition, TOPIC_ID, DURABLE, wall_ms=WALL_MS)
            for number in range(10):
                batch = encode_batch([Record(0, WALL_MS, None, bytes([number]) * 20, ())])
                append_as_leader(log, batch, leader_epoch=0, wall_ms=WALL_MS)
            log.flush()
        for directory in store.directories:
            directory.record_broker_epoch(EPOCH)
            directory.release()

    def store(self) -> LogStore:
        return LogStore.open(self.world.disk, HOMES, self.world.random)

    async def remembered(self) -> int:
        async def caught_up() -> None:
            self.image.replay_batch(self.image.end_offset, self.known)
            self.image.commit(self.image.end_offset)

        self.opened = self.store()
        return await PreviousBrokerEpoch(
            NODE, self.opened, self.image.committed, self.world, lambda _: self.settings, caught_up
        ).determine()

    def path(self, topic_partition: TopicPartition) -> str:
        return next(path for home in HOMES if self.world.disk.exists(path := f"{home}/{topic_partition}"))

    def flip(self, position: float) -> None:
        file = self.world.disk.open(f"{self.path(PARTITIONS[1])}/{names.offset_name(0)}{names.LOG}")
        at = int(file.size() * position)
        file.write_at(at, bytes([file.read_at(at, 1)[0] ^ 1]))
        file.close()


def remembered(change: Callable[[Past], object] = lambda past: None) -> int:
    found: list[int] = []

    async def program(world: World) -> None:
        past = Past(world)
        change(past)
        found.append(await past.remembered())

    with Simulation(1) as simulation:
        simulation.run(simulation.machine("node").boot(program), max_virtual_s=60)
    return found[0]


def with_disk(change: Callable[[Past, Disk], object]) -> int:
    return remembered(lambda past: change(past, past.world.disk))


def test_flushed_and_intact_logs_keep_the_previous_epoch() -> None:
    assert remembered() == EPOCH


def test_a_torn_end_of_a_log_was_never_acknowledged() -> None:
    assert remembered(lambda past: past.flip(0.97)) == EPOCH


def test_a_damaged_log_loses_the_previous_epoch() -> None:
    assert remembered(lambda past: past.flip(0.5)) == -1


def test_a_missing_log_loses_the_previous_epoch() -> None:
    def remove(past: Past, disk: Disk) -> None:
        store = past.store()
        for topic_partition in PARTITIONS:
            log = store.open_log(topic_partition, TOPIC_ID, DURABLE, wall_ms=WALL_MS)
            log.advance_high_watermark(10)
        maintenance.checkpoint_high_watermarks(store)
        for directory in store.directories:
            directory.release()
        disk.remove_tree(past.path(PARTITIONS[1]))

    assert with_disk(remove) == -1


def test_without_a_flush_per_append_the_previous_epoch_is_lost_in_a_crash() -> None:
    def relax(past: Past) -> None:
        past.settings = LogSettings()

    assert remembered(relax) == -1


def test_directories_with_different_or_missing_epochs_lose_the_previous_epoch() -> None:
    def older(past: Past) -> None:
        store = past.store()
        store.directories[1].record_broker_epoch(EPOCH - 1)
        for directory in store.directories:
            directory.release()

    assert remembered(older) == -1
    assert with_disk(lambda past, disk: disk.remove("/two/strandline-broker-epoch")) == -1


def test_logs_of_topics_deleted_meanwhile_are_not_verified() -> None:
    def delete(past: Past) -> None:
        past.known.append(RemoveTopicRecord(topic_id=TOPIC_ID))
        past.flip(0.5)

    assert remembered(delete) == EPOCH


def test_logs_are_not_verified_without_eligible_leader_replicas() -> None:
    def without(past: Past) -> None:
        past.known[1] = FeatureLevelRecord(name="eligible.leader.replicas.version", feature_level=0)

    assert remembered(without) == -1


def test_after_a_clean_shutdown_logs_are_not_verified_unless_records_were_missing() -> None:
    def close(epoch: int) -> Callable[[Past], None]:
        def closed(past: Past) -> None:
            store = past.store()
            for topic_partition in PARTITIONS:
                store.open_log(topic_partition, TOPIC_ID, DURABLE, wall_ms=WALL_MS)
            maintenance.close(store, epoch)
            past.known.clear()

        return closed

    assert remembered(close(50)) == 50
    assert remembered(close(-1)) == -1
