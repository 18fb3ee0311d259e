"""The leader of one partition, as a machine: what may be shown, to whom a write is acknowledged, who is in sync.

The *high watermark* is the least log end among those that must hold a record before it counts: the leader itself (its
flushed end, when every append must reach the disk first), every member of the maximal ISR, and every follower that is
caught up and about to join. It stands still while the ISR is smaller than it must be (KIP-966), and never falls.

The ISR is the controller's to change. The leader proposes, and until it hears the answer either may be in force:

    committed  ── proposes ──▶  proposed          `maximal_isr` is the union of what was and what is proposed
    proposed   ── accepted, or other metadata ──▶  committed (as told)
    proposed   ── refused for a member's sake ──▶  committed (as it was)
    proposed   ── no answer, or not now ──▶  proposed, and asked again
    proposed   ── answered that our state is old ──▶  proposed, until metadata tells the new one

The watermark counts with the maximal ISR, so that whichever ISR the controller elects from holds what was acknowledged.
Who answers a follower hears of whatever this has to be told, or could bring about with its next fetch: of new records
and of the end of the leadership they are to tell at once, of anything else with the answer after this.
A watermark belongs to one leadership: `resign` fails every waiter with NOT_LEADER_OR_FOLLOWER.
"""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple, Protocol

from strandline.log.partition_log import PartitionLog
from strandline.metadata.values import PartitionInfo
from strandline.model.errors import ErrorCode, KafkaError
from strandline.replication.remote import UNKNOWN, RemoteReplica
from strandline.runtime.watermark import Watermark


class Brokers(Protocol):
    """What committed metadata says about other brokers."""

    def registered_epoch(self, broker_id: int) -> int:
        """Of the current registration; -1 when there is none."""
        ...

    def may_join(self, broker_id: int, broker_epoch: int) -> bool:
        """Whether this incarnation is registered, unfenced and not about to leave."""
        ...


class IsrChange(NamedTuple):
    """A proposal to the controller. Members come with the broker epoch they last fetched with; -1 if never."""

    leader_epoch: int
    partition_epoch: int
    members: tuple[tuple[int, int], ...]

    @property
    def isr(self) -> tuple[int, ...]:
        return tuple(broker_id for broker_id, _ in self.members)


class ProposalOutcome(Enum):
    """What an answer to a proposal means for who sent it."""

    DONE = "nothing is left to do"
    RETRY = "send it again"


# The controller refused for the sake of a member: the ISR stays as it was.
_ROLLED_BACK = frozenset({ErrorCode.INELIGIBLE_REPLICA, ErrorCode.OPERATION_NOT_ATTEMPTED})
# The controller knows more than we do: metadata that tells us is on its way.
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


class Leader:
    __slots__ = (
        "_brokers",
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
        self, log: PartitionLog, info: PartitionInfo, node_id: int, brokers: Brokers, previous: Leader | None = None
    ) -> None:
        """`previous`: this broker led before, in an older epoch. When that was the epoch just before, what it knows of
        its followers is still true: nobody else has led since, so nobody told them to cut, and this log only grew. Over
        an epoch that was skipped another one may have led, and what they hold by now is theirs to say."""
        log.epochs.assign(info.leader_epoch, log.log_end_offset)
        self._log = log
        self._log_start_offset = log.log_start_offset
        self._node_id = node_id
        self._brokers = brokers
        self.leader_epoch = info.leader_epoch
        self.epoch_start_offset = log.log_end_offset
        self.high_watermark = Watermark(log.high_watermark)
        self.last_stable_offset = Watermark(log.last_stable_offset)
        self.low_watermark = Watermark(log.log_start_offset)
        self.log_end = Watermark(log.log_end_offset)
        self.partition_epoch = info.partition_epoch
        self.isr = info.isr
        self.proposed: IsrChange | None = None
        uninterrupted = previous is not None and previous.leader_epoch + 1 == info.leader_epoch
        self.remotes: dict[int, RemoteReplica] = previous.remotes if previous is not None and uninterrupted else {}
        self._adopt_replicas(info)

    def _adopt_replicas(self, info: PartitionInfo) -> None:
        self._replica_count = len(info.replicas)
        self.remotes = {
            broker_id: self.remotes.get(broker_id) or RemoteReplica(broker_id)
            for broker_id in info.replicas
            if broker_id != self._node_id
        }
        self._has_news(at_once=False)
        self.on_progress()

    def _has_news(self, *, at_once: bool) -> None:
        for remote in self.remotes.values():
            if remote.listener is not None:
                remote.listener(at_once)

    @property
    def maximal_isr(self) -> tuple[int, ...]:
        if self.proposed is None:
            return self.isr
        return (*self.isr, *(broker_id for broker_id in self.proposed.isr if broker_id not in self.isr))

    @property
    def min_isr(self) -> int:
        """`min.insync.replicas`, as far as there are replicas."""
        return min(self._log.settings.min_insync_replicas, self._replica_count)

    @property
    def is_high_watermark_known(self) -> bool:
        """Whether the high watermark can be told to clients: it is not behind what an earlier leader may have told."""
        return self.high_watermark.value >= self.epoch_start_offset

    def on_append(self, now_ms: int) -> None:
        for remote in self.remotes.values():
            remote.on_append(self.log_end.value, now_ms)
        self.on_progress()

    def on_progress(self) -> None:
        """After an append, a flush, a fetch or a new ISR: move the watermarks and wake who waited for them."""
        log = self._log
        end = log.flushed_offset if log.settings.flush_messages == 1 else log.log_end_offset
        if self.remotes:
            if log.log_end_offset > self.log_end.value:
                self.log_end.advance(log.log_end_offset)
                self._has_news(at_once=True)
            end = self._replicated(end)
        if end > self.high_watermark.value:
            log.advance_high_watermark(end)
            self.high_watermark.advance(end)
            self.last_stable_offset.advance(log.last_stable_offset)
            self._has_news(at_once=False)

    def _replicated(self, end: int) -> int:
        if len(self.isr) < self.min_isr:
            return self.high_watermark.value
        counted = self.maximal_isr
        for remote in self.remotes.values():
            if remote.log_end_offset < end and (remote.broker_id in counted or self._is_joining(remote)):
                end = remote.log_end_offset
        return end

    def _is_joining(self, remote: RemoteReplica) -> bool:
        """It may have been fenced since: that changes nothing about a partition in whose ISR it is not."""
        return remote.joining and self._brokers.may_join(remote.broker_id, remote.broker_epoch)

    def on_log_start_moved(self) -> None:
        """The low watermark is what nobody in the ISR holds any more; who is not in it learns when it fetches."""
        start, counted = self._log.log_start_offset, self.maximal_isr
        if start > self._log_start_offset:
            self._log_start_offset = start
            self._has_news(at_once=False)
        for remote in self.remotes.values():
            if remote.broker_id in counted:
                start = min(start, remote.log_start_offset)
        self.low_watermark.advance(start)

    def check_enough_replicas(self) -> None:
        """Before an append that asks for acknowledgement by all."""
        if self.remotes and len(self.isr) < self.min_isr:
            raise KafkaError(
                ErrorCode.NOT_ENOUGH_REPLICAS,
                f"{self._log.topic_partition} has {len(self.isr)} replicas in sync, {self.min_isr} are needed",
            )

    @property
    def lost_replicas(self) -> bool:
        """Whether what the high watermark has passed is in fewer logs by now than it should be."""
        return bool(self.remotes) and len(self.maximal_isr) < self.min_isr

    def remote(self, broker_id: int, broker_epoch: int, current_leader_epoch: int) -> RemoteReplica | None:
        """Who fetches: None for a client (id below 0), else a follower of this partition. Another broker's word, or a
        former self's, must move nothing."""
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

    def on_fetch(
        self, remote: RemoteReplica, broker_epoch: int, offset: int, log_start_offset: int, now_ms: int
    ) -> IsrChange | None:
        """A follower holds everything below `offset`, which is within this log and of its history. What it may bring
        about is a proposal to take the follower in, or to leave out one that has lost what was committed."""
        if broker_epoch != self._brokers.registered_epoch(remote.broker_id):
            # It knows of its registration before we do. It gets its records; its word counts once we know it too.
            return None
        remote.on_fetch(broker_epoch, offset, log_start_offset, self._log.log_end_offset, now_ms)
        change = None
        if remote.broker_id in self.isr:
            if offset < self.high_watermark.value and self.proposed is None:
                # It once said that it held what it asks for now: a disk has lost what was acknowledged with its word.
                change = self._propose(tuple(broker_id for broker_id in self.isr if broker_id != remote.broker_id))
        else:
            welcome = self._brokers.may_join(remote.broker_id, broker_epoch)
            remote.joining = welcome and remote.caught_up_ms == now_ms
            if welcome and self.proposed is None and self._has_caught_up(remote):
                change = self._propose((*self.isr, remote.broker_id))
        self.on_progress()
        self.on_log_start_moved()
        return change

    def is_fully_caught_up(self, remote: RemoteReplica, broker_epoch: int, offset: int) -> bool:
        """Whether the same fetch by this follower, made again, would bring nothing about: it is in sync, has all there
        is, and its word has been counted."""
        return (
            remote.broker_id in self.isr
            and remote.broker_epoch == broker_epoch
            and remote.log_end_offset == offset == self._log.log_end_offset
        )

    def _has_caught_up(self, remote: RemoteReplica) -> bool:
        """Up to the watermark, and up to where this leadership began: before that point nobody can tell whether what
        the follower holds is of this history (KIP-101)."""
        return remote.log_end_offset >= max(self.high_watermark.value, self.epoch_start_offset)

    def check_lag(self, now_ms: int, lag_time_max_ms: int) -> IsrChange | None:
        """Looked at from time to time: a proposal to leave out who has not been caught up for too long."""
        end = self._log.log_end_offset
        for remote in self.remotes.values():
            if remote.broker_id in self.isr and remote.caught_up_ms is None:
                remote.caught_up_ms = now_ms  # a new leadership gives everybody the time to come forward
            elif remote.joining and remote.lags(end, now_ms, lag_time_max_ms):
                remote.joining = False
        change = None
        if self.proposed is None:
            late = [
                broker_id
                for broker_id, remote in self.remotes.items()
                if broker_id in self.isr and remote.lags(end, now_ms, lag_time_max_ms)
            ]
            if late:
                change = self._propose(tuple(broker_id for broker_id in self.isr if broker_id not in late))
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
        """The controller's word on a proposal; on another one than the current it means nothing any more."""
        if change is not self.proposed:
            return ProposalOutcome.DONE
        if error == ErrorCode.NONE:
            self.isr, self.partition_epoch, self.proposed = isr, partition_epoch, None
        elif error in _ROLLED_BACK:
            self.proposed = None
        else:
            return ProposalOutcome.DONE if error in _OUTDATED else ProposalOutcome.RETRY
        self._has_news(at_once=False)
        self.on_progress()
        return ProposalOutcome.DONE

    def on_metadata(self, info: PartitionInfo) -> None:
        """A committed change within this leader epoch. What we proposed comes back this way too: the answer told the
        ISR before, but not who else is a replica now."""
        if info.partition_epoch < self.partition_epoch:
            return
        if info.partition_epoch > self.partition_epoch:
            self.partition_epoch, self.isr, self.proposed = info.partition_epoch, info.isr, None
        self._adopt_replicas(info)

    def resign(self, why: str) -> None:
        error = KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, why)
        for watermark in (self.high_watermark, self.last_stable_offset, self.low_watermark, self.log_end):
            watermark.lose(error)
        self._has_news(at_once=True)
