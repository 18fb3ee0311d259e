"""One partition on this broker: its log, its leadership, and the questions every client-facing request asks of both.

Handlers call it; the table owns it. A partition is known long before its log is opened: `ready()` opens it on first
use, off the event loop, so that a node with thousands of idle partitions starts at once.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from strandline.log.appending import Appended
from strandline.log.partition_log import PartitionLog
from strandline.log.validation import Validated
from strandline.metadata.values import PartitionInfo
from strandline.model.errors import ErrorCode, KafkaError
from strandline.model.ids import TopicPartition, Uuid
from strandline.replication.leader import Leader

Opener = Callable[[], Awaitable[PartitionLog]]


class Partition:
    __slots__ = (
        "_dropped",
        "_flush",
        "_node_id",
        "_open",
        "_opening",
        "info",
        "leader",
        "log",
        "topic_id",
        "topic_partition",
    )

    def __init__(
        self,
        topic_partition: TopicPartition,
        topic_id: Uuid,
        info: PartitionInfo,
        node_id: int,
        open_log: Opener,
        flush: Callable[[Partition], None],
    ) -> None:
        self.topic_partition = topic_partition
        self.topic_id = topic_id
        self.info = info
        self.log: PartitionLog | None = None
        self.leader: Leader | None = None
        self._node_id = node_id
        self._open = open_log
        self._opening: asyncio.Future[None] | None = None
        self._flush = flush
        self._dropped = False

    @property
    def leads(self) -> bool:
        return self.info.leader == self._node_id

    async def ready(self) -> PartitionLog:
        """The open log. Many may ask at once; it is opened once, and a failure is told to all who asked."""
        while self.log is None:
            if self._dropped:
                raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, f"{self.topic_partition} is gone from this broker")
            if self._opening is not None:
                await asyncio.shield(self._opening)
                continue
            self._opening = asyncio.get_running_loop().create_future()
            try:
                log = await self._open()
            except BaseException:
                opening, self._opening = self._opening, None
                opening.set_result(None)
                raise
            self.log = log
            if self.leads and not self._dropped:
                self.leader = Leader(log, self.info.leader_epoch)
            opening, self._opening = self._opening, None
            opening.set_result(None)
        return self.log

    def drop(self) -> None:
        """This broker no longer holds the partition, even if its log is just being opened."""
        self._dropped = True
        self.resign("the partition is no longer on this broker")

    def on_metadata(self, info: PartitionInfo) -> None:
        """A committed change: a new leader epoch is a new leadership, anything else only a new ISR or replica list."""
        if info.partition_epoch < self.info.partition_epoch:
            return
        changed = info.leader_epoch != self.info.leader_epoch
        self.info = info
        if changed and self.log is not None:
            self.resign("the partition has a new leader epoch")
            if self.leads:
                self.leader = Leader(self.log, info.leader_epoch)

    def resign(self, why: str) -> None:
        if self.leader is not None:
            self.leader.resign(why)
            self.leader = None

    def leading(self, current_leader_epoch: int = -1) -> Leader:
        """The leadership of an open partition, or the error a request for another epoch or another broker gets."""
        if current_leader_epoch != -1:
            if current_leader_epoch < self.info.leader_epoch:
                raise KafkaError(ErrorCode.FENCED_LEADER_EPOCH, f"the leader epoch is {self.info.leader_epoch} by now")
            if current_leader_epoch > self.info.leader_epoch:
                raise KafkaError(ErrorCode.UNKNOWN_LEADER_EPOCH, f"only {self.info.leader_epoch} is known here yet")
        if self.leader is None:
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, f"{self.topic_partition} is led by {self.info.leader}")
        return self.leader

    def append(self, records: memoryview, *, api_version: int, wall_ms: int, now_ms: int) -> Appended:
        leader, log = self.leading(), self._opened()
        appended = log.append_as_leader(
            records, leader_epoch=leader.leader_epoch, wall_ms=wall_ms, now_ms=now_ms, api_version=api_version
        )
        self._after_append(leader, log, now_ms)
        return appended

    def append_validated(self, validated: Validated, *, wall_ms: int, now_ms: int) -> Appended:
        """For a batch whose validation was too heavy for the event loop and took place elsewhere."""
        leader, log = self.leading(), self._opened()
        appended = log.append_validated(validated, leader_epoch=leader.leader_epoch, wall_ms=wall_ms)
        self._after_append(leader, log, now_ms)
        return appended

    def _after_append(self, leader: Leader, log: PartitionLog, now_ms: int) -> None:
        if log.flush_needed(now_ms):
            self._flush(self)
        leader.on_progress()

    def _opened(self) -> PartitionLog:
        if self.log is None:
            raise AssertionError(f"{self.topic_partition} is used before its log is open")
        return self.log

    def flushed(self) -> None:
        if self.leader is not None:
            self.leader.on_progress()
