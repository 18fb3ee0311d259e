"""One partition on this broker: its log, its leadership, and the checks that every request makes of both.

Handlers call it; the table owns it. A partition is known long before its log is opened: `ready()` opens the log on
first use, in a thread, so that a node with thousands of idle partitions starts at once.

A follower's truncation waits for the lock `changing` and then runs in a thread. If this broker becomes the leader
meanwhile, it leads when the truncation is done, not on a log that is about to become shorter; if it follows in a new
leader epoch, it does not fetch before. A truncation whose leader epoch has ended before it gets the lock is cancelled:

1. A follower in epoch 4 decides to truncate, and waits for the lock. 2. This broker becomes the leader in epoch 5. 3.
The truncation gets the lock: it was decided by the log of epoch 4's leader, and must not shorten the log of epoch 5's
leader.

A damaged log should not lead while other replicas are in sync or eligible, which have what it lacks: leadership is
handed over (docs/decisions/0016). A log that lacks committed records does not lead even until then, because its
followers would truncate theirs. When the replica has joined the ISR again, its log is complete. If no other replica has
the records, it leads without them.
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
from strandline.runtime.tasks import run_to_completion

logger = logging.getLogger(__name__)

Opener = Callable[[], Awaitable[PartitionLog]]
BeginTruncation = Callable[[PartitionLog], Truncation | FullTruncation]


class HostBroker(Protocol):
    """What a partition needs of its broker; `PartitionTable` implements it."""

    @property
    def node_id(self) -> int: ...
    @property
    def brokers(self) -> Brokers: ...
    @property
    def lag_time_max_ms(self) -> int: ...

    def flush(self, partition: Partition) -> None:
        """Soon, in a thread; `Partition.flushed` is called afterwards."""
        ...

    def propose(self, partition: Partition, change: IsrChange) -> None:
        """Sends the ISR to the controller, until it has responded."""
        ...

    def hand_over_leadership(self, partition: Partition) -> None:
        """Reports this replica as damaged to the controller, which elects another leader."""
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
        self._truncations = 0
        """How many truncations run or wait for the lock."""
        self._dropped = False

    @property
    def leads(self) -> bool:
        return self.info.leader == self._host.node_id

    async def ready(self) -> PartitionLog:
        """The open log. Concurrent callers share one opening; after a failure the next of them tries again."""
        while self.log is None:
            if self._dropped:
                raise KafkaError(
                    ErrorCode.NOT_LEADER_OR_FOLLOWER, f"{self.topic_partition} is no longer on this broker"
                )
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
        """Called when this broker no longer hosts the partition, even if its log is just being opened."""
        self._dropped = True
        self.resign("the partition is no longer on this broker")

    def on_metadata(self, info: PartitionInfo) -> None:
        """A committed change. Only a new leader epoch replaces the leader; other changes are of the ISR or the
        replicas."""
        if info.partition_epoch < self.info.partition_epoch:
            return
        changed = info.leader_epoch != self.info.leader_epoch
        was_unfit = self.is_unfit_to_lead
        if self.log is not None and self._host.node_id in info.isr and self._host.node_id not in self.info.isr:
            self.log.accept_loss()
        self.info = info
        if changed:
            previous = self.leader
            self.resign("the partition has a new leader epoch")
            self._lead_if_due(previous)
        elif self.leader is not None:
            self.leader.on_metadata(info)
        elif was_unfit:
            self._lead_if_due()
        self.hand_over_leadership_if_due()

    @property
    def is_unfit_to_lead(self) -> bool:
        """The log lacks committed records that other replicas have."""
        log = self.log
        return self.leads and log is not None and log.lacks_records and self._others_have_records

    @property
    def _others_have_records(self) -> bool:
        """Replicas in the ISR or the ELR have all committed records."""
        return any(replica != self._host.node_id for replica in (*self.info.isr, *self.info.elr))

    def hand_over_leadership_if_due(self) -> bool:
        """True when another replica should lead, and can; the controller is then notified."""
        log = self.log
        due = self.leads and not self._dropped and log is not None and not log.is_intact and self._others_have_records
        if due:
            self._host.hand_over_leadership(self)
        return due

    def _lead_if_due(self, previous: Leader | None = None) -> None:
        log = self.log
        if not self.leads or log is None or self._dropped or self._truncations:
            return
        if self.is_unfit_to_lead:
            logger.error("%s; another replica must lead", self._loss(log))
            return
        if log.lacks_records:
            logger.error("%s, and no replica in sync has them: it leads without", self._loss(log))
            log.accept_loss()
        host = self._host
        self.leader = Leader(log, self.info, host.node_id, host.brokers, host.lag_time_max_ms, previous)

    def _loss(self, log: PartitionLog) -> str:
        return f"{self.topic_partition} has lost committed records: from {log.log_end_offset} up to {log.lost_up_to}"

    @property
    def changing(self) -> asyncio.Lock:
        """Held while retention, compaction or truncation changes the segments or the end of the log."""
        if self._changing is None:
            self._changing = asyncio.Lock()
        return self._changing

    @property
    def is_truncating(self) -> bool:
        """Whether the log is about to become shorter."""
        return self._truncations > 0

    async def truncate(self, begin: BeginTruncation, offload: Offload, leader_epoch: int) -> list[Segment]:
        """Truncates a follower's log, as decided in this leader epoch, and returns the segments to be removed from the
        disk. Not cancellable: files and memory must agree. Raises KafkaError when the leader epoch is over."""
        self._truncations += 1
        return await run_to_completion(self._truncate(begin, offload, leader_epoch))

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
                f"{self.topic_partition} is no longer followed in leader epoch {leader_epoch}",
            )

    def resign(self, why: str) -> None:
        if self.leader is not None:
            self.leader.resign(why)
            self.leader = None

    def leading(self, current_leader_epoch: int = -1) -> Leader:
        """The leader, if the partition is open and led here in the client's epoch; else raises the error for the
        client."""
        if current_leader_epoch != -1:
            if current_leader_epoch < self.info.leader_epoch:
                raise KafkaError(ErrorCode.FENCED_LEADER_EPOCH, f"the leader epoch is {self.info.leader_epoch} by now")
            if current_leader_epoch > self.info.leader_epoch:
                raise KafkaError(
                    ErrorCode.UNKNOWN_LEADER_EPOCH, f"this broker knows leader epochs up to {self.info.leader_epoch}"
                )
        if self.leader is None:
            if self.log is not None and self.is_unfit_to_lead:
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
        """Appends the leader's batches unchanged, as fetched from `offset` on. Offsets may be missing within them (the
        leader's log was compacted), but not between this log and `offset`."""
        self._check_follows(leader_epoch)
        log = self._opened()
        if self._truncations or log.log_end_offset != offset:
            raise KafkaError(ErrorCode.INVALID_RECORD, f"{log!r} no longer ends at {offset}, where these records begin")
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
        leader = self.leader or self.leading()
        if session is not None and session is not remote.session:
            remote.attach_session(session, requested.key)
        if now_ms is not None:
            change = leader.on_fetch(remote, broker_epoch, requested.fetch_offset, requested.log_start_offset, now_ms)
            if change is not None:
                self._host.propose(self, change)
        return leader.sends_new_high_watermark(remote)

    def check_lag(self, now_ms: int) -> None:
        self.hand_over_leadership_if_due()
        if self.leader is not None and self.leader.remotes:
            change = self.leader.check_lag(now_ms)
            if change is not None:
                self._host.propose(self, change)

    def _opened(self) -> PartitionLog:
        if self.log is None:
            raise AssertionError(f"{self.topic_partition} is used before its log is open")
        return self.log

    def flushed(self) -> None:
        if self.leader is not None:
            self.leader.on_progress()
