"""Opening and deleting logs in threads and in a safe order: one operation at a time for each partition.

A deletion is noted when its metadata is committed and carried out soon after. A request that opens the partition
earlier, because a topic of the same name was created at once, carries the deletion out first, so that the new topic
never sees the old records:

1. `orders` is deleted: noted. 2. `orders` is created again. 3. A producer opens orders-0: the old directory is deleted,
then the new log is created. 4. `run` finds nothing left to delete.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Iterable
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
        self._unreachable: frozenset[tuple[TopicPartition, Uuid]] = frozenset()
        self._locks: dict[TopicPartition, tuple[asyncio.Lock, int]] = {}
        self._to_delete: dict[TopicPartition, int] = {}
        """Noted deletions, with the delay after which the files are removed."""
        self._deletion_noted = asyncio.Event()

    def mark_unreachable(self, partitions: Iterable[tuple[TopicPartition, Uuid]]) -> None:
        """Makes `open` reject these partitions: they existed before this start and are in no online directory."""
        self._unreachable = frozenset(partitions)

    async def open(
        self, topic_partition: TopicPartition, topic_id: Uuid, settings: LogSettings, directory_id: Uuid | None = None
    ) -> PartitionLog:
        async with self._exclusive(topic_partition):
            await self._carry_out_deletion(topic_partition)
            if (topic_partition, topic_id) in self._unreachable:
                # It must not be created again, empty, in another directory.
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

    def delete_soon(self, topic_partition: TopicPartition, file_delete_delay_ms: int) -> None:
        self._to_delete[topic_partition] = file_delete_delay_ms
        self._deletion_noted.set()

    async def run(self) -> None:
        """Carries out noted deletions, one after the other so that requests are hardly delayed."""
        while True:
            await self._deletion_noted.wait()
            self._deletion_noted.clear()
            while self._to_delete:
                topic_partition = next(iter(self._to_delete))
                try:
                    async with self._exclusive(topic_partition):
                        await self._carry_out_deletion(topic_partition)
                except KafkaError as error:
                    # Its directory is offline, which has been logged.
                    logger.debug("%s is not deleted: %s", topic_partition, error)

    async def _carry_out_deletion(self, topic_partition: TopicPartition) -> None:
        delay_ms = self._to_delete.get(topic_partition)
        if delay_ms is None:
            return
        remove_at_ms = self._world.clock.now_ms() + delay_ms
        try:
            await self._world.offload.run(partial(self._store.delete_log, topic_partition, remove_at_ms=remove_at_ms))
        finally:
            # A directory that could not be renamed has another topic id, and is set aside when the name is used again.
            self._to_delete.pop(topic_partition, None)

    @asynccontextmanager
    async def _exclusive(self, topic_partition: TopicPartition) -> AsyncIterator[None]:
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
