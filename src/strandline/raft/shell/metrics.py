"""Metrics of a replica of the quorum, under the names of Kafka's raft-metrics.

Gauges read the machine and the log when they are scraped; the driver records latencies and rates. Kafka's
`current-state` is a string; here each state has a gauge that is 1 while the replica is in it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Final

from strandline.raft.machine.log_port import ReplicaLog
from strandline.raft.machine.replica import Replica
from strandline.runtime.clock import Clock
from strandline.runtime.metrics import Metrics

_GROUP: Final = "kafka.server:type=raft-metrics,name="
_STATES: Final = ("unattached", "prospective", "candidate", "follower", "leader", "resigned")
_RATE_PERIOD_MS: Final = 30_000


class QuorumMetrics:
    def __init__(self, metrics: Metrics | None, clock: Clock) -> None:
        self._metrics = metrics or Metrics()
        self._clock = clock
        self._appended = Rate(clock)
        self._fetched = Rate(clock)
        self._commit_latency = self._metrics.window(_GROUP + "commit-latency")
        self._election_latency = self._metrics.window(_GROUP + "election-latency")
        self._uncommitted: deque[tuple[int, int]] = deque()
        self._without_leader_since_ms: int | None = None
        self._metrics.gauge(_GROUP + "append-records-rate", self._appended.per_second)
        self._metrics.gauge(_GROUP + "fetch-records-rate", self._fetched.per_second)

    def expose(self, replica: Replica, log: ReplicaLog) -> None:
        numbers: dict[str, Callable[[], float]] = {
            "current-leader": lambda: replica.leader_id,
            "current-epoch": lambda: replica.epoch,
            "high-watermark": lambda: -1 if replica.high_watermark is None else replica.high_watermark,
            "log-end-offset": lambda: log.end_offset,
            "log-end-epoch": lambda: log.last_epoch,
            "number-of-voters": lambda: len(log.voters),
        }
        for name, read in numbers.items():
            self._metrics.gauge(_GROUP + name, read)
        for state in _STATES:
            self._metrics.gauge(_GROUP + "current-state", _is_in(replica, state), state=state)
        self.on_leader_changed(replica.leader_id >= 0)

    def on_appended(self, count: int, end_offset: int) -> None:
        self._appended.add(count)
        self._uncommitted.append((end_offset, self._clock.now_ms()))

    def on_fetched(self, count: int) -> None:
        self._fetched.add(count)

    def on_committed(self, offset: int) -> None:
        now_ms = self._clock.now_ms()
        while self._uncommitted and self._uncommitted[0][0] <= offset:
            _, appended_ms = self._uncommitted.popleft()
            self._commit_latency.record(now_ms - appended_ms, now_ms)

    def on_stepped_down(self) -> None:
        self._uncommitted.clear()

    def on_leader_changed(self, is_known: bool) -> None:
        now_ms = self._clock.now_ms()
        if not is_known:
            if self._without_leader_since_ms is None:
                self._without_leader_since_ms = now_ms
        elif self._without_leader_since_ms is not None:
            self._election_latency.record(now_ms - self._without_leader_since_ms, now_ms)
            self._without_leader_since_ms = None


class Rate:
    """Events per second, over the last one or two periods."""

    __slots__ = ("_before", "_clock", "_count", "_period_start_ms")

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._period_start_ms = clock.now_ms()
        self._count = self._before = 0

    def add(self, count: int) -> None:
        self._roll(self._clock.now_ms())
        self._count += count

    def per_second(self) -> float:
        now_ms = self._clock.now_ms()
        self._roll(now_ms)
        return (self._before + self._count) * 1000 / (now_ms - self._period_start_ms + _RATE_PERIOD_MS)

    def _roll(self, now_ms: int) -> None:
        periods = (now_ms - self._period_start_ms) // _RATE_PERIOD_MS
        if periods > 0:
            self._before = self._count if periods == 1 else 0
            self._count = 0
            self._period_start_ms += periods * _RATE_PERIOD_MS


def _is_in(replica: Replica, state: str) -> Callable[[], float]:
    return lambda: float(type(replica.role).__name__.lower() == state)
