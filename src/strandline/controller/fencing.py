"""Fences brokers: those whose session has timed out, and those that the failure detector finds failed.

A shell around `controller.sessions` and `controller.failure_detector`. It passes heartbeats, lost connections and
deadlines to them and sends the probes; each broker is fenced by a decision in the event queue, and only while this
controller is active. A heartbeat may arrive between the wish to fence a broker and that decision, so every decision
checks again.

`Prober` is implemented where connections are made (`server/peers`).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable
from functools import partial
from typing import Protocol

from strandline.controller.brokers import Brokers
from strandline.controller.decisions import Decision, Steps
from strandline.controller.events import EventQueue
from strandline.controller.failure_detector import Effect, FailureDetector, Fence, Probe
from strandline.controller.periodic_tasks import DeadlineTimer
from strandline.controller.sessions import FormerLeader
from strandline.controller.settings import ControllerSettings
from strandline.metadata.views import View
from strandline.model.errors import ErrorCode, KafkaError
from strandline.model.ids import Endpoint
from strandline.protocol.messages.brokers import BrokerHeartbeatRequest, BrokerRegistrationRequest
from strandline.runtime.clock import Clock
from strandline.runtime.tasks import TaskGroup

logger = logging.getLogger(__name__)


class Prober(Protocol):
    async def refuses_connections(self, endpoint: Endpoint) -> bool:
        """Whether a new connection is refused. Accepted, no response, unknown host name or no route: False."""
        ...


class NoProbes:
    """A prober that sends nothing, for a controller that cannot connect to brokers: session timeouts fence them."""

    async def refuses_connections(self, endpoint: Endpoint) -> bool:
        return False


class BrokerFencing:
    def __init__(
        self,
        view: View,
        settings: ControllerSettings,
        events: EventQueue,
        brokers: Brokers,
        clock: Clock,
        prober: Prober,
        elect_unclean: Callable[[], Awaitable[None]],
    ) -> None:
        """`elect_unclean` elects unclean leaders where topics allow it: called when a failure is confirmed."""
        self._view = view
        self._settings = settings
        self._events = events
        self._brokers = brokers
        self._clock = clock
        self._prober = prober
        self._elect_unclean = elect_unclean
        self._detector = FailureDetector(view, settings)
        self._effects: list[Effect] = []
        self._wake = asyncio.Event()
        self._session_timer = DeadlineTimer(clock, self._next_session_deadline_ms, self._fence_expired, self._on_paused)

    def start(self, former_leader: FormerLeader | None) -> None:
        """The controller has become active."""
        now_ms = self._clock.now_ms()
        self._brokers.activate(now_ms, former_leader)
        predecessor = self._brokers.predecessor()
        self._perform(self._detector.on_activated(self._settings.node_id, predecessor, now_ms))
        self._session_timer.reschedule()

    def stop(self) -> None:
        self._detector.on_deactivated()

    async def run_sessions(self) -> None:
        """Fences brokers whose session times out. Sleeps while the controller is not active; ends by cancellation."""
        await self._session_timer.run()

    async def run_detector(self) -> None:
        """Probes and fences as the failure detector says. Ends by cancellation."""
        async with TaskGroup() as tasks:
            while True:
                effects, self._effects = self._effects, []
                for effect in effects:
                    tasks.start(self._probe(effect) if isinstance(effect, Probe) else self._fence_failed(effect))
                await self._until_due()
                self._perform(self._detector.on_time(self._clock.now_ms()))

    def on_connection_lost(self, broker_id: int, broker_epoch: int) -> None:
        if self._events.activation is not None:
            self._perform(self._detector.on_connection_lost(broker_id, broker_epoch, self._clock.now_ms()))

    def on_heartbeat(self, heartbeat: BrokerHeartbeatRequest) -> None:
        """Called when a heartbeat has arrived, before it enters the event queue."""
        now_ms = self._clock.now_ms()
        self._brokers.renew_session(heartbeat, now_ms)
        self._perform(self._detector.on_heartbeat(heartbeat.broker_id, heartbeat.broker_epoch, now_ms))

    def on_duplicate_registration(self, request: BrokerRegistrationRequest) -> None:
        """A registration was rejected because its predecessor's session lasts. The broker will retry."""
        listeners = [Endpoint(each.host, each.port) for each in request.listeners]
        now_ms = self._clock.now_ms()
        self._perform(self._detector.on_registration_rejected(request.broker_id, request.log_dirs, listeners, now_ms))

    def _next_session_deadline_ms(self) -> int | None:
        if self._events.activation is None:
            return None
        # A session that starts later ends no earlier than this.
        latest_ms = self._clock.now_ms() + self._settings.broker_session_timeout_ms
        deadlines = (self._brokers.sessions.next_deadline_ms(), self._brokers.unconfirmed.next_deadline_ms())
        return min((deadline_ms for deadline_ms in deadlines if deadline_ms is not None), default=latest_ms)

    def _on_paused(self, late_ms: int) -> None:
        """Heartbeats that arrived during the pause are not read yet: every broker gets one heartbeat interval more."""
        logger.warning("this process was paused for %d ms; the sessions of all brokers are extended", late_ms)
        by_ms = late_ms + self._settings.broker_heartbeat_interval_ms
        self._brokers.sessions.postpone(by_ms)
        self._brokers.unconfirmed.postpone(by_ms)

    async def _fence_expired(self, now_ms: int) -> None:
        for broker_id in self._brokers.sessions.expired(now_ms):
            await self._fence(broker_id, partial(self._has_expired, broker_id))
        if self._brokers.unconfirmed.expire(now_ms):
            await self._elect_unclean()

    def _has_expired(self, broker_id: int) -> bool:
        if broker_id not in self._brokers.sessions.expired(self._clock.now_ms()):
            return False
        logger.warning("fencing broker %d: its session has timed out", broker_id)
        return True

    async def _fence_failed(self, fence: Fence) -> None:
        await self._fence(fence.broker_id, partial(self._has_failed, fence), failed=True)

    def _has_failed(self, fence: Fence) -> bool:
        broker_id, epoch = fence.broker_id, fence.broker_epoch
        broker = self._view.broker(broker_id)
        if broker is None or broker.epoch != epoch or not self._detector.has_failed(broker_id, epoch):
            return False
        self._detector.on_fenced(broker_id, epoch)
        logger.warning("fencing broker %d: it has failed, %s", broker_id, fence.why)
        return True

    async def _fence(self, broker_id: int, is_due: Callable[[], bool], *, failed: bool = False) -> None:
        def decide() -> Decision[None] | Steps[None]:
            return self._brokers.fence(broker_id, failed=failed) if is_due() else Decision(None)

        try:
            await self._events.decide(decide)
        except KafkaError as error:
            # The controller that is active now has sessions of its own.
            if error.code is not ErrorCode.NOT_CONTROLLER:
                raise

    def _perform(self, effects: Iterable[Effect]) -> None:
        """Hands the effects to `run_detector`, which also reads the detector's next deadline again."""
        self._effects += effects
        self._wake.set()

    async def _until_due(self) -> None:
        if self._effects:
            return
        self._wake.clear()
        deadline_ms = self._detector.next_deadline_ms()
        if deadline_ms is None:
            await self._wake.wait()
            return
        wait_s = max(0, deadline_ms - self._clock.now_ms()) / 1000
        timer = asyncio.get_running_loop().call_later(wait_s, self._wake.set)
        try:
            await self._wake.wait()
        finally:
            timer.cancel()

    async def _probe(self, probe: Probe) -> None:
        """Probes the endpoints one after the other until one does not refuse."""
        refused = True
        for endpoint in probe.endpoints:
            refused = refused and await self._prober.refuses_connections(endpoint)
        self._perform(self._detector.on_probed(probe.broker_id, probe.broker_epoch, refused, self._clock.now_ms()))
