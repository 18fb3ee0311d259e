"""The broker role of a node: builds the logs, the partitions and the parts that apply committed metadata to them.

Built and started by `node/node`. Start: the broker registers with the active controller, waits until its image contains
its own registration, publishes all metadata to its parts and is unfenced; only then does it serve clients. Stop:
controlled shutdown, then the logs are flushed and closed.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from functools import partial
from typing import Final

from strandline.client.peers import Peers
from strandline.handlers.context import BrokerContext, LogDirectoryInfo
from strandline.handlers.transaction_markers import write_markers
from strandline.log import maintenance
from strandline.log.partition_log import PartitionLog
from strandline.log.settings import LogSettings
from strandline.log.store import LogStore
from strandline.metadata.replica_metrics import ReplicaMetrics
from strandline.model.errors import ErrorCode, KafkaError, NodeFault
from strandline.model.ids import METADATA_TOPIC, TopicPartition, Uuid
from strandline.node.controller_channel import ControllerChannel
from strandline.node.coordinators import BrokerCoordinators
from strandline.node.directory_assignments import DirectoryAssignments
from strandline.node.group_lag import GroupLagMonitor
from strandline.node.lifecycle import BrokerLifecycle, Listeners, Registration
from strandline.node.node_resources import NodeResources
from strandline.node.previous_broker_epoch import PreviousBrokerEpoch
from strandline.node.producer_ids import ProducerIdBlock, ProducerIdBlocks
from strandline.node.publisher import MetadataPublisher
from strandline.protocol.messages.brokers import AlterPartitionResponse
from strandline.protocol.messages.producers import AllocateProducerIdsRequest, AllocateProducerIdsResponse
from strandline.protocol.messages.quorum import (
    DescribeQuorumRequest,
    DescribeQuorumRequestPartitionData,
    DescribeQuorumRequestTopicData,
    DescribeQuorumResponse,
)
from strandline.protocol.messages.transactions import WriteTxnMarkersRequest, WriteTxnMarkersResponse
from strandline.protocol.types import Message
from strandline.replication.broker_replication import BrokerReplication
from strandline.replication.compaction_scheduler import CompactionScheduler
from strandline.replication.fetch_sessions import FetchSessionCache
from strandline.replication.flush_scheduler import FlushScheduler
from strandline.replication.hosted_logs import HostedLogs
from strandline.replication.isr_proposals import IsrProposals
from strandline.replication.log_maintenance import LogMaintenance
from strandline.replication.partition import Partition
from strandline.replication.settings import ReplicationSettings
from strandline.replication.table import KnownBrokers, PartitionTable
from strandline.runtime.tasks import yield_to_loop

CONTROLLED_SHUTDOWN_MS: Final = 30_000
_CLOSING_THREADS: Final = 4
_CATCH_UP_RETRY_MS: Final = 10


class BrokerRole:
    def __init__(
        self,
        node: NodeResources,
        store: LogStore,
        channel: ControllerChannel,
        fetch_peers: Peers,
        on_config_changed: Callable[[], None],
    ) -> None:
        """`fetch_peers` reaches other brokers; `on_config_changed` is called after every change of dynamic configs."""
        self._node = node
        self._store = store
        self._channel = channel
        self._on_config_changed = on_config_changed
        self._lifecycle: BrokerLifecycle | None = None
        self._listener = next(each.name for each in node.config.listeners if each.inter_broker)
        self._logs = HostedLogs(store, node.world)
        self._assignments = DirectoryAssignments(node.node_id, lambda: self.broker_epoch, node.image, channel.send)
        world, configs = node.world, node.dynamic_config
        self._replica_metrics = ReplicaMetrics(
            node.node_id, node.image, lambda topic: configs.log_settings(topic).min_insync_replicas
        )
        flusher = FlushScheduler(world.offload, node.tasks)
        isr = IsrProposals(
            node.node_id, KnownBrokers(node.image), lambda request: channel.send(request, AlterPartitionResponse)
        )
        self._partitions = PartitionTable(
            node.node_id,
            node.image,
            self._open_log,
            configs.log_settings,
            flusher,
            isr.propose,
            self._hand_over,
            configs.get("replica.lag.time.max.ms"),
        )
        self._maintenance = LogMaintenance(store, self._partitions, flusher, world, configs.get, configs.log_settings)
        self._compaction = CompactionScheduler(store, self._partitions, world, configs.get)
        self._fetch_sessions = FetchSessionCache(
            node.config.integer("max.incremental.fetch.session.cache.slots"), world.random
        )
        self._replication = BrokerReplication(
            node.node_id,
            self._partitions,
            isr,
            store,
            fetch_peers,
            world,
            ReplicationSettings.of(configs.get, self._listener),
            self._fetch_sessions,
        )
        self._peers = fetch_peers
        self._coordinators = BrokerCoordinators(node, self._partitions, self._send_markers)
        self._group_lag = GroupLagMonitor(
            world,
            node.metrics,
            node.tasks,
            self._coordinators.groups,
            lambda: KnownBrokers(node.image).endpoint(self._listener, node.node_id),
        )
        self._publisher = MetadataPublisher(
            node.node_id,
            node.image,
            configs,
            self._partitions,
            self._logs,
            self._replication,
            self._coordinators.on_metadata,
            self._dynamic_configs_changed,
        )
        self.broker = self._handler_context()

    @property
    def broker_epoch(self) -> int:
        """The broker epoch of the current registration; -1 before the first."""
        return -1 if self._lifecycle is None else self._lifecycle.broker_epoch

    def _handler_context(self) -> BrokerContext:
        node = self._node
        return BrokerContext(
            node_id=node.node_id,
            cluster_id=node.storage.cluster_id,
            world=node.world,
            image=node.image,
            partitions=self._partitions,
            controller=self._channel,
            kraft_version=lambda: node.quorum.kraft_version,
            producer_ids=ProducerIdBlocks(self._allocate_producer_ids),
            config=node.dynamic_config,
            fetch_sessions=self._fetch_sessions,
            log_directories=partial(describe_directories, self._store),
            groups=self._coordinators.groups,
            lost_leaders=self._replication.lost_leaders,
            transactions=self._coordinators.transactions,
            call_broker=self._call_broker,
        )

    async def _call_broker(self, broker_id: int, request: Message) -> Message:
        endpoint = self._partitions.brokers.endpoint(self._listener, broker_id)
        if endpoint is None:
            raise KafkaError(ErrorCode.BROKER_NOT_AVAILABLE, f"broker {broker_id} has no endpoint")
        # A handler starts outside of a task, and the timeout of the call needs one: after this wait there is one.
        await yield_to_loop()
        timeout_ms = self._node.config.integer("request.timeout.ms")
        return await self._peers.call(endpoint, request, timeout_ms=timeout_ms)

    async def _send_markers(self, broker_id: int, request: WriteTxnMarkersRequest) -> WriteTxnMarkersResponse:
        if broker_id == self._node.node_id:
            return await write_markers(self.broker, request)
        response = await self._call_broker(broker_id, request)
        assert isinstance(response, WriteTxnMarkersResponse)
        return response

    async def _open_log(
        self, topic_partition: TopicPartition, topic_id: Uuid, settings: LogSettings, directory_id: Uuid | None
    ) -> PartitionLog:
        log = await self._logs.open(topic_partition, topic_id, settings, directory_id)
        directory = self._store.directory_of(topic_partition)
        if directory is not None:
            self._assignments.on_log_opened(topic_id, topic_partition.partition, directory.id)
        return log

    def _hand_over(self, partition: Partition) -> None:
        directory = self._store.directory_of(partition.topic_partition)
        if directory is not None:
            self._assignments.on_damaged_leader(partition.topic_id, partition.topic_partition.partition, directory.id)

    async def _allocate_producer_ids(self) -> ProducerIdBlock:
        request = AllocateProducerIdsRequest(broker_id=self._node.node_id, broker_epoch=self.broker_epoch)
        response = await self._channel.send(request, AllocateProducerIdsResponse)
        return response.producer_id_start, response.producer_id_len

    async def start(self, listeners: Listeners) -> None:
        """Returns when this broker serves clients."""
        node = self._node
        self._replica_metrics.register(node.metrics)
        self._maintenance.start(node.tasks)
        node.tasks.start(self._compaction.run(), "compaction")
        node.tasks.start(self._logs.run(), "log deletions")
        previous_epoch = PreviousBrokerEpoch(
            node.node_id,
            self._store,
            node.image.committed,
            node.world,
            node.dynamic_config.log_settings,
            self._catch_up,
        )
        lifecycle = self._lifecycle = self._new_lifecycle(listeners, await previous_epoch.determine())
        self._update_cordoned_directories()
        await lifecycle.register()
        if node.dynamic_config.get("log.flush.interval.messages") == 1:
            node.tasks.start(self._record_broker_epoch(lifecycle.broker_epoch), "broker epoch")
        # The image then holds everything committed before the registration, and the registration itself.
        await node.quorum.high_watermark.reached(lifecycle.broker_epoch + 1)
        # Before any log is opened: a log in an offline directory must not be created again, empty, in another one.
        await self._match_logs_with_metadata()
        node.tasks.start(self._replication.run(), "replication")
        self._publisher.publish_everything()
        node.quorum.register(self._publisher)
        await lifecycle.unfence()
        self.broker.serving.set()
        node.tasks.start(lifecycle.run(), "heartbeats")
        node.tasks.start(self._assignments.run(), "directory assignments")
        for topic_partition in self._store.unrecovered():
            self._replication.open_soon(topic_partition)

    def _dynamic_configs_changed(self) -> None:
        self._on_config_changed()
        self._update_cordoned_directories()
        if self._lifecycle is not None:
            self._lifecycle.send_heartbeat_soon()

    async def _catch_up(self) -> None:
        """Returns when the image contains everything that was committed at the time of the call."""
        topic = DescribeQuorumRequestTopicData(METADATA_TOPIC, [DescribeQuorumRequestPartitionData(0)])
        timeout_ms = self._node.config.integer("initial.broker.registration.timeout.ms")
        committed = -1
        while committed < 0:  # a newly elected leader does not know its high watermark yet
            try:
                described = await self._channel.send(
                    DescribeQuorumRequest(topics=[topic]), DescribeQuorumResponse, timeout_ms=timeout_ms
                )
            except KafkaError as error:
                raise NodeFault(f"the metadata of the cluster cannot be fetched: {error}") from error
            committed = described.topics[0].partitions[0].high_watermark
            await asyncio.sleep(_CATCH_UP_RETRY_MS / 1000)
        await self._node.quorum.high_watermark.reached(committed)
        self._node.dynamic_config.on_change()

    async def _record_broker_epoch(self, broker_epoch: int) -> None:
        """Runs in the background: after a crash before it, the broker registers without a previous epoch."""
        for directory in self._store.directories:
            if directory.health.is_online:
                # `directory.health` records the failure.
                with contextlib.suppress(KafkaError):
                    await self._node.world.offload.run(partial(directory.record_broker_epoch, broker_epoch))

    async def _match_logs_with_metadata(self) -> None:
        """Marks logs that metadata does not assign to this broker as stray, and notes the logs that are unreachable."""
        view, store = self._node.image.committed, self._store
        expected: dict[TopicPartition, Uuid] = {
            TopicPartition(topic.name, index): topic.id
            for topic in view.topics()
            for index, info in enumerate(view.partitions(topic.id))
            if self._node.node_id in info.replicas
        }
        await self._node.world.offload.run(store.mark_strays, expected)
        if self._node.storage.offline or not all(directory.health.is_online for directory in store.directories):
            self._logs.mark_unreachable(
                (topic_partition, topic_id)
                for topic_partition, topic_id in expected.items()
                if store.directory_of(topic_partition) is None
            )

    def _new_lifecycle(self, listeners: Listeners, previous_broker_epoch: int) -> BrokerLifecycle:
        config = self._node.config
        registration = Registration(
            broker_id=self._node.node_id,
            cluster_id=self._node.storage.cluster_id,
            incarnation_id=self._node.incarnation_id,
            listeners=listeners,
            rack=config.node.rack,
            directories=tuple(
                self._node.storage.directory_ids[path]
                for path in config.log_dirs
                if path in self._node.storage.directory_ids
            ),
            previous_broker_epoch=previous_broker_epoch,
        )
        return BrokerLifecycle(
            registration,
            self._node.image,
            self._channel.send,
            self._node.world.clock,
            heartbeat_interval_ms=config.integer("broker.heartbeat.interval.ms"),
            session_timeout_ms=config.integer("broker.session.timeout.ms"),
            registration_timeout_ms=config.integer("initial.broker.registration.timeout.ms"),
            offline_directories=self._offline_directories,
            cordoned_directories=lambda: sorted(self._store.cordoned),
        )

    def _offline_directories(self) -> list[Uuid]:
        offline = [directory for directory in self._store.directories if not directory.health.is_online]
        if len(offline) == len(self._store.directories):
            raise NodeFault(f"all log directories have failed: {offline[0].health.reason}")
        return [directory.id for directory in offline]

    def _update_cordoned_directories(self) -> None:
        named = self._node.dynamic_config.get("cordoned.log.dirs")
        self._store.cordoned = frozenset(
            directory.id for directory in self._store.directories if "*" in named or directory.path in named
        )

    async def controlled_shutdown(self) -> None:
        """Controlled shutdown: moves leaderships to other brokers, if there are any."""
        if not any(other.active and other.id != self._node.node_id for other in self._node.image.committed.brokers()):
            # No broker can take over: requests would fail for lack of brokers from now on.
            self.broker.stop_serving()
        if self._lifecycle is not None:
            await self._lifecycle.controlled_shutdown(CONTROLLED_SHUTDOWN_MS)
        # Members that wait in JoinGroup or SyncGroup look for another coordinator now, not when the server has drained.
        self._coordinators.unload()

    async def close(self) -> None:
        """Flushes and closes the logs after every task has ended, so that the next start need not recover them."""
        run = self._node.world.offload.run
        await asyncio.gather(
            *(run(maintenance.close_share, self._store, share, _CLOSING_THREADS) for share in range(_CLOSING_THREADS))
        )
        # A broker that lacks acknowledged records must not register as one that has kept everything.
        lacks_records = any(log.lacks_records for log in self._store.open_logs())
        await run(partial(maintenance.close, self._store, -1 if lacks_records else self.broker_epoch))


def describe_directories(store: LogStore) -> list[LogDirectoryInfo]:
    """Reads sizes and free space; blocking."""
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
