"""Leaders to which this broker has just lost its connection, until the controller has decided about them.

`replication/broker_replication` adds a leader when a fetch from it ends with a lost connection. The leader is lost
until the controller has fenced it, or it accepts connections after all, or for `strandline.lost.leader.max.wait.ms`.
Handlers whose response would name such a leader wait for that first: the client, which has lost its connection too,
would otherwise be sent back to the failed broker (docs/decisions/0019-responses-that-name-a-failed-leader.md).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable


class LostLeaders:
    __slots__ = ("_lost", "is_enabled")

    def __init__(self, *, is_enabled: bool = False) -> None:
        self.is_enabled = is_enabled
        self._lost: dict[int, tuple[int, asyncio.Event]] = {}
        """The broker epoch by broker id, and an event that is set when the decision is made."""

    def __bool__(self) -> bool:
        return bool(self._lost)

    def __contains__(self, broker_id: int) -> bool:
        return broker_id in self._lost

    def add(self, broker_id: int, broker_epoch: int) -> None:
        self._lost[broker_id] = broker_epoch, asyncio.Event()

    def remove(self, broker_id: int) -> None:
        lost = self._lost.pop(broker_id, None)
        if lost is not None:
            lost[1].set()

    def on_brokers_changed(self, is_active: Callable[[int, int], bool]) -> None:
        """Removes the leaders that are fenced or registered anew. `is_active` takes a broker's id and its epoch."""
        for broker_id, (broker_epoch, _) in list(self._lost.items()):
            if not is_active(broker_id, broker_epoch):
                self.remove(broker_id)

    def among(self, broker_ids: Iterable[int]) -> list[int]:
        return [broker_id for broker_id in dict.fromkeys(broker_ids) if broker_id in self._lost]

    async def decided(self, broker_ids: Iterable[int]) -> None:
        """Waits until none of these is lost any more."""
        for _, event in [self._lost[broker_id] for broker_id in broker_ids if broker_id in self._lost]:
            await event.wait()
