"""Opening and deleting logs, away from the event loop and in an order that is safe: one at a time for each partition.

A deletion is noted the moment its metadata is committed and carried out soon after. Whoever opens the partition earlier
(a topic of the same name was created at once) carries it out first, so that the new topic never sees the old records:

1. `orders` is deleted: noted. 2. `orders` is created anew. 3. A producer opens orders-0: the noted deletion of the old
directory comes first, then the new log is made. 4. The worker finds nothing left to delete.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial

from strandline.log.partition_log import PartitionLog
from strandline.log.settings import LogSettings
from strandline.log.store import LogStore
from strandline.model.errors import ErrorCode, KafkaError
from strandline.model.ids import TopicPartition, Uuid
from strandline.runtime.world import World

logger = logging.getLogger(__name__)


class HostedLogs:
    def __init__(self, store: LogStore, world: World) -> None:
        self._store = store
        self._world = world
        # Partitions that were there before this start and are in no directory that can be read.
        self.unreachable: frozenset[tuple[TopicPartition, Uuid]] = frozenset()
        self._locks: dict[TopicPartition, tuple[asyncio.Lock, int]] = {}
        # Noted deletions, with the delay after which files go for good.
        self._to_delete: dict[TopicPartition, int] = {}
        self._to_open: deque[tuple[TopicPartition, Uuid]] = deque()
        self._work = asyncio.Event()

    async def open(
        self, topic_partition: TopicPartition, topic_id: Uuid, settings: LogSettings, directory_id: Uuid | None = None
    ) -> PartitionLog:
        async with self._alone(topic_partition):
            await self._carry_out_deletion(topic_partition)
            if (topic_partition, topic_id) in self.unreachable:
                # It must not begin anew, empty, in another directory.
                raise KafkaError(
                    ErrorCode.KAFKA_STORAGE_ERROR, f"{topic_partition} is in a log directory that is offline"
                )
            return await self._world.offload.run(
                partial(
                    self._store.open_log,
                    topic_partition,
                    topic_id,
                    settings,
                    wall_ms=self._world.clock.wall_ms(),
                    directory_id=directory_id,
                )
            )

    def open_soon(self, topic_partition: TopicPartition, topic_id: Uuid) -> None:
        """In the background, when nobody asks for it earlier."""
        self._to_open.append((topic_partition, topic_id))
        self._work.set()

    def delete_soon(self, topic_partition: TopicPartition, file_delete_delay_ms: int) -> None:
        self._to_delete[topic_partition] = file_delete_delay_ms
        self._work.set()

    async def run(self, ready: Callable[[TopicPartition, Uuid], Awaitable[object]]) -> None:
        """The background: deletions first, then openings, one after the other so that requests are hardly delayed.

        `ready` opens a partition the way a request does (through `replication/table`)."""
        while True:
            await self._work.wait()
            self._work.clear()
            while self._to_delete or self._to_open:
                try:
                    if self._to_delete:
                        topic_partition = next(iter(self._to_delete))
                        async with self._alone(topic_partition):
                            await self._carry_out_deletion(topic_partition)
                    else:
                        topic_partition, topic_id = self._to_open.popleft()
                        await ready(topic_partition, topic_id)
                except KafkaError as error:
                    # Deleted meanwhile, or its directory is offline, which has been said once already.
                    logger.debug("%s is left alone: %s", topic_partition, error)

    async def _carry_out_deletion(self, topic_partition: TopicPartition) -> None:
        delay_ms = self._to_delete.get(topic_partition)
        if delay_ms is None:
            return
        remove_at_ms = self._world.clock.now_ms() + delay_ms
        try:
            await self._world.offload.run(partial(self._store.delete_log, topic_partition, remove_at_ms=remove_at_ms))
        finally:
            # What could not be renamed is still told apart by its topic id, and set aside when the name is used again.
            self._to_delete.pop(topic_partition, None)

    @asynccontextmanager
    async def _alone(self, topic_partition: TopicPartition) -> AsyncIterator[None]:
        lock, users = self._locks.get(topic_partition, (asyncio.Lock(), 0))
        self._locks[topic_partition] = lock, users + 1
        try:
            async with lock:
                yield
        finally:
            lock, users = self._locks[topic_partition]
            if users == 1:
                del self._locks[topic_partition]
            else:
                self._locks[topic_partition] = lock, users - 1
