"""Death noticed fast: which brokers are dead, by evidence and not by silence. The reasons: docs/decisions/0009.

A process that was killed leaves traces at once: the kernel ends its connections, and refuses new ones to its listeners.
One that is paused, cut off or unplugged leaves none, and is left to its session. So a broker is taken for dead when

- its heartbeat connection ended without goodbye (or this controller became active and has not heard it yet), and
- every listener that it registered refused a dial, twice with a pause in between, and it was not heard meanwhile.

A dial that is answered, or that hangs, proves nothing; it is tried again every second for as long as the broker has not
been heard, since without a heartbeat connection there is nothing that could end when it dies a moment later.

               connection lost,               every listener refuses,
               or never heard                 and again after a pause             heard again, same epoch
    trusted ────────────────────▶ missed ──────────────────────────────▶ dead ──────────────────────────▶ spared
       ▲                            │ ▲                                    │                                 │
       └──────── heard ─────────────┘ └─── one late heartbeat ─────────────┘       a minute without evidence │
       ▲─────────────────────────────────────────────────────────────────────────────────────────────────────┘

A heartbeat may have been read before the connection's end and be handled after it. A broker has one under way at most,
so the first that arrives after the end only starts the dials anew; the second is a sign of life.

A registration under the id of a missed broker: the newcomer may sit on the very address that would have refused a dial.
But if it names a log directory of its predecessor, it holds the lock on it, and two living processes cannot. Only a
directory that was *copied* can deceive, so a predecessor must have been missed for longer than the interval at which
a living one is heard, and any address that the newcomer does not claim for itself must refuse.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import msgspec

from strandline.controller.settings import ControllerSettings
from strandline.metadata.values import BrokerInfo
from strandline.metadata.views import View
from strandline.model.ids import Endpoint, Uuid

REFUSALS: Final = 2
PAUSE_MS: Final = 50
# A newly active controller lets the living say a word before it counts their refusals.
FIRST_PAUSE_MS: Final = 200
AGAIN_MS: Final = 1000
SPARED_MS: Final = 60_000


class Probe(msgspec.Struct, frozen=True):
    """Probe these, then tell `on_dialled` whether every one of them refused."""

    broker_id: int
    broker_epoch: int
    endpoints: tuple[Endpoint, ...]


class Fence(msgspec.Struct, frozen=True):
    """Fence this broker if `is_dead` still says so when its turn has come."""

    broker_id: int
    broker_epoch: int
    why: str


Effect = Probe | Fence


class _Missed(msgspec.Struct):
    """A broker that is not heard and might be dead."""

    epoch: int
    since_ms: int
    pause_ms: int
    late_heartbeat: bool
    """One heartbeat from before may still arrive."""
    dial_at_ms: int | None = None
    """None while a dial is under way."""
    refusals: int = 0
    claimed: frozenset[Endpoint] = frozenset()
    """Where a successor in the same directories listens: a dial would reach that one."""
    dead: bool = False

    @property
    def is_dialled(self) -> bool:
        return self.dial_at_ms is None and not self.dead


class FailureDetector:
    def __init__(self, view: View, settings: ControllerSettings) -> None:
        self._view = view
        self._enabled = settings.failure_detection
        # One and a half intervals: a living broker was heard in that time, or its own clock was.
        self._patience_ms = settings.broker_heartbeat_interval_ms * 3 // 2
        self._missed: dict[int, _Missed] = {}
        self._fenced: dict[int, int] = {}
        """Fenced on evidence, by id: the epoch. Heard again at this epoch, the evidence was wrong."""
        self._spared_until_ms: dict[int, int] = {}

    def on_activated(self, own_id: int, predecessor: BrokerInfo | None, now_ms: int) -> list[Effect]:
        """A new office, without history: every broker is dialled, except the one in this process.

        `predecessor` is registered under our own id by a process before this one: it is known to be dead.
        """
        self._missed.clear()
        self._fenced.clear()
        effects: list[Effect] = []
        others = [broker for broker in self._view.brokers() if broker.id != own_id and not broker.fenced]
        for broker in others:
            effects += self._miss(broker, now_ms, FIRST_PAUSE_MS, late_heartbeat=False)
        # If nobody could take over, its successor might as well find everything as it was.
        if self._enabled and predecessor is not None and any(broker.active for broker in others):
            missed = self._missed[predecessor.id] = _Missed(predecessor.epoch, now_ms, PAUSE_MS, late_heartbeat=False)
            effects += self._condemn(predecessor.id, missed, "this process holds the lock on its directories")
        return effects

    def on_renounced(self) -> None:
        self._missed.clear()
        self._fenced.clear()

    def on_connection_lost(self, broker_id: int, broker_epoch: int, now_ms: int) -> list[Effect]:
        broker = self._view.broker(broker_id)
        if broker is None or broker.epoch != broker_epoch or broker.fenced:
            return []
        return self._miss(broker, now_ms, PAUSE_MS, late_heartbeat=True)

    def _miss(self, broker: BrokerInfo, now_ms: int, pause_ms: int, *, late_heartbeat: bool) -> list[Effect]:
        if not self._enabled or now_ms < self._spared_until_ms.get(broker.id, now_ms):
            return []
        known = self._missed.get(broker.id)
        # Two dials at once would be two refusals without a pause.
        under_way = known is not None and known.epoch == broker.epoch and known.is_dialled
        missed = self._missed[broker.id] = _Missed(broker.epoch, now_ms, pause_ms, late_heartbeat)
        return [] if under_way else self._dial(broker, missed)

    def _dial(self, broker: BrokerInfo, missed: _Missed) -> list[Effect]:
        missed.dial_at_ms = None
        registered = dict.fromkeys(Endpoint(each.host, each.port) for each in broker.endpoints)
        endpoints = tuple(endpoint for endpoint in registered if endpoint not in missed.claimed)
        if endpoints:
            return [Probe(broker.id, broker.epoch, endpoints)]
        # Without any listener there is nobody to ask; with all of them taken over, everybody has been.
        return self._condemn(broker.id, missed, "its successor is in its directories") if registered else []

    def on_dialled(self, broker_id: int, broker_epoch: int, refused: bool, now_ms: int) -> list[Effect]:
        missed = self._missed.get(broker_id)
        if missed is None or missed.epoch != broker_epoch or missed.dead:
            return []
        missed.refusals = missed.refusals + 1 if refused else 0
        if missed.refusals >= REFUSALS:
            return self._condemn(broker_id, missed, "it is gone, and its listeners refuse connections")
        missed.dial_at_ms = now_ms + (missed.pause_ms if refused else AGAIN_MS)
        return []

    def _condemn(self, broker_id: int, missed: _Missed, why: str) -> list[Effect]:
        missed.dead = True
        return [Fence(broker_id, missed.epoch, why)]

    def on_time(self, now_ms: int) -> list[Effect]:
        effects: list[Effect] = []
        for broker_id, missed in list(self._missed.items()):
            broker = self._view.broker(broker_id)
            if broker is None or broker.epoch != missed.epoch or broker.fenced:
                del self._missed[broker_id]
            elif missed.dial_at_ms is not None and missed.dial_at_ms <= now_ms:
                effects += self._dial(broker, missed)
        return effects

    def next_deadline_ms(self) -> int | None:
        return min((each.dial_at_ms for each in self._missed.values() if each.dial_at_ms is not None), default=None)

    def on_heartbeat(self, broker_id: int, broker_epoch: int, now_ms: int) -> list[Effect]:
        """Called when it arrives, before it waits for its turn."""
        if self._fenced.get(broker_id) == broker_epoch:
            self._spare(broker_id, now_ms)
        broker, missed = self._view.broker(broker_id), self._missed.get(broker_id)
        if broker is None or missed is None or missed.epoch != broker_epoch:
            return []
        if not missed.late_heartbeat:
            del self._missed[broker_id]
            if missed.dead:
                self._spare(broker_id, now_ms)
            return []
        under_way = missed.is_dialled
        missed.late_heartbeat = missed.dead = False
        missed.refusals = 0
        return [] if under_way else self._dial(broker, missed)

    def _spare(self, broker_id: int, now_ms: int) -> None:
        """We were wrong: its listeners refuse us although it lives. They would do so again."""
        self._fenced.pop(broker_id, None)
        self._spared_until_ms[broker_id] = now_ms + SPARED_MS

    def on_registration_refused(
        self, broker_id: int, directories: Iterable[Uuid], endpoints: Iterable[Endpoint], now_ms: int
    ) -> list[Effect]:
        """Another incarnation wants the id while the session of the registered one is alive."""
        broker, missed = self._view.broker(broker_id), self._missed.get(broker_id)
        if broker is None or missed is None or missed.epoch != broker.epoch or missed.dead:
            return []
        if missed.claimed or now_ms - missed.since_ms < self._patience_ms:
            return []
        if set(broker.directories).isdisjoint(directories):
            return []
        missed.claimed = frozenset(endpoints)
        missed.refusals = 0
        # A dial that is under way asked the successor too, so it can only be answered; the next one leaves that out.
        return [] if missed.is_dialled else self._dial(broker, missed)

    def is_dead(self, broker_id: int, broker_epoch: int) -> bool:
        missed = self._missed.get(broker_id)
        return missed is not None and missed.epoch == broker_epoch and missed.dead

    def on_fenced(self, broker_id: int, broker_epoch: int) -> None:
        """The decision is made."""
        self._missed.pop(broker_id, None)
        self._fenced[broker_id] = broker_epoch
