"""Group commit: one fsync in a thread for many appends.

A partition requests a flush after an append that must reach the disk by `flush.messages` or `flush.ms`. Appends during
a flush share the next one. A failed fsync is never retried: the log has taken its directory offline by then, and every
waiter fails with the lost watermark.
"""

from __future__ import annotations

import logging

from strandline.model.errors import KafkaError
from strandline.replication.partition import Partition
from strandline.runtime.offload import Offload
from strandline.runtime.tasks import TaskGroup

logger = logging.getLogger(__name__)


class FlushScheduler:
    def __init__(self, offload: Offload, tasks: TaskGroup) -> None:
        self._offload = offload
        self._tasks = tasks
        self._running: dict[Partition, bool] = {}
        """The partitions with a flush in flight; True if another one was requested meanwhile."""

    def request(self, partition: Partition) -> None:
        if partition in self._running:
            self._running[partition] = True
            return
        self._running[partition] = False
        self._tasks.start(self._flush(partition), name=f"flush {partition.topic_partition}")

    async def _flush(self, partition: Partition) -> None:
        try:
            while partition.log is not None:
                try:
                    await self._offload.run(partition.log.flush)
                except KafkaError as error:
                    logger.error("flush of %s failed: %s", partition.topic_partition, error)
                    partition.resign(f"its log could not be flushed: {error}")
                    return
                partition.flushed()
                if not self._running[partition]:
                    return
                self._running[partition] = False
        finally:
            del self._running[partition]
