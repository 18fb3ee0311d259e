"""One partition on this broker: its log, its leadership, and the questions every request asks of both.

Handlers call it; the table owns it. A partition is known long before its log is opened: `ready()` opens it on first
use, off the event loop, so that a node with thousands of idle partitions starts at once.

A follower's log may be cut, which waits for its turn at the log and then takes a while off the event loop. Whoever is
made leader meanwhile leads when that is over, and not on a log that is about to become shorter; whoever follows in a
new leader epoch asks for nothing before. And a cut whose turn comes when its leader epoch is over is given up:

1. A follower of epoch 4 decides on a cut, and waits. 2. This broker leads epoch 5. 3. It is the cut's turn: what epoch
4's leader said about the end of the log must not be done to epoch 5's leader.

A log that is not whole is not for leading as long as others are in sync or eligible, for they hold what it lacks: the
lead is handed over (docs/decisions/0016). One that ends too early is not even led until then: its followers would drop
what it lost. Once it is taken into the ISR again it has got everything back. Where nobody else has it there is nothing
better, and it leads.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Protocol

from strandline.log.appending import Appended
from strandline.log.partition_log import PartitionLog
from strandline.log.segment import Segment
from strandline.log.truncation import FullTruncation, Truncation
from strandline.log.validation import Validated
from strandline.metadata.values import PartitionInfo
from strandline.model.errors import ErrorCode, KafkaError
from strandline.model.ids import TopicPartition, Uuid
from strandline.replication.fetch_sessions import FetchSession, RequestedPartition
from strandline.replication.leader import Brokers, IsrChange, Leader, RemoteReplica
from strandline.runtime.offload import Offload
from strandline.runtime.tasks import uninterrupted

logger = logging.getLogger(__name__)

Opener = Callable[[], Awaitable[PartitionLog]]
BeginTruncation = Callable[[PartitionLog], Truncation | FullTruncation]


class HostBroker(Protocol):
    """What a partition asks of the broker it is on."""

    @property
    def node_id(self) -> int: ...
    @property
    def brokers(self) -> Brokers: ...

    def flush(self, partition: Partition) -> None:
        """Soon, off the event loop."""
        ...

    def propose(self, partition: Partition, change: IsrChange) -> None:
        """To the controller, until it has answered."""
        ...

    def hand_over_leadership(self, partition: Partition) -> None:
        """The controller hears that this replica is lost, and has another one lead."""
        ...


class Partition:
    __slots__ = (
        "_changing",
        "_dropped",
        "_host",
        "_open",
        "_opening",
        "_truncations",
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
        open_log: Opener,
        host: HostBroker,
    ) -> None:
        self.topic_partition = topic_partition
        self.topic_id = topic_id
        self.info = info
        self.log: PartitionLog | None = None
        self.leader: Leader | None = None
        self._host = host
        self._open = open_log
        self._opening: asyncio.Future[None] | None = None
        self._changing: asyncio.Lock | None = None
        # Cuts that wait for their turn, or are carried out.
        self._truncations = 0
        self._dropped = False

    @property
    def leads(self) -> bool:
        return self.info.leader == self._host.node_id

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
            log.on_corruption(self.hand_over_leadership_if_due)
            self._lead_if_due()
            self.hand_over_leadership_if_due()
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
        refused = self.refuses_to_lead
        if self.log is not None and self._host.node_id in info.isr and self._host.node_id not in self.info.isr:
            self.log.accept_loss()
        self.info = info
        if changed:
            previous = self.leader
            self.resign("the partition has a new leader epoch")
            self._lead_if_due(previous)
        elif self.leader is not None:
            self.leader.on_metadata(info)
        elif refused:
            self._lead_if_due()
        self.hand_over_leadership_if_due()

    @property
    def refuses_to_lead(self) -> bool:
        """It has lost committed records, and others have them."""
        log = self.log
        return self.leads and log is not None and log.lacks_records and self._others_have_it

    @property
    def _others_have_it(self) -> bool:
        """Whoever is in sync or eligible has everything that was committed."""
        return any(replica != self._host.node_id for replica in (*self.info.isr, *self.info.elr))

    def hand_over_leadership_if_due(self) -> bool:
        """Whether somebody else should lead, and can."""
        log = self.log
        due = self.leads and not self._dropped and log is not None and not log.is_intact and self._others_have_it
        if due:
            self._host.hand_over_leadership(self)
        return due

    def _lead_if_due(self, previous: Leader | None = None) -> None:
        log = self.log
        if not self.leads or log is None or self._dropped or self._truncations:
            return
        if self.refuses_to_lead:
            logger.error("%s; another replica has to lead", self._loss(log))
            return
        if log.lacks_records:
            logger.error("%s, and nobody in sync has them: it leads without", self._loss(log))
            log.accept_loss()
        self.leader = Leader(log, self.info, self._host.node_id, self._host.brokers, previous)

    def _loss(self, log: PartitionLog) -> str:
        return f"{self.topic_partition} has lost committed records: from {log.log_end_offset} up to {log.lost_up_to}"

    @property
    def changing(self) -> asyncio.Lock:
        """Held while something changes which segments the log has, or where it ends: one at a time may."""
        if self._changing is None:
            self._changing = asyncio.Lock()
        return self._changing

    @property
    def is_truncating(self) -> bool:
        """Whether the end of the log is about to be another one."""
        return self._truncations > 0

    async def truncate(self, begin: BeginTruncation, offload: Offload, leader_epoch: int) -> list[Segment]:
        """A follower's truncation, or its new beginning, as decided in this leader epoch; the segments to be removed
        from the disk. Once begun it ends: files and memory must not part. Raises KafkaError when the epoch is over."""
        self._truncations += 1
        return await uninterrupted(self._truncate(begin, offload, leader_epoch))

    async def _truncate(self, begin: BeginTruncation, offload: Offload, leader_epoch: int) -> list[Segment]:
        try:
            async with self.changing:
                self._check_follows(leader_epoch)
                step = begin(self._opened())
                await offload.run(step.run)
                return step.apply()
        finally:
            self._truncations -= 1
            if self.leader is None:
                self._lead_if_due()

    def _check_follows(self, leader_epoch: int) -> None:
        if self._dropped or self.leads or self.info.leader_epoch != leader_epoch:
            raise KafkaError(
                ErrorCode.FENCED_LEADER_EPOCH,
                f"{self.topic_partition} is not followed in leader epoch {leader_epoch} any more",
            )

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
            if self.log is not None and self.refuses_to_lead:
                raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, self._loss(self.log))
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, f"{self.topic_partition} is led by {self.info.leader}")
        return self.leader

    def append_as_leader(self, validated: Validated, *, wall_ms: int, now_ms: int) -> Appended:
        leader, log = self.leader or self.leading(), self.log or self._opened()
        appended = log.append_as_leader(validated, leader_epoch=leader.leader_epoch, wall_ms=wall_ms)
        if log.flush_needed(now_ms):
            self._host.flush(self)
        leader.on_append(now_ms)
        return appended

    def append_as_follower(
        self, records: memoryview, *, leader_epoch: int, offset: int, wall_ms: int, now_ms: int
    ) -> None:
        """A follower's append: the leader's bytes, as they are, asked for from `offset` on. Offsets may be missing in
        them (the leader's log was compacted), but not between what is here and what was asked for."""
        self._check_follows(leader_epoch)
        log = self._opened()
        if self._truncations or log.log_end_offset != offset:
            raise KafkaError(
                ErrorCode.INVALID_RECORD, f"{log!r} does not end at {offset} any more, from where on these records are"
            )
        log.append_as_follower(records, wall_ms=wall_ms)
        if log.flush_needed(now_ms):
            self._host.flush(self)

    def on_follower_fetch(
        self,
        remote: RemoteReplica,
        requested: RequestedPartition,
        broker_epoch: int,
        session: FetchSession | None,
        now_ms: int | None,
    ) -> bool:
        """A fetch whose offset is valid. With `now_ms` None the leader does not count the offset: the logs diverge, or
        it was counted before. True when the response must not wait: the high watermark has risen since the last one."""
        leader = self.leading()
        if session is not None:
            remote.session, remote.session_key = session, requested.key
        if now_ms is not None:
            change = leader.on_fetch(remote, broker_epoch, requested.fetch_offset, requested.log_start_offset, now_ms)
            if change is not None:
                self._host.propose(self, change)
        if remote.sent_high_watermark >= leader.high_watermark.value:
            return False
        remote.sent_high_watermark = leader.high_watermark.value
        return True

    def check_lag(self, now_ms: int, lag_time_max_ms: int) -> None:
        self.hand_over_leadership_if_due()
        if self.leader is not None and self.leader.remotes:
            change = self.leader.check_lag(now_ms, lag_time_max_ms)
            if change is not None:
                self._host.propose(self, change)

    def _opened(self) -> PartitionLog:
        if self.log is None:
            raise AssertionError(f"{self.topic_partition} is used before its log is open")
        return self.log

    def flushed(self) -> None:
        if self.leader is not None:
            self.leader.on_progress()
