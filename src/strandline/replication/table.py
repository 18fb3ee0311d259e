"""The partitions of this broker, by topic name and by topic id. Handlers find partitions here; `node/publisher` passes
committed changes. A `Partition` is constructed on first use, so that ten thousand idle ones cost nothing: at once if
this broker follows it, with the first request of a follower or client if it leads.

After an await find the partition again: it may have been dropped meanwhile.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator

from strandline.log.partition_log import PartitionLog
from strandline.log.settings import LogSettings
from strandline.metadata.image import Image
from strandline.metadata.values import PartitionInfo
from strandline.model.errors import ErrorCode, KafkaError
from strandline.model.ids import Endpoint, TopicPartition, Uuid
from strandline.replication.flush_scheduler import FlushScheduler
from strandline.replication.leader import IsrChange, Leader
from strandline.replication.partition import Partition

OpenLog = Callable[[TopicPartition, Uuid, LogSettings, Uuid | None], Awaitable[PartitionLog]]


class KnownBrokers:
    """The registrations of other brokers in committed metadata."""

    def __init__(self, image: Image) -> None:
        self._image = image

    def registered_epoch(self, broker_id: int) -> int:
        info = self._image.committed.broker(broker_id)
        return -1 if info is None else info.epoch

    def may_join(self, broker_id: int, broker_epoch: int) -> bool:
        info = self._image.committed.broker(broker_id)
        return info is not None and info.active and info.epoch == broker_epoch

    def endpoint(self, listener: str, broker_id: int) -> Endpoint | None:
        info = self._image.committed.broker(broker_id)
        found = info.endpoint(listener) if info is not None else None
        return Endpoint(found.host, found.port) if found is not None else None


class PartitionTable:
    def __init__(
        self,
        node_id: int,
        image: Image,
        open_log: OpenLog,
        log_settings: Callable[[str], LogSettings],
        flusher: FlushScheduler,
        on_proposal: Callable[[Partition, IsrChange], None],
        on_hand_over: Callable[[Partition], None],
        lag_time_max_ms: int,
    ) -> None:
        """`on_proposal` sends an ISR to the controller; `on_hand_over` requests another leader from it, because the
        replica on this broker is damaged."""
        self.node_id = node_id
        self.brokers = KnownBrokers(image)
        self.lag_time_max_ms = lag_time_max_ms
        self._on_proposal = on_proposal
        self._on_hand_over = on_hand_over
        self._image = image
        self._open_log = open_log
        self._log_settings = log_settings
        self._flusher = flusher
        self._by_name: dict[str, dict[int, Partition]] = {}
        self._by_id: dict[Uuid, dict[int, Partition]] = {}

    def __iter__(self) -> Iterator[Partition]:
        for partitions in list(self._by_id.values()):
            yield from list(partitions.values())

    def __len__(self) -> int:
        return sum(len(partitions) for partitions in self._by_id.values())

    def partition_with_log(self, log: PartitionLog) -> Partition | None:
        """The partition whose log this is; None when it has been dropped."""
        topic, index = log.topic_partition
        partition = self._by_name.get(topic, {}).get(index)
        return partition if partition is not None and partition.log is log else None

    def on_metadata(self, topic_id: Uuid, partition: int, info: PartitionInfo) -> None:
        """A committed change. A partition that was never used has no object yet, and reads the image on first use."""
        known = self._by_id.get(topic_id, {}).get(partition)
        if known is not None:
            known.on_metadata(info)

    def _host(self, topic: str, topic_id: Uuid, index: int, info: PartitionInfo) -> Partition:
        topic_partition = TopicPartition(topic, index)

        async def open_log() -> PartitionLog:
            directory_id = info.directory_of(self.node_id)
            return await self._open_log(topic_partition, topic_id, self._log_settings(topic), directory_id)

        partition = Partition(topic_partition, topic_id, info, open_log, self)
        self._by_id.setdefault(topic_id, {})[index] = partition
        self._by_name[topic] = self._by_id[topic_id]
        return partition

    def flush(self, partition: Partition) -> None:
        self._flusher.request(partition)

    def propose(self, partition: Partition, change: IsrChange) -> None:
        self._on_proposal(partition, change)

    def hand_over_leadership(self, partition: Partition) -> None:
        self._on_hand_over(partition)

    def drop(self, topic_id: Uuid, partition: int) -> Partition | None:
        """Removes a partition that left this broker: its waiters fail at once. The caller deletes the log."""
        partitions = self._by_id.get(topic_id)
        dropped = partitions.pop(partition, None) if partitions is not None else None
        if dropped is None:
            return None
        dropped.drop()
        if not partitions:
            del self._by_id[topic_id]
            topic = dropped.topic_partition.topic
            # A recreated topic with another id may have taken the name already.
            if self._by_name.get(topic) is partitions:
                del self._by_name[topic]
        return dropped

    def topic_settings_changed(self, topic: str) -> None:
        settings = self._log_settings(topic)
        for partition in self._by_name.get(topic, {}).values():
            log = partition.log
            if log is not None:
                log.update_settings(settings)
                if settings.flush_messages == 1 and log.flushed_offset < log.log_end_offset:
                    # From now on only flushed records count.
                    self.flush(partition)
            if partition.leader is not None:
                partition.leader.on_progress()  # with another min.insync.replicas more may be committed

    def all_settings_changed(self) -> None:
        for topic in list(self._by_name):
            self.topic_settings_changed(topic)

    def find(self, topic: str, topic_id: Uuid, partition: int, *, by_id: bool = False) -> Partition:
        partitions = self._by_id.get(topic_id) if by_id else self._by_name.get(topic)
        found = partitions.get(partition) if partitions is not None else None
        return found if found is not None else self._first_use(topic, topic_id, partition, by_id)

    async def find_leading(
        self, topic: str, topic_id: Uuid, partition: int, current_leader_epoch: int = -1, *, by_id: bool = False
    ) -> tuple[Partition, Leader, PartitionLog]:
        """A partition that this broker leads, in the client's leader epoch if that is known, with its open log. Raises
        the KafkaError for the client otherwise."""
        found = self.find(topic, topic_id, partition, by_id=by_id)
        log = found.log or await found.ready()
        return found, found.leading(current_leader_epoch), log

    def _first_use(self, topic: str, topic_id: Uuid, index: int, by_id: bool) -> Partition:
        view = self._image.committed
        known = view.topic_by_id(topic_id) if by_id else view.topic(topic)
        if known is None and by_id:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_ID, f"there is no topic with id {topic_id}")
        info = view.partition(known.id, index) if known is not None else None
        if known is None or info is None:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no partition {topic or topic_id}-{index}")
        if self.node_id not in info.replicas:
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, f"{known.name}-{index} is not on this broker")
        return self._host(known.name, known.id, index, info)

    def committed_info(self, topic: str, topic_id: Uuid, partition: int) -> PartitionInfo | None:
        """The committed metadata of any partition of the cluster, also one that this broker does not host."""
        view = self._image.committed
        known = view.topic(topic) if topic else view.topic_by_id(topic_id)
        return view.partition(known.id, partition) if known is not None else None
