"""Whose death is in doubt: brokers that were fenced on evidence, until their session would have been over.

Evidence may be wrong (docs/decisions/0009), and must not cost a record. While a broker is in doubt nobody is elected
uncleanly in its place, by whatever decision: a stale replica that comes back, a look around, a setting, a reassignment.
Only a user who asks for an unclean leader himself gets one. `controller.election_rules` asks here for all who
decide; `controller.fencing` says when time is up, and then has unclean leaders looked for, as without evidence.

A doubt needs no end when the broker is heard again: it is unfenced, and leads again whatever it was in sync with.
"""

from __future__ import annotations

from strandline.metadata.values import PartitionInfo


class UnconfirmedFailures:
    def __init__(self) -> None:
        self._until_ms: dict[int, int] = {}

    def begin(self, broker_id: int, until_ms: int) -> None:
        self._until_ms[broker_id] = until_ms

    def end(self, now_ms: int) -> bool:
        """Those that are over; whether there were any."""
        over = [broker_id for broker_id, until_ms in self._until_ms.items() if until_ms <= now_ms]
        for broker_id in over:
            del self._until_ms[broker_id]
        return bool(over)

    def clear(self) -> None:
        self._until_ms.clear()

    def postpone(self, by_ms: int) -> None:
        for broker_id in self._until_ms:
            self._until_ms[broker_id] += by_ms

    def next_deadline_ms(self) -> int | None:
        return min(self._until_ms.values(), default=None)

    def about(self, partition: PartitionInfo) -> bool:
        """Whether somebody may live who has what an unclean leader would lack."""
        if not self._until_ms:
            return False
        return any(each in self._until_ms for each in (*partition.isr, *partition.elr, *partition.last_known_elr))
