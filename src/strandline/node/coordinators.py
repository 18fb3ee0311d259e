"""The coordinators of a broker: shards of the internal topics, started and stopped by committed partition leadership.

Built by `node/broker_role`; `node/publisher` reports metadata changes. `LeaderLog` is the partition of a shard.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any, Final

from strandline.coordinator.consumer.settings import ConsumerSettings
from strandline.coordinator.group_counts import GroupCounts
from strandline.coordinator.group_metrics import register_group_metrics
from strandline.coordinator.groups import GroupMachine
from strandline.coordinator.markers import MarkerWriter, Send
from strandline.coordinator.offset_requests import delete_offsets_of_former_topics, delete_offsets_of_topics
from strandline.coordinator.partitioning import GROUP_TOPIC, TRANSACTION_TOPIC
from strandline.coordinator.records import GROUP_RECORDS, TRANSACTION_RECORDS
from strandline.coordinator.settings import GroupSettings
from strandline.coordinator.shard import Shard, ShardSettings
from strandline.coordinator.shards import Shards
from strandline.coordinator.transaction.ending import RetryCompletion, WriteMarkers, complete
from strandline.coordinator.transaction.machine import TransactionMachine
from strandline.coordinator.transaction.store import TransactionSettings
from strandline.log.cold_reads import ColdRead
from strandline.log.partition_log import PartitionLog
from strandline.log.validation import Origin, validate
from strandline.metadata.changes import Changes, PartitionDelta
from strandline.metadata.values import GROUP_RESOURCE
from strandline.model.errors import ErrorCode, KafkaError
from strandline.model.ids import ZERO_UUID, TopicPartition
from strandline.node.node_resources import NodeResources
from strandline.node.subscribed_topics import CommittedTopics
from strandline.records.batch import batches
from strandline.replication.leader import Leader
from strandline.replication.partition import Partition
from strandline.replication.table import PartitionTable
from strandline.runtime.tasks import yield_to_loop
from strandline.runtime.watermark import Watermark
from strandline.runtime.world import World

# With Kafka's `-1` a batch is appended as soon as the one before it is replicated, at the latest after this.
_ADAPTIVE_LINGER_MS: Final = 5
_GROUPS_PER_YIELD: Final = 100
_COMPLETION_RETRY_MS: Final = 100


class LeaderLog:
    """One partition of an internal topic during one leadership of this broker (`coordinator.log_port`)."""

    def __init__(self, partition: Partition, leader: Leader, log: PartitionLog, world: World, read_bytes: int) -> None:
        self._partition = partition
        self._leader = leader
        self._log = log
        self._world = world
        self._read_bytes = read_bytes

    @property
    def leader_epoch(self) -> int:
        return self._leader.leader_epoch

    @property
    def log_end_offset(self) -> int:
        return self._log.log_end_offset

    @property
    def high_watermark(self) -> Watermark:
        return self._leader.high_watermark

    @property
    def max_batch_bytes(self) -> int:
        return self._log.settings.max_message_bytes

    def append(self, batch: bytearray) -> None:
        if self._partition.leader is not self._leader:
            raise KafkaError(
                ErrorCode.NOT_LEADER_OR_FOLLOWER, f"{self._partition.topic_partition} has a new leader epoch"
            )
        self._leader.check_enough_replicas()
        clock = self._world.clock
        wall_ms = clock.wall_ms()
        validated = validate(memoryview(batch), self._log.settings, wall_ms=wall_ms, origin=Origin.COORDINATOR)
        self._partition.append_as_leader(validated, wall_ms=wall_ms, now_ms=clock.now_ms())

    async def read_all(self) -> AsyncIterator[memoryview]:
        offload, log = self._world.offload, self._log
        offset, end_offset = log.log_start_offset, log.log_end_offset
        while offset < end_offset:
            read = log.read(offset, max_bytes=self._read_bytes, before_offset=end_offset)
            if isinstance(read, ColdRead):
                await offload.run(read.load)
                continue
            if read.slice is None:
                why = f"{self._partition.topic_partition} cannot be read at offset {offset}"
                raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, why)
            data = memoryview(await offload.run(read.slice.read))
            yield data
            offset = _next_offset(data)


def _next_offset(data: memoryview) -> int:
    return max(header.next_offset for _, header in batches(data))


class BrokerCoordinators:
    def __init__(self, node: NodeResources, partitions: PartitionTable, send_markers: Send) -> None:
        self._node = node
        self._partitions = partitions
        self._group_counts = GroupCounts()
        self._group_settings = GroupSettings.of(node.dynamic_config.get)
        self._consumer_settings = ConsumerSettings.of(node.dynamic_config.get, {})
        self._markers = MarkerWriter(self._leader_of, send_markers, node.tasks)
        config = node.config
        linger_ms = config.integer("group.coordinator.append.linger.ms")
        settings = ShardSettings(
            append_linger_ms=linger_ms if linger_ms >= 0 else _ADAPTIVE_LINGER_MS,
            write_timeout_ms=config.integer("offsets.commit.timeout.ms"),
        )
        self.groups: Shards[GroupMachine] = Shards(
            GROUP_TOPIC,
            GROUP_RECORDS,
            self._group_machine,
            self._open_log,
            lambda: self._partition_count(GROUP_TOPIC),
            node.world.clock,
            settings,
            node.tasks,
            self._on_groups_loaded,
        )
        register_group_metrics(node.metrics, self.groups, self._group_counts)
        self.transactions: Shards[TransactionMachine] = Shards(
            TRANSACTION_TOPIC,
            TRANSACTION_RECORDS,
            lambda partition, leader_epoch: TransactionMachine(self._transaction_settings, leader_epoch),
            self._open_log,
            lambda: self._partition_count(TRANSACTION_TOPIC),
            node.world.clock,
            ShardSettings(append_linger_ms=_ADAPTIVE_LINGER_MS, write_timeout_ms=config.integer("request.timeout.ms")),
            node.tasks,
            perform=self._end_transaction,
        )

    def on_metadata(self, changes: Changes) -> None:
        if changes.broker_config or changes.default_broker_config:
            self._group_settings = GroupSettings.of(self._node.dynamic_config.get)
            self._consumer_settings = ConsumerSettings.of(self._node.dynamic_config.get, {})
        for delta in (*changes.hosted, *changes.leadership):
            self._on_leadership(delta)
        for delta in changes.dropped:
            if delta.topic == GROUP_TOPIC:
                self.groups.on_resigned(delta.partition)
            elif delta.topic == TRANSACTION_TOPIC:
                self.transactions.on_resigned(delta.partition)
        deleted = {topic.name: topic.id for topic in changes.topics_deleted}
        if deleted:
            for shard in self.groups.active():
                shard.apply(lambda machine, now: delete_offsets_of_topics(machine, deleted))
        self._on_topics(changes)

    def _on_topics(self, changes: Changes) -> None:
        new_or_deleted = [topic.name for topic in (*changes.topics_created, *changes.topics_deleted)]
        names = frozenset((*changes.topics, *new_or_deleted))
        if names:
            version = changes.offset if new_or_deleted else None
            for shard in self.groups.active():
                shard.apply(lambda machine, now: machine.on_topics_changed(names, version))

    def _settings_of_group(self, group_id: str) -> ConsumerSettings:
        configs = self._node.image.committed.configs(GROUP_RESOURCE, group_id)
        if not configs:
            return self._consumer_settings
        return ConsumerSettings.of(self._node.dynamic_config.get, configs)

    async def _on_groups_loaded(self, shard: Shard[GroupMachine]) -> None:
        group_ids = [group.group_id for group in shard.machine.groups()]
        for start in range(0, len(group_ids), _GROUPS_PER_YIELD):
            self._delete_former_topics(shard, group_ids[start : start + _GROUPS_PER_YIELD])
            await yield_to_loop()

    def _delete_former_topics(self, shard: Shard[GroupMachine], group_ids: list[str]) -> None:
        shard.apply(
            lambda machine, now: delete_offsets_of_former_topics(
                machine, group_ids, self._node.image.committed.topic_id
            )
        )

    def unload(self) -> None:
        self.groups.unload_all()
        self.transactions.unload_all()

    def _on_leadership(self, delta: PartitionDelta) -> None:
        if delta.new is None:
            return
        shards: Shards[Any]
        if delta.topic == GROUP_TOPIC:
            shards = self.groups
        elif delta.topic == TRANSACTION_TOPIC:
            shards = self.transactions
        else:
            return
        if delta.new.leader == self._node.node_id:
            shards.on_elected(delta.partition, delta.new.leader_epoch)
        else:
            shards.on_resigned(delta.partition)

    def _end_transaction(self, shard: Shard[TransactionMachine], effect: object) -> None:
        """Carries out an effect of the transaction machine."""

        def complete_transaction() -> None:
            shard.apply(lambda machine, now: complete(machine.transactions, markers, now))

        if isinstance(effect, WriteMarkers):
            markers = effect
            self._markers.write(effect, complete_transaction, lambda: shard.is_active)
        else:
            assert isinstance(effect, RetryCompletion), effect
            markers = effect.markers
            asyncio.get_running_loop().call_later(_COMPLETION_RETRY_MS / 1000, complete_transaction)

    def _leader_of(self, partition: TopicPartition) -> int | None:
        """As `coordinator.markers` wants it: a broker that is fenced does not count."""
        view = self._node.image.committed
        topic = view.topic(partition.topic)
        info = None if topic is None else view.partition(topic.id, partition.partition)
        return None if info is None else info.leader

    def _transaction_settings(self) -> TransactionSettings:
        get = self._node.dynamic_config.get
        return TransactionSettings(
            max_timeout_ms=get("transaction.max.timeout.ms"),
            abort_timed_out_interval_ms=get("transaction.abort.timed.out.transaction.cleanup.interval.ms"),
            transactional_id_expiration_ms=get("transactional.id.expiration.ms"),
            remove_expired_interval_ms=get("transaction.remove.expired.transaction.cleanup.interval.ms"),
            transaction_version=self._node.image.committed.features().get("transaction.version", 0),
        )

    def _partition_count(self, topic: str) -> int | None:
        info = self._node.image.committed.topic(topic)
        return None if info is None else info.partition_count

    def _group_machine(self, partition: int, leader_epoch: int) -> GroupMachine:
        image = self._node.image
        return GroupMachine(
            lambda: self._group_settings,
            self._node.world.random,
            self._group_counts,
            lambda: CommittedTopics(image.committed),
            self._settings_of_group,
        )

    async def _open_log(self, topic_partition: TopicPartition, leader_epoch: int) -> LeaderLog:
        partition = self._partitions.find(topic_partition.topic, ZERO_UUID, topic_partition.partition)
        log = await partition.ready()
        leader = partition.leading(leader_epoch)
        is_group = topic_partition.topic == GROUP_TOPIC
        read_bytes = self._node.config.integer(
            "offsets.load.buffer.size" if is_group else "transaction.state.log.load.buffer.size"
        )
        return LeaderLog(partition, leader, log, self._node.world, read_bytes)
