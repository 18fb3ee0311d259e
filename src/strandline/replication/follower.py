"""One partition that this broker follows, as a machine: what to ask the leader for, and what its answers mean.

    Fetching   ── records, a high watermark, a log start ──▶  Fetching
    Fetching   ── the histories part at an epoch's end ──▶  Truncating   (until they agree, KIP-101 and KIP-595)
    Fetching   ── the offset is out of the leader's range ──▶  FetchingOffsets
    Fetching   ── records here are found to be damaged ──▶  Truncating   (the leader has them whole)
    FetchingOffsets     ── the leader's log begins and ends there ──▶  Truncating, or Fetching
    Truncating    ── done ──▶  Fetching
    any        ── an error that passes ──▶  Delayed  ── its time ──▶  Fetching
    any        ── an error that only new metadata can mend ──▶  Failed

The log is cut where the *leader epochs* say that the histories part, never at the high watermark: a follower that cuts
to its own high watermark may drop what was acknowledged, and one that does not cut at all may keep what never was. Only
a log that knows no epochs (of an ancient format, or empty) has nothing better to go by.

The machine holds no records. Its effects are performed in order by `replication/fetcher`, which tells it the outcome.
"""

from __future__ import annotations

import msgspec

from strandline.log.epochs import NO_EPOCH, UNDEFINED
from strandline.log.partition_log import PartitionLog
from strandline.model.errors import ErrorCode, code_of
from strandline.protocol.messages.fetch import EpochEndOffset, FetchPartition, PartitionData
from strandline.runtime.disk import Buffer
from strandline.runtime.file_slice import FileSlice


class Append(msgspec.Struct, frozen=True):
    """The leader's batches, as they are, to a log that ends at this offset."""

    records: Buffer
    offset: int


class Truncate(msgspec.Struct, frozen=True):
    """Drop everything from this offset on."""

    offset: int


class TruncateFully(msgspec.Struct, frozen=True):
    """Drop everything; the log begins at this offset."""

    offset: int


class RaiseHighWatermark(msgspec.Struct, frozen=True):
    """To this offset, as far as the log goes."""

    offset: int


class RaiseLogStart(msgspec.Struct, frozen=True):
    """The leader has dropped what is below this offset."""

    offset: int


class FetchLeaderOffsets(msgspec.Struct, frozen=True):
    """Where the leader's log begins and ends; to be answered with `on_offsets`."""


Effect = Append | Truncate | TruncateFully | RaiseHighWatermark | RaiseLogStart | FetchLeaderOffsets


class Fetching(msgspec.Struct, frozen=True):
    pass


class Truncating(msgspec.Struct, frozen=True):
    pass


class FetchingOffsets(msgspec.Struct, frozen=True):
    pass


class Delayed(msgspec.Struct, frozen=True):
    until_ms: int


class Failed(msgspec.Struct, frozen=True):
    why: str


State = Fetching | Truncating | FetchingOffsets | Delayed | Failed

TRANSITIONS: dict[type[State], frozenset[type[State]]] = {
    Fetching: frozenset({Truncating, FetchingOffsets, Delayed, Failed}),
    Truncating: frozenset({Fetching, Delayed, Failed}),
    FetchingOffsets: frozenset({Truncating, Fetching, Delayed, Failed}),
    Delayed: frozenset({Fetching, Failed}),
    Failed: frozenset(),
}


class Follower:
    __slots__ = ("_backoff_ms", "_log", "_max_bytes", "asked", "leader_epoch", "state")

    def __init__(self, log: PartitionLog, leader_epoch: int, *, max_bytes: int, backoff_ms: int) -> None:
        self._log = log
        self._max_bytes = max_bytes
        self._backoff_ms = backoff_ms
        self.leader_epoch = leader_epoch
        self.state: State = Fetching()
        # What was last asked for.
        self.asked: FetchPartition | None = None

    def start(self) -> list[Effect]:
        """Before the first fetch. With epochs the first fetch finds out what to cut; without, only the high watermark
        is known to be of the leader's history."""
        log = self._log
        if log.epochs.latest == NO_EPOCH and log.high_watermark < log.log_end_offset:
            return self._become_truncating(Truncate(log.high_watermark))
        return []

    def mend(self) -> list[Effect]:
        """Before a fetch. What is damaged is cut off with all that is behind it, to be fetched again. Until then this
        log ends before what it once vouched for: it is not to lead."""
        log, damaged_at = self._log, self._log.damaged_at
        if damaged_at is None or not isinstance(self.state, Fetching):
            return []
        log.lost_up_to = max(log.lost_up_to, log.log_end_offset)
        return self._become_truncating(Truncate(damaged_at))

    @property
    def must_flush(self) -> bool:
        """Whether something is to reach the disk before the next fetch. To ask for what comes after a record is to
        vouch for it; and where every record must be on the disk, that is where it must be. What an earlier following,
        or a leadership, appended here is vouched for by this one."""
        return self._log.settings.flush_messages == 1 and self._log.flushed_offset < self._log.log_end_offset

    def wanted(self, partition: int, now_ms: int) -> FetchPartition | None:
        """Its part in the next request; None while there is something else to do first."""
        if isinstance(self.state, Delayed) and now_ms >= self.state.until_ms:
            self._become(Fetching())
        if not isinstance(self.state, Fetching) or self.must_flush:
            return None
        log = self._log
        self.asked = FetchPartition(
            partition=partition,
            current_leader_epoch=self.leader_epoch,
            fetch_offset=log.log_end_offset,
            last_fetched_epoch=log.epochs.latest,
            log_start_offset=log.log_start_offset,
            partition_max_bytes=self._max_bytes,
        )
        return self.asked

    def on_answer(self, answer: PartitionData, now_ms: int) -> list[Effect]:
        """The leader's answer to what `wanted` asked for. It speaks of the log as it was then: of one that has changed
        since (a cut that an earlier following began has ended meanwhile) it says nothing."""
        if not isinstance(self.state, Fetching) or not self._is_as_asked():
            return []
        if answer.error_code != ErrorCode.NONE:
            return self._on_error(code_of(answer.error_code), now_ms)
        if answer.diverging_epoch.epoch >= 0:
            return self._become_truncating(Truncate(self._common_end(answer.diverging_epoch)))
        effects: list[Effect] = []
        end_offset = self._log.log_end_offset
        records = answer.records
        if records is not None and len(records) > 0:
            assert not isinstance(records, FileSlice)  # decoded, so never a slice of a file
            first = int.from_bytes(records[:8], "big")
            if first < end_offset and self._log.log_start_offset == end_offset:
                # The leader's first batch reaches over where it says that its log begins, and nothing is here yet.
                effects.append(TruncateFully(first))
                end_offset = first
            effects.append(Append(records, end_offset))
        effects.append(RaiseHighWatermark(answer.high_watermark))
        if answer.log_start_offset > self._log.log_start_offset:
            effects.append(RaiseLogStart(answer.log_start_offset))
        return effects

    def _is_as_asked(self) -> bool:
        asked, log = self.asked, self._log
        if asked is None:
            return False
        return asked.fetch_offset == log.log_end_offset and asked.last_fetched_epoch == log.epochs.latest

    def _common_end(self, diverging: EpochEndOffset) -> int:
        """The end of what both logs have. The leader's largest epoch not above our latest is `diverging.epoch`; when we
        lack that one, we cut back to an older epoch of ours and ask again with it."""
        log = self._log
        known = log.epochs.end_offset_for(diverging.epoch, log.log_end_offset)
        if known == UNDEFINED:
            return min(diverging.end_offset, log.log_end_offset)
        if known.leader_epoch == diverging.epoch:
            return min(known.end_offset, diverging.end_offset, log.log_end_offset)
        return min(known.end_offset, log.log_end_offset)

    def on_offsets(self, earliest: int, latest: int) -> list[Effect]:
        """Where the leader's log begins and ends, asked because our end is outside of it."""
        if not isinstance(self.state, FetchingOffsets):
            return []
        end_offset = self._log.log_end_offset
        if latest < end_offset:
            # An unclean election: what the leader never had is lost.
            return self._become_truncating(Truncate(latest))
        if earliest > end_offset:
            return self._become_truncating(TruncateFully(earliest))
        self._become(Fetching())
        # A leader's log never begins above its high watermark.
        return [RaiseHighWatermark(earliest), RaiseLogStart(earliest)] if earliest > self._log.log_start_offset else []

    def on_truncated(self) -> None:
        if isinstance(self.state, Truncating):
            self._become(Fetching())

    def on_fetch_failed(self, now_ms: int) -> None:
        """No answer, or one that could not be used: again after a while."""
        if not isinstance(self.state, Failed | Delayed):
            self._become(Delayed(now_ms + self._backoff_ms))

    def on_log_failed(self, why: str) -> None:
        """The log cannot be written any more."""
        if not isinstance(self.state, Failed):
            self._become(Failed(why))

    def _on_error(self, code: ErrorCode, now_ms: int) -> list[Effect]:
        if code == ErrorCode.OFFSET_OUT_OF_RANGE:
            self._become(FetchingOffsets())
            return [FetchLeaderOffsets()]
        if code == ErrorCode.FENCED_LEADER_EPOCH:
            # The leader is ahead of us: the metadata that tells of its epoch begins a new following.
            self._become(Failed(f"the leader has left epoch {self.leader_epoch}"))
        else:
            self.on_fetch_failed(now_ms)
        return []

    def _become_truncating(self, cut: Truncate | TruncateFully) -> list[Effect]:
        self._become(Truncating())
        return [cut]

    def _become(self, state: State) -> None:
        assert type(state) in TRANSITIONS[type(self.state)], f"{self.state} cannot become {state}"
        self.state = state
