"""Fast failure detection of brokers, by closed connections and refused probes. The reasons: docs/decisions/0009.

When a process is killed, the kernel closes its connections at once and refuses new ones to its listeners. A process
that is paused, partitioned or unplugged shows neither, and is left to its session timeout. So a broker has *failed*
when

- its heartbeat connection was closed without a controlled shutdown (or this controller became active and has not yet
  received a heartbeat from it), and
- every listener that it registered refused a connection, twice with a pause in between, and no heartbeat arrived.

A probe that is accepted or that hangs proves nothing. It is repeated every second until a heartbeat arrives, because
without a heartbeat connection there is nothing that could be closed if the broker fails a moment later.

               connection lost,                every listener refuses,
               or no heartbeat yet             and again after a pause              heartbeat, same epoch
    trusted ────────────────────▶ suspected ──────────────────────────▶ failed ──────────────────────────▶ exempt
       ▲                            │ ▲                                    │                                 │
       └──────── heartbeat ─────────┘ └─── heartbeat that was in flight ───┘          a minute of exemption  │
       ▲─────────────────────────────────────────────────────────────────────────────────────────────────────┘

A heartbeat may be read before its connection closes and handled afterwards. A broker has at most one in flight, so the
first that arrives after the close only restarts the probes; the second shows that the broker is alive.

A registration under the id of a suspected broker: the new process may listen on the address that would have refused the
probe. But if it names a log directory of its predecessor, it holds the lock on that directory, which two live processes
cannot. Only a *copied* directory can deceive, so the predecessor must have been suspected for longer than the heartbeat
interval of a live broker, and every address that the new process does not claim for itself must refuse.

`controller.fencing` is the shell. It sends the probes and fences the failed brokers; `UnconfirmedFailures` then bounds
the damage of a wrong detection.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import msgspec

from strandline.controller.settings import ControllerSettings
from strandline.metadata.values import BrokerInfo, PartitionInfo
from strandline.metadata.views import View
from strandline.model.ids import Endpoint, Uuid

REFUSALS: Final = 2
PROBE_PAUSE_MS: Final = 50
# After an activation, live brokers have this long to send a heartbeat before a second refusal counts.
FIRST_PROBE_PAUSE_MS: Final = 200
PROBE_RETRY_MS: Final = 1000
EXEMPTION_MS: Final = 60_000


class Probe(msgspec.Struct, frozen=True):
    """Connect to these endpoints, then call `on_probed` with whether every one of them refused."""

    broker_id: int
    broker_epoch: int
    endpoints: tuple[Endpoint, ...]


class Fence(msgspec.Struct, frozen=True):
    """Fence this broker if `has_failed` is still true when the event is handled."""

    broker_id: int
    broker_epoch: int
    why: str


Effect = Probe | Fence


class _Suspect(msgspec.Struct):
    """A broker without a heartbeat connection, which may have failed."""

    epoch: int
    since_ms: int
    pause_ms: int
    heartbeat_in_flight: bool
    """One heartbeat sent before the connection closed may still arrive."""
    probe_at_ms: int | None = None
    """None during a probe."""
    refusals: int = 0
    successor_endpoints: frozenset[Endpoint] = frozenset()
    """The listeners of a successor in the same log directories: a probe would reach the successor."""
    failed: bool = False

    @property
    def is_probed(self) -> bool:
        return self.probe_at_ms is None and not self.failed


class FailureDetector:
    def __init__(self, view: View, settings: ControllerSettings) -> None:
        self._view = view
        self._enabled = settings.failure_detection
        self._longest_silence_ms = settings.broker_heartbeat_interval_ms * 3 // 2
        """The longest time between two heartbeats of a live broker."""
        self._suspects: dict[int, _Suspect] = {}
        self._fenced: dict[int, int] = {}
        """The epochs of brokers that were fenced as failed, by id. A heartbeat of this epoch shows an error."""
        self._exempt_until_ms: dict[int, int] = {}

    def on_activated(self, own_id: int, predecessor: BrokerInfo | None, now_ms: int) -> list[Effect]:
        """Suspects every broker except the one in this process, because a new activation has received no heartbeats.

        `predecessor` was registered under this node's id by an earlier process, which cannot be alive.
        """
        self._suspects.clear()
        self._fenced.clear()
        effects: list[Effect] = []
        others = [broker for broker in self._view.brokers() if broker.id != own_id and not broker.fenced]
        for broker in others:
            effects += self._suspect(broker, now_ms, FIRST_PROBE_PAUSE_MS, heartbeat_in_flight=False)
        # If no other broker could take over, the successor may as well find its leaderships as they were.
        if self._enabled and predecessor is not None and any(broker.active for broker in others):
            suspect = _Suspect(predecessor.epoch, now_ms, PROBE_PAUSE_MS, heartbeat_in_flight=False)
            self._suspects[predecessor.id] = suspect
            effects += self._fail(predecessor.id, suspect, "this process holds the lock on its log directories")
        return effects

    def on_deactivated(self) -> None:
        self._suspects.clear()
        self._fenced.clear()

    def on_connection_lost(self, broker_id: int, broker_epoch: int, now_ms: int) -> list[Effect]:
        broker = self._view.broker(broker_id)
        if broker is None or broker.epoch != broker_epoch or broker.fenced:
            return []
        return self._suspect(broker, now_ms, PROBE_PAUSE_MS, heartbeat_in_flight=True)

    def _suspect(self, broker: BrokerInfo, now_ms: int, pause_ms: int, *, heartbeat_in_flight: bool) -> list[Effect]:
        if not self._enabled or now_ms < self._exempt_until_ms.get(broker.id, now_ms):
            return []
        known = self._suspects.get(broker.id)
        # Two probes at the same time would be two refusals without a pause.
        in_flight = known is not None and known.epoch == broker.epoch and known.is_probed
        suspect = self._suspects[broker.id] = _Suspect(broker.epoch, now_ms, pause_ms, heartbeat_in_flight)
        return [] if in_flight else self._probe(broker, suspect)

    def _probe(self, broker: BrokerInfo, suspect: _Suspect) -> list[Effect]:
        suspect.probe_at_ms = None
        registered = dict.fromkeys(Endpoint(each.host, each.port) for each in broker.endpoints)
        endpoints = tuple(endpoint for endpoint in registered if endpoint not in suspect.successor_endpoints)
        if endpoints:
            return [Probe(broker.id, broker.epoch, endpoints)]
        # Without a listener nothing can be probed; if the successor has taken over all of them, nothing has to be.
        return self._fail(broker.id, suspect, "its successor uses its log directories") if registered else []

    def on_probed(self, broker_id: int, broker_epoch: int, refused: bool, now_ms: int) -> list[Effect]:
        suspect = self._suspects.get(broker_id)
        if suspect is None or suspect.epoch != broker_epoch or suspect.failed:
            return []
        suspect.refusals = suspect.refusals + 1 if refused else 0
        if suspect.refusals >= REFUSALS:
            return self._fail(broker_id, suspect, "its connection closed and its listeners refuse connections")
        suspect.probe_at_ms = now_ms + (suspect.pause_ms if refused else PROBE_RETRY_MS)
        return []

    def _fail(self, broker_id: int, suspect: _Suspect, why: str) -> list[Effect]:
        suspect.failed = True
        return [Fence(broker_id, suspect.epoch, why)]

    def on_time(self, now_ms: int) -> list[Effect]:
        effects: list[Effect] = []
        for broker_id, suspect in list(self._suspects.items()):
            broker = self._view.broker(broker_id)
            if broker is None or broker.epoch != suspect.epoch or broker.fenced:
                del self._suspects[broker_id]
            elif suspect.probe_at_ms is not None and suspect.probe_at_ms <= now_ms:
                effects += self._probe(broker, suspect)
        return effects

    def next_deadline_ms(self) -> int | None:
        return min((each.probe_at_ms for each in self._suspects.values() if each.probe_at_ms is not None), default=None)

    def on_heartbeat(self, broker_id: int, broker_epoch: int, now_ms: int) -> list[Effect]:
        """Called when a heartbeat arrives, before it enters the event queue."""
        if self._fenced.get(broker_id) == broker_epoch:
            self._exempt(broker_id, now_ms)
        broker, suspect = self._view.broker(broker_id), self._suspects.get(broker_id)
        if broker is None or suspect is None or suspect.epoch != broker_epoch:
            return []
        if not suspect.heartbeat_in_flight:
            del self._suspects[broker_id]
            if suspect.failed:
                self._exempt(broker_id, now_ms)
            return []
        in_flight = suspect.is_probed
        suspect.heartbeat_in_flight = suspect.failed = False
        suspect.refusals = 0
        return [] if in_flight else self._probe(broker, suspect)

    def _exempt(self, broker_id: int, now_ms: int) -> None:
        """The detection was wrong: the listeners refuse this controller's probes although the broker is alive."""
        self._fenced.pop(broker_id, None)
        self._exempt_until_ms[broker_id] = now_ms + EXEMPTION_MS

    def on_registration_rejected(
        self, broker_id: int, directories: Iterable[Uuid], endpoints: Iterable[Endpoint], now_ms: int
    ) -> list[Effect]:
        """Another incarnation tried to register while the session of the registered broker lasts."""
        broker, suspect = self._view.broker(broker_id), self._suspects.get(broker_id)
        if broker is None or suspect is None or suspect.epoch != broker.epoch or suspect.failed:
            return []
        if suspect.successor_endpoints or now_ms - suspect.since_ms < self._longest_silence_ms:
            return []
        if set(broker.directories).isdisjoint(directories):
            return []
        suspect.successor_endpoints = frozenset(endpoints)
        suspect.refusals = 0
        # A probe in flight includes the successor's listeners, so it cannot be refused; the next one omits them.
        return [] if suspect.is_probed else self._probe(broker, suspect)

    def has_failed(self, broker_id: int, broker_epoch: int) -> bool:
        suspect = self._suspects.get(broker_id)
        return suspect is not None and suspect.epoch == broker_epoch and suspect.failed

    def on_fenced(self, broker_id: int, broker_epoch: int) -> None:
        self._suspects.pop(broker_id, None)
        self._fenced[broker_id] = broker_epoch


class UnconfirmedFailures:
    """Brokers that were fenced as failed, until their session would have timed out.

    A detection may be wrong, and must not cost a record. So while a failure is unconfirmed no unclean leader is elected
    in the broker's place, whatever the reason of the election: a stale replica that returns, a periodic election, a
    config change, a reassignment. Only ElectLeaders by a user may elect one. `controller.leader_eligibility` checks
    this for every decision; `controller.fencing` expires the entries, and then elects the unclean leaders.

    A heartbeat of the broker does not end the entry: the broker is unfenced, and leads again wherever it was in sync.
    """

    def __init__(self) -> None:
        self._until_ms: dict[int, int] = {}

    def add(self, broker_id: int, until_ms: int) -> None:
        self._until_ms[broker_id] = until_ms

    def expire(self, now_ms: int) -> bool:
        """Returns whether any entry has expired."""
        expired = [broker_id for broker_id, until_ms in self._until_ms.items() if until_ms <= now_ms]
        for broker_id in expired:
            del self._until_ms[broker_id]
        return bool(expired)

    def clear(self) -> None:
        self._until_ms.clear()

    def postpone(self, by_ms: int) -> None:
        for broker_id in self._until_ms:
            self._until_ms[broker_id] += by_ms

    def next_deadline_ms(self) -> int | None:
        return min(self._until_ms.values(), default=None)

    def affect(self, partition: PartitionInfo) -> bool:
        """Whether a broker that may be alive has records that an unclean leader would lack."""
        if not self._until_ms:
            return False
        return any(each in self._until_ms for each in (*partition.isr, *partition.elr, *partition.last_known_elr))
