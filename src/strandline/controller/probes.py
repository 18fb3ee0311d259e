"""The shell around `controller.failure_detector`: dials in its place, and has fenced whom it finds dead.

The port is implemented where connections are made (`server/peers`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterable
from typing import Any, Protocol

from strandline.controller.failure_detector import Effect, FailureDetector, Fence, Probe
from strandline.model.ids import Endpoint
from strandline.runtime.clock import Clock
from strandline.runtime.tasks import TaskGroup


class Prober(Protocol):
    async def refuses_connections(self, endpoint: Endpoint) -> bool:
        """Whether a fresh dial is refused outright. An answer, silence, an unknown name or no route: False."""
        ...


class NoProbes:
    """For a controller that cannot dial: it learns nothing, and waits for sessions to end."""

    async def refuses_connections(self, endpoint: Endpoint) -> bool:
        return False


class ProbeRunner:
    def __init__(
        self, deaths: FailureDetector, dials: Prober, clock: Clock, fence: Callable[[Fence], Coroutine[Any, Any, None]]
    ) -> None:
        self._deaths = deaths
        self._dials = dials
        self._clock = clock
        self._fence = fence
        self._effects: list[Effect] = []
        self._work = asyncio.Event()

    def perform(self, effects: Iterable[Effect]) -> None:
        """Soon: `run` carries them out, and looks again when the machine wants to be called."""
        self._effects += effects
        self._work.set()

    async def run(self) -> None:
        """Ends by cancellation."""
        async with TaskGroup() as tasks:
            while True:
                effects, self._effects = self._effects, []
                for effect in effects:
                    tasks.start(self._dial(effect) if isinstance(effect, Probe) else self._fence(effect))
                await self._until_due()
                self.perform(self._deaths.on_time(self._clock.now_ms()))

    async def _until_due(self) -> None:
        if self._effects:
            return
        self._work.clear()
        deadline_ms = self._deaths.next_deadline_ms()
        if deadline_ms is None:
            await self._work.wait()
            return
        wait_s = max(0, deadline_ms - self._clock.now_ms()) / 1000
        timer = asyncio.get_running_loop().call_later(wait_s, self._work.set)
        try:
            await self._work.wait()
        finally:
            timer.cancel()

    async def _dial(self, dial: Probe) -> None:
        """One after the other: the first that does not refuse decides."""
        refused = True
        for endpoint in dial.endpoints:
            refused = refused and await self._dials.refuses_connections(endpoint)
        self.perform(self._deaths.on_dialled(dial.broker_id, dial.broker_epoch, refused, self._clock.now_ms()))
