"""A node as a broker: logs, partitions, and what keeps them in step with committed metadata.

Made by `node`. Start: the broker registers with the active controller, waits until its own registration has come back
to it through the metadata log, publishes everything, is unfenced; only then are clients answered. Stop is the same way
back.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from functools import partial
from typing import Final

from strandline.client.peers import Peers
from strandline.handlers.context import BrokerContext, LogDirectoryInfo
from strandline.log import maintenance
from strandline.log.partition_log import PartitionLog
from strandline.log.settings import LogSettings
from strandline.log.store import LogStore
from strandline.metadata.replica_metrics import ReplicaMetrics
from strandline.model.errors import KafkaError, NodeFault
from strandline.model.ids import METADATA_TOPIC, ZERO_UUID, TopicPartition, Uuid
from strandline.node.controller_channel import ControllerChannel
from strandline.node.directory_assignments import DirectoryAssignments
from strandline.node.lifecycle import BrokerLifecycle, Listeners, Registration
from strandline.node.node_resources import NodeResources
from strandline.node.previous_broker_epoch import PreviousBrokerEpoch
from strandline.node.producer_ids import Block, ProducerIdBlocks
from strandline.node.publisher import MetadataPublisher
from strandline.protocol.messages.brokers import AlterPartitionResponse
from strandline.protocol.messages.producers import AllocateProducerIdsRequest, AllocateProducerIdsResponse
from strandline.protocol.messages.quorum import (
    DescribeQuorumRequest,
    DescribeQuorumRequestPartitionData,
    DescribeQuorumRequestTopicData,
    DescribeQuorumResponse,
)
from strandline.replication.broker_replication import BrokerReplication
from strandline.replication.compaction import Compaction
from strandline.replication.fetch_sessions import FetchSessionCache
from strandline.replication.flusher import Flusher
from strandline.replication.hosted_logs import HostedLogs
from strandline.replication.maintenance import LogMaintenance
from strandline.replication.partition import Partition
from strandline.replication.settings import ReplicationSettings
from strandline.replication.table import PartitionTable

LEAVE_MS: Final = 30_000
_CLOSING_THREADS: Final = 4
_CATCH_UP_RETRY_MS: Final = 10


class BrokerRole:
    def __init__(self, base: NodeResources, store: LogStore, channel: ControllerChannel, fetchers: Peers) -> None:
        """`channel` leads to the active controller, `fetchers` to other brokers."""
        self._base = base
        self._store = store
        self._channel = channel
        self._life: BrokerLifecycle | None = None
        self._logs = HostedLogs(store, base.world)
        self._recollection = PreviousBrokerEpoch(
            base.node_id, store, base.image.committed, base.world, base.settings.log_settings, self._caught_up
        )
        self._assignments = DirectoryAssignments(base.node_id, lambda: self.broker_epoch, base.image, channel.send)
        self.broker = self._assembled()
        ReplicaMetrics(
            base.node_id,
            base.image,
            base.metrics,
            lambda topic: base.settings.log_settings(topic).min_insync_replicas,
        )
        listener = next(each.name for each in base.config.listeners if each.inter_broker)
        self._replication = BrokerReplication(
            base.node_id,
            self.broker.partitions,
            base.image,
            store,
            fetchers,
            lambda request: channel.send(request, AlterPartitionResponse),
            base.world,
            ReplicationSettings.of(base.settings.get, listener),
        )

    @property
    def broker_epoch(self) -> int:
        """Of the current registration; -1 before the first."""
        return -1 if self._life is None else self._life.broker_epoch

    def _assembled(self) -> BrokerContext:
        base, store = self._base, self._store
        world, settings, tasks = base.world, base.settings, base.tasks
        flusher = Flusher(world.offload, tasks)
        partitions = PartitionTable(
            self._base.node_id, self._base.image, self._open_log, settings.log_settings, flusher
        )
        LogMaintenance(store, partitions, flusher, world, settings.get, settings.log_settings).start(tasks)
        tasks.start(Compaction(store, partitions, world, settings.get).run(), "compaction")
        partitions.on_hand_over = self._hand_over
        tasks.start(
            self._logs.run(lambda tp, _: partitions.find(tp.topic, ZERO_UUID, tp.partition).ready()), "log openings"
        )
        return BrokerContext(
            node_id=self._base.node_id,
            cluster_id=self._base.storage.cluster_id,
            world=world,
            image=self._base.image,
            partitions=partitions,
            controller=self._channel,
            kraft_version=lambda: self._base.quorum.kraft_version,
            producer_ids=ProducerIdBlocks(self._allocate_producer_ids),
            settings=settings,
            fetch_sessions=FetchSessionCache(
                self._base.config.integer("max.incremental.fetch.session.cache.slots"), world.random
            ),
            log_directories=partial(describe_directories, store),
        )

    async def _open_log(
        self, topic_partition: TopicPartition, topic_id: Uuid, settings: LogSettings, directory_id: Uuid | None
    ) -> PartitionLog:
        log = await self._logs.open(topic_partition, topic_id, settings, directory_id)
        home = self._store.directory_of(topic_partition)
        if home is not None:
            self._assignments.opened(topic_id, topic_partition.partition, home.id)
        return log

    def _hand_over(self, partition: Partition) -> None:
        home = self._store.directory_of(partition.topic_partition)
        if home is not None:
            self._assignments.give_up(partition.topic_id, partition.topic_partition.partition, home.id)

    async def _allocate_producer_ids(self) -> Block:
        request = AllocateProducerIdsRequest(broker_id=self._base.node_id, broker_epoch=self.broker_epoch)
        response = await self._channel.send(request, AllocateProducerIdsResponse)
        return response.producer_id_start, response.producer_id_len

    async def start(self, listeners: Listeners, on_settings: Callable[[], None]) -> None:
        """Returns when clients are served. `on_settings` hears that dynamic settings may be different now."""
        life = self._life = self._lifecycle(listeners, await self._recollection.previous_epoch())
        self._note_cordons()
        await life.register()
        if self._base.settings.get("log.flush.interval.messages") == 1:
            self._base.tasks.start(self._note_broker_epoch(life.broker_epoch), "broker epoch")
        # Everything that was committed before it, and this broker's registration itself, is in our image then.
        await self._base.quorum.high_watermark.reached(life.broker_epoch + 1)
        # Before anything opens a log: one in a directory that is out of reach must not begin anew in another.
        await self._match_logs_with_metadata()
        partitions = self.broker.partitions
        self._base.tasks.start(self._replication.run(), "replication")

        def settings_changed() -> None:
            on_settings()
            self._note_cordons()
            life.send_heartbeat_soon()

        publisher = MetadataPublisher(
            self._base.node_id,
            self._base.image,
            self._base.settings,
            partitions,
            self._logs,
            self._replication,
            settings_changed,
        )
        publisher.publish_everything()
        self._base.quorum.on_commit = publisher.publish
        await life.unfence()
        self.broker.serving.set()
        self._base.tasks.start(life.run(), "heartbeats")
        self._base.tasks.start(self._assignments.run(), "directory assignments")
        for topic_partition in self._store.unrecovered():
            self._logs.open_soon(topic_partition, ZERO_UUID)

    async def _caught_up(self) -> None:
        """Everything that was committed when this was called is in our image."""
        topic = DescribeQuorumRequestTopicData(METADATA_TOPIC, [DescribeQuorumRequestPartitionData(0)])
        timeout_ms = self._base.config.integer("initial.broker.registration.timeout.ms")
        committed = -1
        while committed < 0:  # a new leader does not know yet
            try:
                described = await self._channel.send(
                    DescribeQuorumRequest(topics=[topic]), DescribeQuorumResponse, timeout_ms=timeout_ms
                )
            except KafkaError as error:
                raise NodeFault(f"the cluster's metadata cannot be had: {error}") from error
            committed = described.topics[0].partitions[0].high_watermark
            await asyncio.sleep(_CATCH_UP_RETRY_MS / 1000)
        await self._base.quorum.high_watermark.reached(committed)
        self._base.settings.changed()

    async def _note_broker_epoch(self, broker_epoch: int) -> None:
        """Nobody waits for it: a crash before it is written is one after which less is claimed than could be."""
        for directory in self._store.directories:
            if directory.health.is_online:
                # The directory's health says why it failed.
                with contextlib.suppress(KafkaError):
                    await self._base.world.offload.run(partial(directory.record_broker_epoch, broker_epoch))

    async def _match_logs_with_metadata(self) -> None:
        """Partitions that are nobody's here any more are set aside; those that are out of reach must not begin anew."""
        view, store = self._base.image.committed, self._store
        expected: dict[TopicPartition, Uuid] = {
            TopicPartition(topic.name, index): topic.id
            for topic in view.topics()
            for index, info in enumerate(view.partitions(topic.id))
            if self._base.node_id in info.replicas
        }
        await self._base.world.offload.run(store.mark_strays, expected)
        if self._base.storage.offline or not all(directory.health.is_online for directory in store.directories):
            self._logs.unreachable = frozenset(
                (topic_partition, topic_id)
                for topic_partition, topic_id in expected.items()
                if store.directory_of(topic_partition) is None
            )

    def _lifecycle(self, listeners: Listeners, previous_broker_epoch: int) -> BrokerLifecycle:
        config = self._base.config
        registration = Registration(
            broker_id=self._base.node_id,
            cluster_id=self._base.storage.cluster_id,
            incarnation_id=self._base.incarnation_id,
            listeners=listeners,
            rack=config.node.rack,
            directories=tuple(
                self._base.storage.directory_ids[path]
                for path in config.log_dirs
                if path in self._base.storage.directory_ids
            ),
            previous_broker_epoch=previous_broker_epoch,
        )
        return BrokerLifecycle(
            registration,
            self._base.image,
            self._channel.send,
            self._base.world.clock,
            heartbeat_interval_ms=config.integer("broker.heartbeat.interval.ms"),
            session_timeout_ms=config.integer("broker.session.timeout.ms"),
            registration_timeout_ms=config.integer("initial.broker.registration.timeout.ms"),
            offline_directories=self._offline_directories,
            cordoned_directories=lambda: sorted(self._store.cordoned),
        )

    def _offline_directories(self) -> list[Uuid]:
        offline = [directory for directory in self._store.directories if not directory.health.is_online]
        if len(offline) == len(self._store.directories):
            raise NodeFault(f"no log directory is left: {offline[0].health.reason}")
        return [directory.id for directory in offline]

    def _note_cordons(self) -> None:
        named = self._base.settings.get("cordoned.log.dirs")
        self._store.cordoned = frozenset(
            directory.id for directory in self._store.directories if "*" in named or directory.path in named
        )

    async def leave(self) -> None:
        """In good order, as far as there is anybody to take over."""
        if not any(other.active and other.id != self._base.node_id for other in self._base.image.committed.brokers()):
            # Nobody can take over, so a request from now on would be refused for lack of brokers.
            self.broker.stop_serving()
        if self._life is not None:
            await self._life.leave(LEAVE_MS)

    async def close(self) -> None:
        """After every task has ended: logs are flushed and closed, so that the next start need not recover them."""
        run = self._base.world.offload.run
        await asyncio.gather(
            *(run(maintenance.close_share, self._store, share, _CLOSING_THREADS) for share in range(_CLOSING_THREADS))
        )
        # Who lacks records at this moment must not be taken for one that has kept them.
        lacks_some = any(log.log_end_offset < log.lost_up_to for log in self._store.open_logs())
        await run(partial(maintenance.close, self._store, -1 if lacks_some else self.broker_epoch))


def describe_directories(store: LogStore) -> list[LogDirectoryInfo]:
    """Blocking."""
    described = []
    for directory in store.directories:
        total, usable, sizes = -1, -1, {}
        if directory.health.is_online:
            total, usable = directory.disk.usage(directory.path)
            sizes = store.sizes(directory)
        described.append(
            LogDirectoryInfo(
                directory.path,
                not directory.health.is_online,
                directory.id in store.cordoned,
                total,
                usable,
                sorted(sizes.items()),
            )
        )
    return described
