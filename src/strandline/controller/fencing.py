"""What the active controller does without being asked: it fences the silent and the dead, shows signs of life, and sees
to its duties.

A shell around `sessions`, `deaths` and the duties: it rings in time, carries inputs to the machines, and has everything
decided by `controller.events`, one decision at a time and only while the leadership lasts. Between the wish to fence a
broker and the turn in which that is decided the broker may be heard, so every decision looks again.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial

from strandline.controller.brokers import Brokers
from strandline.controller.decisions import Decision, Steps
from strandline.controller.events import Events
from strandline.controller.failure_detector import FailureDetector, Fence
from strandline.controller.periodic_tasks import DeadlineTimer, PeriodicTask, PeriodicTasks
from strandline.controller.probes import Prober, ProbeRunner
from strandline.controller.sessions import FormerLeader
from strandline.controller.settings import ControllerSettings
from strandline.metadata.views import View
from strandline.model.errors import ErrorCode, KafkaError
from strandline.model.ids import Endpoint
from strandline.protocol.messages.brokers import BrokerHeartbeatRequest, BrokerRegistrationRequest
from strandline.protocol.messages.metadata_records import NoOpRecord
from strandline.runtime.clock import Clock
from strandline.runtime.tasks import TaskGroup

logger = logging.getLogger(__name__)


class BrokerFencing:
    def __init__(
        self,
        view: View,
        settings: ControllerSettings,
        events: Events,
        brokers: Brokers,
        clock: Clock,
        dials: Prober,
        unclean_election: PeriodicTask,
    ) -> None:
        self._view = view
        self._settings = settings
        self._events = events
        self._brokers = brokers
        self._clock = clock
        self._deaths = FailureDetector(view, settings)
        self._watch = ProbeRunner(self._deaths, dials, clock, self._fence_dead)
        self._duties = PeriodicTasks(self.perform)
        self._session_alarm = DeadlineTimer(clock, self._next_session_end_ms, self._fence_silent, self._on_standstill)
        self._duty_alarm = DeadlineTimer(clock, self._duties.next_deadline_ms, self._duties.ring)
        self._unclean_election = unclean_election
        self.add(unclean_election)
        self.add(PeriodicTask("no-op", settings.max_idle_interval_ms, self._no_op))

    def add(self, duty: PeriodicTask) -> None:
        """Before the first activation."""
        self._duties.add(duty)

    def start(self, former_leader: FormerLeader | None) -> None:
        """The controller is active from now on."""
        now_ms = self._clock.now_ms()
        self._brokers.activate(now_ms, former_leader)
        predecessor = self._brokers.predecessor()
        self._watch.perform(self._deaths.on_activated(self._settings.node_id, predecessor, now_ms))
        self._duties.start(now_ms)
        self._session_alarm.changed()
        self._duty_alarm.changed()

    def stop(self) -> None:
        self._duties.stop()
        self._deaths.on_renounced()

    async def run(self) -> None:
        """For as long as the process lives; sleeps while the controller is not active. Ends by cancellation."""
        async with TaskGroup() as tasks:
            tasks.start(self._session_alarm.run(), "sessions")
            tasks.start(self._duty_alarm.run(), "duties")
            tasks.start(self._watch.run(), "death watch")

    async def perform(self, duty: PeriodicTask) -> bool:
        """Whether there is more of it to do."""
        try:
            return await self._events.decide(duty.decide)
        except KafkaError as error:
            if error.code is not ErrorCode.NOT_CONTROLLER:
                logger.warning("the controller's duty %r failed: %s", duty.name, error)
            return False

    async def elect_unclean(self) -> None:
        """Something is different since the last look around."""
        while await self.perform(self._unclean_election):
            pass

    def _no_op(self) -> Decision[bool]:
        """Shows followers that the log is led and how far they lag; with nobody to see it, a disk may sleep."""
        leadership = self._events.leadership
        if leadership is None or not self._is_followed():
            return Decision(False)
        idle_ms = self._clock.now_ms() - leadership.last_append_ms
        return Decision(False, [NoOpRecord()] if idle_ms >= self._settings.max_idle_interval_ms else [])

    def _is_followed(self) -> bool:
        view, me = self._view, self._settings.node_id
        return any(broker.id != me and not broker.fenced for broker in view.brokers()) or any(
            controller.id != me for controller in view.controllers()
        )

    def _next_session_end_ms(self) -> int | None:
        if self._events.leadership is None:
            return None
        # A session that is yet to begin ends no earlier.
        latest_ms = self._clock.now_ms() + self._settings.broker_session_timeout_ms
        ends_ms = (self._brokers.sessions.next_deadline_ms(), self._brokers.doubts.next_deadline_ms())
        return min((end_ms for end_ms in ends_ms if end_ms is not None), default=latest_ms)

    def _on_standstill(self, late_ms: int) -> None:
        """What came in the meantime is yet to be read, and everybody has the time of a heartbeat to be heard."""
        logger.warning("this process stood still for %d ms; nobody is held to have been silent meanwhile", late_ms)
        by_ms = late_ms + self._settings.broker_heartbeat_interval_ms
        self._brokers.sessions.postpone(by_ms)
        self._brokers.doubts.postpone(by_ms)

    async def _fence_silent(self, now_ms: int) -> None:
        for broker_id in self._brokers.sessions.expired(now_ms):
            await self._fence(broker_id, partial(self._is_silent, broker_id))
        if self._brokers.doubts.end(now_ms):
            await self.elect_unclean()

    def _is_silent(self, broker_id: int) -> bool:
        if broker_id not in self._brokers.sessions.expired(self._clock.now_ms()):
            return False
        logger.warning("broker %d has not been heard for its session: it is fenced", broker_id)
        return True

    async def _fence_dead(self, fence: Fence) -> None:
        await self._fence(fence.broker_id, partial(self._is_dead, fence), on_evidence=True)

    def _is_dead(self, fence: Fence) -> bool:
        broker_id, epoch = fence.broker_id, fence.broker_epoch
        broker = self._view.broker(broker_id)
        if broker is None or broker.epoch != epoch or not self._deaths.is_dead(broker_id, epoch):
            return False
        self._deaths.on_fenced(broker_id, epoch)
        logger.warning("broker %d is dead and fenced: %s", broker_id, fence.why)
        return True

    async def _fence(self, broker_id: int, is_due: Callable[[], bool], *, on_evidence: bool = False) -> None:
        def decide() -> Decision[None] | Steps[None]:
            return self._brokers.fence(broker_id, on_evidence=on_evidence) if is_due() else Decision(None)

        try:
            await self._events.decide(decide)
        except KafkaError as error:
            # Whoever is active now has sessions of its own.
            if error.code is not ErrorCode.NOT_CONTROLLER:
                raise

    def connection_lost(self, broker_id: int, broker_epoch: int) -> None:
        if self._events.leadership is not None:
            self._watch.perform(self._deaths.on_connection_lost(broker_id, broker_epoch, self._clock.now_ms()))

    def heard(self, heartbeat: BrokerHeartbeatRequest) -> None:
        """One has arrived, and is about to wait for its turn."""
        now_ms = self._clock.now_ms()
        self._brokers.heard(heartbeat, now_ms)
        self._watch.perform(self._deaths.on_heartbeat(heartbeat.broker_id, heartbeat.broker_epoch, now_ms))

    def on_duplicate_registration(self, request: BrokerRegistrationRequest) -> None:
        """Somebody was refused because a predecessor seems to live. He will try again."""
        listeners = [Endpoint(each.host, each.port) for each in request.listeners]
        now_ms = self._clock.now_ms()
        self._watch.perform(
            self._deaths.on_registration_refused(request.broker_id, request.log_dirs, listeners, now_ms)
        )
