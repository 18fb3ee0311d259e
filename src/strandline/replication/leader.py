"""The leader of one partition, as a machine: what consumers may read, when a write is acknowledged, which replicas are
in sync. `replication/partition` constructs one for each leader epoch of this broker; appends and fetches drive it.

The *high watermark* is the smallest log end offset among the replicas that must have a record before it is committed:
the leader itself (its flushed end with `flush.messages=1`), every member of the maximal ISR, and every follower that
may join and was caught up within `replica.lag.time.max.ms`: otherwise a follower of a busy partition, always a few
records behind, would never reach the high watermark and join. It does not move while the ISR is smaller than
`min.insync.replicas` (KIP-966), and never falls.

The controller changes the ISR. The leader proposes, and until the controller responds either ISR may be in force:

    committed  ── proposes ──▶  proposed          `maximal_isr` is the union of both
    proposed   ── accepted, or newer metadata ──▶  committed (the new ISR)
    proposed   ── rejected because of a member ──▶  committed (the old ISR)
    proposed   ── no response, or a transient error ──▶  proposed, and sent again
    proposed   ── rejected because this leader's state is old ──▶  proposed, until newer metadata arrives

The high watermark counts the maximal ISR, so that all replicas the controller may elect hold the acknowledged records.

What a leader knows of a follower (`RemoteReplica`) comes from the follower's fetches only. It notifies the follower's
fetch session of everything that the next response has to contain or the next fetch may bring about; of new records and
of the end of the leadership urgently, so that a waiting fetch is answered at once.

A watermark belongs to one leader epoch: `resign` fails every waiter with NOT_LEADER_OR_FOLLOWER.
"""

from __future__ import annotations

from enum import Enum
from typing import Protocol

import msgspec

from strandline.log.partition_log import PartitionLog
from strandline.metadata.values import PartitionInfo
from strandline.model.errors import ErrorCode, KafkaError
from strandline.protocol.messages.fetch import EpochEndOffset
from strandline.replication.fetch_sessions import FetchSession, RequestedPartition, SessionKey
from strandline.runtime.watermark import Watermark

UNKNOWN = -1


class Brokers(Protocol):
    """What committed metadata says about other brokers."""

    def registered_epoch(self, broker_id: int) -> int:
        """The broker epoch of the current registration; -1 when there is none."""
        ...

    def may_join(self, broker_id: int, broker_epoch: int) -> bool:
        """Whether this incarnation is registered, unfenced and not in controlled shutdown."""
        ...


class IsrChange(msgspec.Struct, frozen=True):
    """A proposal to the controller. Members come with the broker epoch of their last fetch; -1 without one."""

    leader_epoch: int
    partition_epoch: int
    members: tuple[tuple[int, int], ...]

    @property
    def isr(self) -> tuple[int, ...]:
        return tuple(broker_id for broker_id, _ in self.members)


class ProposalOutcome(Enum):
    """What the sender of a proposal does after a response."""

    DONE = "nothing"
    RETRY = "send it again"


# The controller rejects a member: the ISR stays as it was.
_ROLLED_BACK = frozenset({ErrorCode.INELIGIBLE_REPLICA, ErrorCode.OPERATION_NOT_ATTEMPTED})
# The controller has newer metadata, which is on its way to this broker.
_OUTDATED = frozenset(
    {
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.INVALID_UPDATE_VERSION,
        ErrorCode.INVALID_REQUEST,
        ErrorCode.NEW_LEADER_ELECTED,
    }
)


class RemoteReplica:
    """A follower as its leader knows it.

    A fetch at an offset says that the follower has all records below. It is *caught up* at the leader's log end, and
    also, judged backwards, if it fetches from the log end of its previous fetch: a follower of a busy partition never
    reaches the current end. A follower that had everything until an append was caught up until then.
    """

    __slots__ = (
        "_fetched_ms",
        "_leader_end_at_fetch",
        "broker_epoch",
        "broker_id",
        "caught_up_ms",
        "joining",
        "log_end_offset",
        "log_start_offset",
        "sent_high_watermark",
        "session",
        "session_key",
    )

    def __init__(self, broker_id: int) -> None:
        self.broker_id = broker_id
        self.broker_epoch = UNKNOWN
        self.log_end_offset = UNKNOWN
        self.log_start_offset = UNKNOWN
        self.sent_high_watermark = UNKNOWN
        """A fetch is answered at once when the high watermark is above this. The fetch session has one of its own (what
        a response may leave out). This one is also kept for followers without a session, and survives a reset of the
        session, whose first fetch would else be answered at once although the follower knows the high watermark."""
        self.caught_up_ms: int | None = None
        """None if the follower has not been caught up in this leader epoch."""
        self.joining = False
        """The follower is outside the ISR, caught up within the lag time and allowed to join: the high watermark counts
        it already."""
        self.session: FetchSession | None = None
        self.session_key: SessionKey | None = None
        self._fetched_ms = 0
        self._leader_end_at_fetch = UNKNOWN

    def attach_session(self, session: FetchSession, key: SessionKey) -> None:
        """The follower fetches the partition in this session, whose key for it never changes."""
        self.session, self.session_key = session, key

    def on_fetch(self, broker_epoch: int, offset: int, log_start_offset: int, leader_end: int, now_ms: int) -> None:
        if offset >= leader_end:
            self.caught_up_ms = now_ms
        elif 0 <= self._leader_end_at_fetch <= offset:
            self.caught_up_ms = max(self.caught_up_ms or 0, self._fetched_ms)
        self.broker_epoch = broker_epoch
        self.log_end_offset = offset
        self.log_start_offset = log_start_offset
        self._fetched_ms = now_ms
        self._leader_end_at_fetch = leader_end

    def on_append(self, end_before: int, now_ms: int) -> None:
        """The leader's log ended at `end_before` until now."""
        if self.log_end_offset == end_before:
            self.caught_up_ms = now_ms

    def lags(self, leader_end: int, now_ms: int, lag_time_max_ms: int) -> bool:
        if self.log_end_offset == leader_end:
            return False
        return self.caught_up_ms is None or now_ms - self.caught_up_ms > lag_time_max_ms


class Leader:
    __slots__ = (
        "_brokers",
        "_lag_time_max_ms",
        "_log",
        "_log_start_offset",
        "_node_id",
        "_replica_count",
        "epoch_start_offset",
        "high_watermark",
        "isr",
        "last_stable_offset",
        "leader_epoch",
        "log_end",
        "low_watermark",
        "partition_epoch",
        "proposed",
        "remotes",
    )

    def __init__(
        self,
        log: PartitionLog,
        info: PartitionInfo,
        node_id: int,
        brokers: Brokers,
        lag_time_max_ms: int,
        previous: Leader | None = None,
    ) -> None:
        """`previous`: this broker led before. If that was the epoch just before, its knowledge of the followers is
        still true: no other leader made them truncate, and this log only grew. After a skipped epoch another broker may
        have led, and the followers' log ends are unknown until they fetch."""
        log.epochs.assign(info.leader_epoch, log.log_end_offset)
        self._log = log
        self._log_start_offset = log.log_start_offset
        self._node_id = node_id
        self._brokers = brokers
        self._lag_time_max_ms = lag_time_max_ms
        self.leader_epoch = info.leader_epoch
        self.epoch_start_offset = log.log_end_offset
        self.high_watermark = Watermark(log.high_watermark)
        self.last_stable_offset = Watermark(log.last_stable_offset)
        self.low_watermark = Watermark(log.log_start_offset)
        self.log_end = Watermark(log.log_end_offset)
        self.partition_epoch = info.partition_epoch
        self.isr = info.isr
        self.proposed: IsrChange | None = None
        consecutive = previous is not None and previous.leader_epoch + 1 == info.leader_epoch
        self.remotes: dict[int, RemoteReplica] = previous.remotes if previous is not None and consecutive else {}
        self._adopt_replicas(info)

    def _adopt_replicas(self, info: PartitionInfo) -> None:
        self._replica_count = len(info.replicas)
        self.remotes = {
            broker_id: self.remotes.get(broker_id) or RemoteReplica(broker_id)
            for broker_id in info.replicas
            if broker_id != self._node_id
        }
        self._notify_sessions(urgent=False)
        self.on_progress()

    def _notify_sessions(self, *, urgent: bool) -> None:
        for remote in self.remotes.values():
            if remote.session is not None and remote.session_key is not None:
                remote.session.on_news(remote.session_key, urgent=urgent)

    @property
    def maximal_isr(self) -> tuple[int, ...]:
        if self.proposed is None:
            return self.isr
        return (*self.isr, *(broker_id for broker_id in self.proposed.isr if broker_id not in self.isr))

    @property
    def min_isr(self) -> int:
        """`min.insync.replicas`, at most the number of replicas."""
        return min(self._log.settings.min_insync_replicas, self._replica_count)

    @property
    def is_high_watermark_known(self) -> bool:
        """Whether clients may be sent the high watermark: it is not behind the one of an earlier leader."""
        return self.high_watermark.value >= self.epoch_start_offset

    def on_append(self, now_ms: int) -> None:
        for remote in self.remotes.values():
            remote.on_append(self.log_end.value, now_ms)
        self.on_progress()

    def on_progress(self) -> None:
        """Advances the watermarks after an append, a flush, a fetch or a new ISR, which wakes their waiters."""
        log = self._log
        end = log.flushed_offset if log.settings.flush_messages == 1 else log.log_end_offset
        if self.remotes:
            if log.log_end_offset > self.log_end.value:
                self.log_end.advance(log.log_end_offset)
                self._notify_sessions(urgent=True)
            end = self._replicated(end)
        if end > self.high_watermark.value:
            log.advance_high_watermark(end)
            self.high_watermark.advance(end)
            self.last_stable_offset.advance(log.last_stable_offset)
            self._notify_sessions(urgent=False)

    def _replicated(self, end: int) -> int:
        if len(self.isr) < self.min_isr:
            return self.high_watermark.value
        counted = self.maximal_isr
        for remote in self.remotes.values():
            if remote.log_end_offset < end and (remote.broker_id in counted or self._is_joining(remote)):
                end = remote.log_end_offset
        return end

    def _is_joining(self, remote: RemoteReplica) -> bool:
        """The broker may have been fenced since, which does not change a partition in whose ISR it is not."""
        return remote.joining and self._brokers.may_join(remote.broker_id, remote.broker_epoch)

    def on_log_start_moved(self) -> None:
        """Advances the low watermark: the smallest log start offset in the ISR."""
        start, counted = self._log.log_start_offset, self.maximal_isr
        if start > self._log_start_offset:
            self._log_start_offset = start
            self._notify_sessions(urgent=False)
        for remote in self.remotes.values():
            if remote.broker_id in counted:
                start = min(start, remote.log_start_offset)
        self.low_watermark.advance(start)

    def check_enough_replicas(self) -> None:
        """Raises NOT_ENOUGH_REPLICAS before an append with acks=all if the ISR is too small."""
        if self.remotes and len(self.isr) < self.min_isr:
            raise KafkaError(
                ErrorCode.NOT_ENOUGH_REPLICAS,
                f"{self._log.topic_partition} has {len(self.isr)} in-sync replicas, {self.min_isr} are required",
            )

    @property
    def lost_replicas(self) -> bool:
        """Whether fewer replicas than required have what is below the high watermark by now."""
        return bool(self.remotes) and len(self.maximal_isr) < self.min_isr

    def remote(self, broker_id: int, broker_epoch: int, current_leader_epoch: int) -> RemoteReplica | None:
        """The follower that fetches; None for a consumer (id below 0). Rejects brokers that are not replicas, and
        fetches from an earlier registration."""
        if broker_id < 0:
            return None
        remote = self.remotes.get(broker_id)
        if remote is None:
            unknown = current_leader_epoch >= 0
            code = ErrorCode.UNKNOWN_LEADER_EPOCH if unknown else ErrorCode.NOT_LEADER_OR_FOLLOWER
            raise KafkaError(code, f"broker {broker_id} is not a replica of {self._log.topic_partition}")
        newest = max(remote.broker_epoch, self._brokers.registered_epoch(broker_id))
        if broker_epoch < newest or broker_epoch == UNKNOWN:
            raise KafkaError(
                ErrorCode.NOT_LEADER_OR_FOLLOWER, f"broker {broker_id} has epoch {newest} by now, not {broker_epoch}"
            )
        return remote

    def diverging_epoch(self, requested: RequestedPartition) -> EpochEndOffset | None:
        """Where this log diverges from the log of the fetching replica or consumer; None if that one is a prefix of it.
        Raises OFFSET_OUT_OF_RANGE."""
        log, offset, last_epoch = self._log, requested.fetch_offset, requested.last_fetched_epoch
        if last_epoch >= 0:
            epoch, end_offset = log.epochs.end_offset_for(last_epoch, log.log_end_offset)
            if epoch < 0 or end_offset < 0:
                raise KafkaError(ErrorCode.OFFSET_OUT_OF_RANGE, f"epoch {last_epoch} is not known here")
            if epoch < last_epoch or end_offset < offset:
                return EpochEndOffset(epoch=epoch, end_offset=end_offset)
        if not log.log_start_offset <= offset <= log.log_end_offset:
            held = f"{log.topic_partition} has {log.log_start_offset} up to {log.log_end_offset}"
            raise KafkaError(ErrorCode.OFFSET_OUT_OF_RANGE, f"offset {offset} was requested, {held}")
        return None

    def on_fetch(
        self, remote: RemoteReplica, broker_epoch: int, offset: int, log_start_offset: int, now_ms: int
    ) -> IsrChange | None:
        """The follower has everything below `offset`, which is within this log and does not diverge. May propose to add
        the follower to the ISR, or to remove one that has lost committed records."""
        if broker_epoch != self._brokers.registered_epoch(remote.broker_id):
            # The follower learned of its registration first. It receives records, but does not count yet.
            return None
        remote.on_fetch(broker_epoch, offset, log_start_offset, self._log.log_end_offset, now_ms)
        change = None
        if remote.broker_id in self.isr:
            if offset < self.high_watermark.value and self.proposed is None:
                # It has acknowledged what it fetches now: its disk has lost committed records.
                change = self._propose(tuple(broker_id for broker_id in self.isr if broker_id != remote.broker_id))
        else:
            may_join = self._brokers.may_join(remote.broker_id, broker_epoch)
            lags = remote.lags(self._log.log_end_offset, now_ms, self._lag_time_max_ms)
            remote.joining = may_join and not lags
            if may_join and self.proposed is None and self._has_caught_up(remote):
                change = self._propose((*self.isr, remote.broker_id))
        self.on_progress()
        self.on_log_start_moved()
        return change

    def sends_new_high_watermark(self, remote: RemoteReplica) -> bool:
        """Whether the high watermark has risen since the last response to this follower. Records it as sent."""
        if remote.sent_high_watermark >= self.high_watermark.value:
            return False
        remote.sent_high_watermark = self.high_watermark.value
        return True

    def is_fully_caught_up(self, remote: RemoteReplica, broker_epoch: int, offset: int) -> bool:
        """Whether the same fetch of this follower, repeated, would change nothing: it is in the ISR, has all records,
        and has been counted."""
        return (
            remote.broker_id in self.isr
            and remote.broker_epoch == broker_epoch
            and remote.log_end_offset == offset == self._log.log_end_offset
        )

    def _has_caught_up(self, remote: RemoteReplica) -> bool:
        """Whether a follower has reached the high watermark and to the start of this leader epoch: below that, the
        follower's records may be of a diverging log (KIP-101)."""
        return remote.log_end_offset >= max(self.high_watermark.value, self.epoch_start_offset)

    def check_lag(self, now_ms: int) -> IsrChange | None:
        """Called periodically. May propose to remove followers that have not been caught up for too long."""
        end = self._log.log_end_offset
        for remote in self.remotes.values():
            if remote.broker_id in self.isr and remote.caught_up_ms is None:
                remote.caught_up_ms = now_ms  # the whole lag time for the first fetch in a new epoch
            elif remote.joining and remote.lags(end, now_ms, self._lag_time_max_ms):
                remote.joining = False
        change = None
        if self.proposed is None:
            lagging = [
                broker_id
                for broker_id, remote in self.remotes.items()
                if broker_id in self.isr and remote.lags(end, now_ms, self._lag_time_max_ms)
            ]
            if lagging:
                change = self._propose(tuple(broker_id for broker_id in self.isr if broker_id not in lagging))
        self.on_progress()
        return change

    def _propose(self, isr: tuple[int, ...]) -> IsrChange:
        members = tuple(
            (broker_id, self.remotes[broker_id].broker_epoch if broker_id in self.remotes else UNKNOWN)
            for broker_id in isr
        )
        for broker_id in isr:
            if broker_id in self.remotes:
                self.remotes[broker_id].joining = False
        self.proposed = IsrChange(self.leader_epoch, self.partition_epoch, members)
        return self.proposed

    def on_proposal_response(
        self, change: IsrChange, error: ErrorCode, isr: tuple[int, ...] = (), partition_epoch: int = -1
    ) -> ProposalOutcome:
        """The controller's response. It is ignored unless `change` is the current proposal."""
        if change is not self.proposed:
            return ProposalOutcome.DONE
        if error == ErrorCode.NONE:
            self.isr, self.partition_epoch, self.proposed = isr, partition_epoch, None
        elif error in _ROLLED_BACK:
            self.proposed = None
        else:
            return ProposalOutcome.DONE if error in _OUTDATED else ProposalOutcome.RETRY
        self._notify_sessions(urgent=False)
        self.on_progress()
        return ProposalOutcome.DONE

    def on_metadata(self, info: PartitionInfo) -> None:
        """A committed change within this leader epoch, also an accepted proposal: the response contained the ISR, but
        not the replicas."""
        if info.partition_epoch < self.partition_epoch:
            return
        if info.partition_epoch > self.partition_epoch:
            self.partition_epoch, self.isr, self.proposed = info.partition_epoch, info.isr, None
        self._adopt_replicas(info)

    def resign(self, why: str) -> None:
        error = KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, why)
        for watermark in (self.high_watermark, self.last_stable_offset, self.low_watermark, self.log_end):
            watermark.lose(error)
        self._notify_sessions(urgent=True)
