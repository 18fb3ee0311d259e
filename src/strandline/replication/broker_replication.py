"""Engine 3 at work: followers fetch, leaders watch over their ISR, proposals reach the controller.

`node` makes one beside the partition table, runs it, and hands it every step of committed metadata after the table has
seen it. There is one fetcher for each broker that leads something this one follows. Partitions that this broker leads
need nothing here: requests drive their machines, and from time to time a look at who lags behind.

A log is opened before its partition is followed, a few at a time, in the background. So are those that others follow:
otherwise the first fetch of each follower would have to wait for one after the other.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import deque
from itertools import count

from strandline.client.peers import Peers
from strandline.log.segment import Segment
from strandline.log.store import LogStore
from strandline.metadata.changes import Changes
from strandline.metadata.image import Image
from strandline.metadata.values import PartitionKey
from strandline.model.errors import KafkaError
from strandline.model.ids import Endpoint
from strandline.replication.fetcher import Fetcher, FetcherContext, FollowedPartition
from strandline.replication.follower import Follower
from strandline.replication.isr import IsrChanges, Send
from strandline.replication.settings import ReplicationSettings
from strandline.replication.table import PartitionTable
from strandline.runtime.tasks import TaskGroup, yield_to_loop
from strandline.runtime.world import World

logger = logging.getLogger(__name__)

_OPENERS = 4
_LOOKED_AT_PER_TURN = 500
_OPENED_PER_TURN = 100


class BrokerReplication:
    def __init__(
        self,
        node_id: int,
        table: PartitionTable,
        image: Image,
        store: LogStore,
        peers: Peers,
        send_to_controller: Send,
        world: World,
        settings: ReplicationSettings,
    ) -> None:
        self._node_id = node_id
        self._table = table
        self._image = image
        self._store = store
        self._world = world
        self._settings = settings
        self._isr = IsrChanges(node_id, send_to_controller, self._broker_epoch)
        table.on_proposal = self._isr.propose
        self._equipment = FetcherContext(
            node_id, world, peers, settings, table.brokers.registered_epoch, self._endpoint, self._remove_soon
        )
        self._tasks = TaskGroup()
        self._fetchers: dict[int, Fetcher] = {}
        # What is followed, or will be as soon as its log is open: by whom it is led, and in which leader epoch.
        self._followed: dict[PartitionKey, tuple[int, int]] = {}
        self._to_open: deque[PartitionKey] = deque()
        self._opening = asyncio.Semaphore(0)
        self._brokers_changed = asyncio.Event()

    async def run(self) -> None:
        """Until cancelled."""
        async with self._tasks as tasks:
            tasks.start(self._isr.run(), "ISR proposals")
            tasks.start(self._watch_lag(), "replica lag")
            for number in range(_OPENERS):
                tasks.start(self._open_logs(), f"opening of followed logs {number}")
            await asyncio.get_running_loop().create_future()

    def on_metadata(self, changes: Changes) -> None:
        """After the partition table has heard of it. A new leader epoch is a new following, even of the same leader."""
        for step in changes.dropped:
            self._stop((step.topic_id, step.partition))
        for step in (*changes.hosted, *changes.leadership):
            key, info = (step.topic_id, step.partition), step.new
            self._stop(key)
            if info is None or info.leader == -1:
                continue
            if info.leader != self._node_id:
                self._followed[key] = info.leader, info.leader_epoch
                self._open_soon(key)
            elif len(info.replicas) > 1:
                self._open_soon(key)
        if changes.brokers:
            for fetcher in self._fetchers.values():
                fetcher.on_brokers_changed()
            self._brokers_changed.set()

    def _stop(self, key: PartitionKey) -> None:
        leader_id, _ = self._followed.pop(key, (-1, -1))
        if leader_id in self._fetchers:
            self._fetchers[leader_id].unfollow(key)

    def _open_soon(self, key: PartitionKey) -> None:
        self._to_open.append(key)
        self._opening.release()

    async def _open_logs(self) -> None:
        for number in count(1):
            await self._opening.acquire()
            if number % _OPENED_PER_TURN == 0:
                await yield_to_loop()  # those that are open already cost no wait
            key = self._to_open.popleft()
            try:
                await self._open(key)
            except KafkaError as error:
                logger.warning("%s-%d cannot be followed for now: %s", key[0], key[1], error)
                backoff_s = self._settings.fetch_backoff_ms / 1000
                asyncio.get_running_loop().call_later(backoff_s, self._open_soon, key)

    async def _open(self, key: PartitionKey) -> None:
        wanted = self._followed.get(key)
        if wanted is not None:
            await self._follow(key, *wanted)
        else:
            # Nobody need hear of it if it cannot be opened, or is gone: whoever asks for it does.
            with contextlib.suppress(KafkaError):
                await self._table.find("", key[0], key[1], by_id=True).ready()

    async def _follow(self, key: PartitionKey, leader_id: int, leader_epoch: int) -> None:
        topic_id, index = key
        partition = self._table.find("", topic_id, index, by_id=True)
        log = await partition.ready()
        if self._followed.get(key) != (leader_id, leader_epoch):
            return  # overtaken; what overtook it has its own place in the queue
        settings = self._settings
        follower = Follower(log, leader_epoch, max_bytes=settings.fetch_max_bytes, backoff_ms=settings.fetch_backoff_ms)
        self._fetcher(leader_id).follow(FollowedPartition(partition, log, follower))

    def _fetcher(self, leader_id: int) -> Fetcher:
        fetcher = self._fetchers.get(leader_id)
        if fetcher is None:
            fetcher = self._fetchers[leader_id] = Fetcher(leader_id, self._equipment)
            self._tasks.start(fetcher.run(), f"fetcher from broker {leader_id}")
        return fetcher

    async def _watch_lag(self) -> None:
        """From time to time, and when brokers come or go: who was about to join may be gone."""
        lag_time_max_ms = self._settings.lag_time_max_ms
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(lag_time_max_ms / 2000):
                    await self._brokers_changed.wait()
            self._brokers_changed.clear()
            for number, partition in enumerate(self._table):
                if number % _LOOKED_AT_PER_TURN == _LOOKED_AT_PER_TURN - 1:
                    await yield_to_loop()
                partition.on_time(self._world.clock.now_ms(), lag_time_max_ms)

    def _broker_epoch(self) -> int:
        return self._table.brokers.registered_epoch(self._node_id)

    def _endpoint(self, broker_id: int) -> Endpoint | None:
        info = self._image.committed.broker(broker_id)
        found = info.endpoint(self._settings.listener) if info is not None else None
        return Endpoint(found.host, found.port) if found is not None else None

    def _remove_soon(self, segments: list[Segment]) -> None:
        now_ms = self._world.clock.now_ms()
        self._store.segments_to_remove.extend((now_ms, segment) for segment in segments)
