"""What a leader knows of one other replica, learnt from that replica's fetches and nothing else. A machine.

A fetch at offset `o` says that everything below `o` is in the follower's log. When it was last *caught up* is judged
backwards too: a follower of a busy partition never finds itself at the end, but one that asks for what was the end at
its previous fetch was caught up then. And one that had everything until a moment ago was caught up until then.

A follower that has everything, and has been told everything, need not be looked at with each of its fetches: who
answers these listens, and hears when there is something new.
"""

from __future__ import annotations

from collections.abc import Callable

UNKNOWN = -1


class RemoteReplica:
    __slots__ = (
        "_fetched_ms",
        "_leader_end_at_fetch",
        "broker_epoch",
        "broker_id",
        "caught_up_ms",
        "joining",
        "listener",
        "log_end_offset",
        "log_start_offset",
        "sent_high_watermark",
    )

    def __init__(self, broker_id: int) -> None:
        self.broker_id = broker_id
        self.broker_epoch = UNKNOWN
        self.log_end_offset = UNKNOWN
        self.log_start_offset = UNKNOWN
        self.sent_high_watermark = UNKNOWN
        # None: never, or not since this leadership began.
        self.caught_up_ms: int | None = None
        # Outside the ISR, caught up, and welcome in it: the high watermark waits for it already.
        self.joining = False
        # Who answers its fetches hears that there is news, and whether that is worth an answer at once.
        self.listener: Callable[[bool], None] | None = None
        self._fetched_ms = 0
        self._leader_end_at_fetch = UNKNOWN

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
        """The leader's log ended there until now."""
        if self.log_end_offset == end_before:
            self.caught_up_ms = now_ms

    def lags(self, leader_end: int, now_ms: int, lag_time_max_ms: int) -> bool:
        if self.log_end_offset == leader_end:
            return False
        return self.caught_up_ms is None or now_ms - self.caught_up_ms > lag_time_max_ms
