"""One partition that this broker follows, as a machine: what to fetch from the leader, and what its responses mean.

    Fetching         ── records, a high watermark, a log start ──▶  Fetching
    Fetching         ── the logs diverge at the end of an epoch ──▶  Truncating  (until they agree, KIP-101 and KIP-595)
    Fetching         ── the fetch offset is outside the leader's log ──▶  FetchingOffsets
    Fetching         ── records of this log are damaged ──▶  Truncating  (the leader has them undamaged)
    FetchingOffsets  ── the leader's earliest and latest offset ──▶  Truncating, or Fetching
    Truncating       ── done ──▶  Fetching
    any              ── a transient error ──▶  Delayed  ── backoff has passed ──▶  Fetching
    any              ── an error that only new metadata resolves ──▶  Failed

The log is truncated where the *leader epochs* show that it diverges, never at the high watermark: truncation to the
follower's own high watermark may remove acknowledged records, and no truncation may keep records that were never
committed. Only a log without epochs (empty, or of an old format) has nothing better than the high watermark.

The machine holds no records. `replication/fetcher` performs its effects in order and reports the outcome.
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
    """Append the leader's batches unchanged to the log, which ends at this offset."""

    records: Buffer
    offset: int


class Truncate(msgspec.Struct, frozen=True):
    """Remove all records from this offset on."""

    offset: int


class TruncateFully(msgspec.Struct, frozen=True):
    """Remove all records; the log starts at this offset."""

    offset: int


class RaiseHighWatermark(msgspec.Struct, frozen=True):
    """Raises the high watermark to this offset, at most to the log end."""

    offset: int


class RaiseLogStart(msgspec.Struct, frozen=True):
    """The leader has deleted the records below this offset."""

    offset: int


class FetchLeaderOffsets(msgspec.Struct, frozen=True):
    """Request the leader's earliest and latest offset; `on_leader_offsets` receives them."""


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


# The leader does not know of its leadership yet, or has just become ready: that is a matter of milliseconds, in which
# writes with acks=all wait for this follower. So the backoff is short at first.
_LEADER_NOT_READY = frozenset({ErrorCode.UNKNOWN_LEADER_EPOCH, ErrorCode.NOT_LEADER_OR_FOLLOWER})
_FIRST_BACKOFF_MS = 10


class Follower:
    __slots__ = ("_backoff_ms", "_log", "_max_bytes", "_short_backoff_ms", "last_fetch", "leader_epoch", "state")

    def __init__(self, log: PartitionLog, leader_epoch: int, *, max_bytes: int, backoff_ms: int) -> None:
        self._log = log
        self._max_bytes = max_bytes
        self._backoff_ms = backoff_ms
        self._short_backoff_ms = _FIRST_BACKOFF_MS
        self.leader_epoch = leader_epoch
        self.state: State = Fetching()
        self.last_fetch: FetchPartition | None = None

    def start(self) -> list[Effect]:
        """Called before the first fetch. With epochs that fetch detects divergence; without, only the records below the
        high watermark are known to be in the leader's log."""
        log = self._log
        if log.epochs.latest == NO_EPOCH and log.high_watermark < log.log_end_offset:
            return self._become_truncating(Truncate(log.high_watermark))
        return []

    def truncate_damage(self) -> list[Effect]:
        """Truncates, before a fetch, damaged records and all behind them: they are fetched again. Until then the log
        lacks records that it has acknowledged, and must not lead."""
        log, damaged_at = self._log, self._log.damaged_at
        if damaged_at is None or not isinstance(self.state, Fetching):
            return []
        log.require_up_to(log.log_end_offset)
        return self._become_truncating(Truncate(damaged_at))

    @property
    def must_flush(self) -> bool:
        """Whether the log must be flushed before the next fetch. A fetch offset acknowledges all records below it, and
        with `flush.messages=1` only flushed records may be acknowledged, also those appended in an earlier epoch."""
        return self._log.settings.flush_messages == 1 and self._log.flushed_offset < self._log.log_end_offset

    def next_fetch(self, partition: int, now_ms: int) -> FetchPartition | None:
        """The entry of this partition in the next request; None while it cannot be fetched."""
        if isinstance(self.state, Delayed) and now_ms >= self.state.until_ms:
            self._become(Fetching())
        if not isinstance(self.state, Fetching) or self.must_flush:
            return None
        log = self._log
        self.last_fetch = FetchPartition(
            partition=partition,
            current_leader_epoch=self.leader_epoch,
            fetch_offset=log.log_end_offset,
            last_fetched_epoch=log.epochs.latest,
            log_start_offset=log.log_start_offset,
            partition_max_bytes=self._max_bytes,
        )
        return self.last_fetch

    def on_response(self, response: PartitionData, now_ms: int) -> list[Effect]:
        """The leader's response to `next_fetch`. It is ignored if the log has changed since the request (a truncation
        of an earlier leader epoch has ended meanwhile)."""
        if not isinstance(self.state, Fetching) or not self._is_log_unchanged():
            return []
        if response.error_code != ErrorCode.NONE:
            return self._on_error(code_of(response.error_code), now_ms)
        if response.diverging_epoch.epoch >= 0:
            return self._become_truncating(Truncate(self._common_end(response.diverging_epoch)))
        effects: list[Effect] = []
        end_offset = self._log.log_end_offset
        records = response.records
        if records is not None and len(records) > 0:
            assert not isinstance(records, FileSlice)  # decoded, so never a slice of a file
            first = int.from_bytes(records[:8], "big")
            if first < end_offset and self._log.log_start_offset == end_offset:
                # The leader's first batch begins below its log start offset, and this log is empty.
                effects.append(TruncateFully(first))
                end_offset = first
            effects.append(Append(records, end_offset))
        effects.append(RaiseHighWatermark(response.high_watermark))
        if response.log_start_offset > self._log.log_start_offset:
            effects.append(RaiseLogStart(response.log_start_offset))
        return effects

    def _is_log_unchanged(self) -> bool:
        fetch, log = self.last_fetch, self._log
        if fetch is None:
            return False
        return fetch.fetch_offset == log.log_end_offset and fetch.last_fetched_epoch == log.epochs.latest

    def _common_end(self, diverging: EpochEndOffset) -> int:
        """The end of the common log. `diverging.epoch` is the leader's largest epoch not above the latest one here; if
        this log lacks it, the log is truncated to the end of an older epoch and fetched again with that one."""
        log = self._log
        known = log.epochs.end_offset_for(diverging.epoch, log.log_end_offset)
        if known == UNDEFINED:
            return min(diverging.end_offset, log.log_end_offset)
        if known.leader_epoch == diverging.epoch:
            return min(known.end_offset, diverging.end_offset, log.log_end_offset)
        return min(known.end_offset, log.log_end_offset)

    def on_leader_offsets(self, earliest: int, latest: int) -> list[Effect]:
        """The range of the leader's log, requested because the end of this log is outside of it."""
        if not isinstance(self.state, FetchingOffsets):
            return []
        end_offset = self._log.log_end_offset
        if latest < end_offset:
            # An unclean election: records that the leader never had are lost.
            return self._become_truncating(Truncate(latest))
        if earliest > end_offset:
            return self._become_truncating(TruncateFully(earliest))
        self._become(Fetching())
        # The log start offset of a leader is never above its high watermark.
        return [RaiseHighWatermark(earliest), RaiseLogStart(earliest)] if earliest > self._log.log_start_offset else []

    def on_truncated(self) -> None:
        if isinstance(self.state, Truncating):
            self._become(Fetching())

    def on_fetch_failed(self, now_ms: int) -> None:
        """No response, or one that could not be used: fetched again after the backoff."""
        if not isinstance(self.state, Failed | Delayed):
            self._become(Delayed(now_ms + self._backoff_ms))

    def on_log_failed(self, why: str) -> None:
        """The log can no longer be written."""
        if not isinstance(self.state, Failed):
            self._become(Failed(why))

    def _on_error(self, code: ErrorCode, now_ms: int) -> list[Effect]:
        if code == ErrorCode.OFFSET_OUT_OF_RANGE:
            self._become(FetchingOffsets())
            return [FetchLeaderOffsets()]
        if code == ErrorCode.FENCED_LEADER_EPOCH:
            # The leader is ahead of this broker's metadata: its new epoch will arrive and replace this follower.
            self._become(Failed(f"the leader is in an epoch after {self.leader_epoch}"))
        elif code in _LEADER_NOT_READY and self._short_backoff_ms < self._backoff_ms:
            self._become(Delayed(now_ms + self._short_backoff_ms))
            self._short_backoff_ms *= 2
        else:
            self.on_fetch_failed(now_ms)
        return []

    def _become_truncating(self, truncation: Truncate | TruncateFully) -> list[Effect]:
        self._become(Truncating())
        return [truncation]

    def _become(self, state: State) -> None:
        assert type(state) in TRANSITIONS[type(self.state)], f"{self.state} cannot become {state}"
        self.state = state
