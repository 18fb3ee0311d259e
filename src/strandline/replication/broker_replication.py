"""Replication of one broker: fetchers for the partitions it follows, ISR checks for those it leads, and the queue in
which logs wait to be opened.

`node` constructs it beside the partition table, runs it, and passes it every step of committed metadata after the table
has replayed it. There is one fetcher for each broker that leads a partition followed here. Requests drive the machines
of led partitions; this module only checks their followers for lag from time to time.

All logs that are opened in the background are queued here. A partition is followed when its log is open. A led
partition with other replicas is opened too, before its followers' first fetches would have to wait for that one after
the other. The logs of sole replicas are opened one at a time, since no other broker waits for them; a request opens its
log at once.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from functools import partial

from strandline.client.peers import Peers
from strandline.log.segment import Segment
from strandline.log.store import LogStore
from strandline.metadata.changes import Changes
from strandline.metadata.values import PartitionInfo, PartitionKey
from strandline.model.errors import KafkaError
from strandline.model.ids import ZERO_UUID, TopicPartition
from strandline.replication.fetch_sessions import FetchSessionCache
from strandline.replication.fetcher import Fetcher, FetcherContext, FollowedPartition
from strandline.replication.follower import Follower
from strandline.replication.isr_proposals import IsrProposals
from strandline.replication.lost_leaders import LostLeaders
from strandline.replication.settings import ReplicationSettings
from strandline.replication.table import PartitionTable
from strandline.runtime.tasks import TaskGroup, YieldCounter, yield_to_loop
from strandline.runtime.world import World

logger = logging.getLogger(__name__)

_OPENERS = 4
_CHECKED_PER_YIELD = 500
_OPENED_PER_YIELD = 100
# A process that exits may close its connections a moment before its listeners: the second probe sees that.
_PROBE_DELAYS_MS = (20, 50)
# When followers should have learned of a new leadership too.
_FOLLOWERS_READY_MS = (10, 60)


class BrokerReplication:
    def __init__(
        self,
        node_id: int,
        table: PartitionTable,
        isr: IsrProposals,
        store: LogStore,
        peers: Peers,
        world: World,
        settings: ReplicationSettings,
        fetch_sessions: FetchSessionCache,
    ) -> None:
        self._node_id = node_id
        self._table = table
        self._isr = isr
        self._store = store
        self._peers = peers
        self._world = world
        self._settings = settings
        self._fetch_sessions = fetch_sessions
        self._waking_followers = False
        self.lost_leaders = LostLeaders(is_enabled=settings.lost_leader_max_wait_ms > 0)
        self._fetcher_context = FetcherContext(
            node_id,
            world,
            peers,
            settings,
            table.brokers.registered_epoch,
            partial(table.brokers.endpoint, settings.listener),
            self._remove_soon,
            self._on_connection_lost,
        )
        self._tasks = TaskGroup()
        self._fetchers: dict[int, Fetcher] = {}
        self._followed: dict[PartitionKey, tuple[int, int]] = {}
        """The leader and the leader epoch of each partition that is followed, or will be when its log is open."""
        self._to_open: asyncio.Queue[PartitionKey] = asyncio.Queue()
        self._sole_to_open: asyncio.Queue[PartitionKey] = asyncio.Queue()
        self._brokers_changed = asyncio.Event()

    async def run(self) -> None:
        """Runs the tasks of replication until cancelled."""
        async with self._tasks as tasks:
            tasks.start(self._isr.run(), "ISR proposals")
            tasks.start(self._check_lag(), "replica lag")
            for number in range(_OPENERS):
                tasks.start(self._open_logs(self._to_open), f"opening of replicated logs {number}")
            tasks.start(self._open_logs(self._sole_to_open), "opening of logs")
            await asyncio.get_running_loop().create_future()

    def on_metadata(self, changes: Changes) -> None:
        """Called after the partition table. Every new leader epoch replaces the follower, even with the same leader."""
        for step in changes.dropped:
            self._stop((step.topic_id, step.partition))
        for step in changes.hosted:
            # The logs of new partitions are created in the background; at the start of a node they exist.
            self._on_leader((step.topic_id, step.partition), step.new, is_new=not changes.is_initial)
        leads_more = False
        for step in changes.leadership:
            self._on_leader((step.topic_id, step.partition), step.new, is_new=False)
            leads_more |= step.new is not None and step.new.leader == self._node_id
        if leads_more and not changes.is_initial and not self._waking_followers:
            self._waking_followers = True
            self._tasks.start(self._wake_followers(), "waking followers")
        if changes.brokers:
            self.lost_leaders.on_brokers_changed(self._table.brokers.may_join)
            for fetcher in self._fetchers.values():
                fetcher.on_brokers_changed()
            self._brokers_changed.set()

    def _on_leader(self, key: PartitionKey, info: PartitionInfo | None, *, is_new: bool) -> None:
        self._stop(key)
        if info is not None and info.leader not in (-1, self._node_id):
            self._followed[key] = info.leader, info.leader_epoch
            self._to_open.put_nowait(key)
        elif info is not None and info.leader == self._node_id and len(info.replicas) > 1:
            self._to_open.put_nowait(key)
        elif is_new:
            self._sole_to_open.put_nowait(key)

    def _stop(self, key: PartitionKey) -> None:
        leader_id, _ = self._followed.pop(key, (-1, -1))
        if leader_id in self._fetchers:
            self._fetchers[leader_id].unfollow(key)

    def open_soon(self, topic_partition: TopicPartition) -> None:
        """Opens (and recovers) a log in the background unless a request opens it earlier."""
        with contextlib.suppress(KafkaError):
            partition = self._table.find(topic_partition.topic, ZERO_UUID, topic_partition.partition)
            self._sole_to_open.put_nowait((partition.topic_id, topic_partition.partition))

    async def _open_logs(self, queue: asyncio.Queue[PartitionKey]) -> None:
        yields = YieldCounter(every=_OPENED_PER_YIELD)
        while True:
            key = await queue.get()
            if yields.due():
                await yield_to_loop()  # a log that is open already takes no wait
            leader = self._followed.get(key)
            try:
                if leader is not None:
                    await self._follow(key, *leader)
                else:
                    await self._table.find("", key[0], key[1], by_id=True).ready()
            except KafkaError as error:
                if leader is None:
                    # Deleted meanwhile, or its directory is offline, which has been logged.
                    logger.debug("%s-%d is not opened: %s", key[0], key[1], error)
                    continue
                logger.warning("%s-%d cannot be followed for now: %s", key[0], key[1], error)
                backoff_s = self._settings.fetch_backoff_ms / 1000
                asyncio.get_running_loop().call_later(backoff_s, queue.put_nowait, key)

    async def _follow(self, key: PartitionKey, leader_id: int, leader_epoch: int) -> None:
        topic_id, index = key
        partition = self._table.find("", topic_id, index, by_id=True)
        log = await partition.ready()
        if self._followed.get(key) != (leader_id, leader_epoch):
            return  # a later epoch has its own entry in the queue
        settings = self._settings
        follower = Follower(log, leader_epoch, max_bytes=settings.fetch_max_bytes, backoff_ms=settings.fetch_backoff_ms)
        self._fetcher(leader_id).follow(FollowedPartition(partition, log, follower))

    def _fetcher(self, leader_id: int) -> Fetcher:
        fetcher = self._fetchers.get(leader_id)
        if fetcher is None:
            fetcher = self._fetchers[leader_id] = Fetcher(leader_id, self._fetcher_context)
            self._tasks.start(fetcher.run(), f"fetcher from broker {leader_id}")
        return fetcher

    async def _wake_followers(self) -> None:
        """A follower requests a new partition with its next fetch, and the one in flight may wait here for half a
        second, in which writes with acks=all would wait for the follower."""
        for delay_ms in _FOLLOWERS_READY_MS:
            await asyncio.sleep(delay_ms / 1000)
            self._waking_followers = False
            self._fetch_sessions.wake_followers()

    def _on_connection_lost(self, leader_id: int) -> None:
        epoch = self._table.brokers.registered_epoch(leader_id)
        lost = self.lost_leaders
        if lost.is_enabled and leader_id not in lost and self._table.brokers.may_join(leader_id, epoch):
            lost.add(leader_id, epoch)
            self._tasks.start(self._wait_for_decision(leader_id), f"lost leader {leader_id}")

    async def _wait_for_decision(self, leader_id: int) -> None:
        """Waits until the controller has fenced the leader, for the configured time at most. A leader that accepts new
        connections is running: only its connection was lost, and there is nothing to wait for."""
        try:
            async with asyncio.timeout(self._settings.lost_leader_max_wait_ms / 1000):
                for delay_ms in _PROBE_DELAYS_MS:
                    await asyncio.sleep(delay_ms / 1000)
                    endpoint = self._table.brokers.endpoint(self._settings.listener, leader_id)
                    if endpoint is not None and await self._peers.refuses_connections(endpoint):
                        await self.lost_leaders.decided([leader_id])
                        break
        except TimeoutError:
            logger.info("broker %d, which refuses connections, is not fenced yet", leader_id)
        finally:
            self.lost_leaders.remove(leader_id)

    async def _check_lag(self) -> None:
        """Periodically, and when brokers change: a follower that was about to join the ISR may be fenced by now."""
        lag_time_max_ms = self._settings.lag_time_max_ms
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(lag_time_max_ms / 2000):
                    await self._brokers_changed.wait()
            self._brokers_changed.clear()
            yields = YieldCounter(every=_CHECKED_PER_YIELD)
            for partition in self._table:
                if yields.due():
                    await yield_to_loop()
                partition.check_lag(self._world.clock.now_ms())

    def _remove_soon(self, segments: list[Segment]) -> None:
        now_ms = self._world.clock.now_ms()
        self._store.segments_to_remove.extend((now_ms, segment) for segment in segments)
