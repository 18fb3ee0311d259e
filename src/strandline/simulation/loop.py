"""An asyncio event loop on virtual time: no threads, no sockets, no real waiting.

Ready events run first in, first out; when none is ready, time jumps to the next timer (equal times: in the order in
which they were set). Nothing else advances time, so a run is a function of its inputs.

An exception in a callback ends the run and is raised from `run`: in a simulation it is a bug, not something to log.
When the awaited result is missing and neither an event nor a timer is left, `Deadlock` lists every waiting task.

Built on asyncio's public classes (AbstractEventLoop, Task, Future, TimerHandle), not on the internals of its selector
loops, so it behaves the same on every supported Python. Sockets, signals, subprocesses and threads are not supported:
AbstractEventLoop raises NotImplementedError.
"""

from __future__ import annotations

import asyncio
import heapq
import sys
from collections import deque
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Generator
from contextvars import Context
from typing import Any, TypeVar, TypeVarTuple, Unpack

from strandline.simulation.process import Process, ProcessEnded, current_process, process_of
from strandline.simulation.trace import Trace

T = TypeVar("T")
Ts = TypeVarTuple("Ts")

DEFAULT_MAX_STEPS = 20_000_000


class Deadlock(Exception):
    """The awaited result is missing, and no event or timer is left that could produce it."""


class LimitReached(Exception):
    """The run exceeded its limit of virtual time or of steps."""


class Event(asyncio.TimerHandle):
    __slots__ = ("arguments", "callback", "context", "order", "process", "when_us")

    def __init__(
        self,
        loop: VirtualLoop,
        when_us: int,
        order: int,
        callback: Callable[..., object],
        arguments: tuple[Any, ...],
        context: Context | None,
    ) -> None:
        process = current_process() if context is None else process_of(context)
        local_us = when_us if process is None else process.local_us(when_us)
        super().__init__(local_us / 1_000_000, callback, arguments, loop, context)
        self.process = process
        self.when_us = when_us
        self.order = order
        self.callback = callback
        self.arguments = arguments
        self.context: Context = self._context  # type: ignore[attr-defined]

    def run(self) -> None:
        self.context.run(self.callback, *self.arguments)


class VirtualLoop(asyncio.AbstractEventLoop):
    def __init__(self, trace: Trace | None = None) -> None:
        self.trace = trace or Trace()
        self.steps = 0
        self.after_step: Callable[[Process | None], None] | None = None
        """Called after every event with the event's process. An exception it raises ends the run."""
        self._unhandled_errors: list[str] = []
        self._now_us = 0
        self._order = 0
        self._ready: deque[Event] = deque()
        self._timers: list[tuple[int, int, Event]] = []
        self._due_while_paused: dict[Process, list[Event]] = {}
        self._cancelled_timers = 0
        self._no_process = Process("simulation")
        """Holds the tasks that belong to no process."""
        self._processes: list[Process] = [self._no_process]
        self._running = False
        self._stopping = False
        self._closed = False
        self._exception_handler: Callable[[asyncio.AbstractEventLoop, dict[str, Any]], object] | None = None

    @property
    def now_us(self) -> int:
        return self._now_us

    def time(self) -> float:
        process = current_process()
        return (self._now_us if process is None else process.local_us(self._now_us)) / 1_000_000

    def call_soon(
        self, callback: Callable[[Unpack[Ts]], object], *args: *Ts, context: Context | None = None
    ) -> asyncio.Handle:
        event = self._event(self._now_us, callback, args, context)
        self._ready.append(event)
        return event

    def call_soon_threadsafe(
        self, callback: Callable[[Unpack[Ts]], object], *args: *Ts, context: Context | None = None
    ) -> asyncio.Handle:
        return self.call_soon(callback, *args, context=context)

    def call_later(
        self, delay: float, callback: Callable[[Unpack[Ts]], object], *args: *Ts, context: Context | None = None
    ) -> asyncio.TimerHandle:
        process = current_process() if context is None else process_of(context)
        delay_us = round(delay * 1_000_000)
        if process is None:
            return self.call_at_us(self._now_us + delay_us, callback, *args, context=context)
        when_us = process.global_us(process.local_us(self._now_us) + delay_us)
        return self.call_at_us(when_us, callback, *args, context=context)

    def call_at(
        self, when: float, callback: Callable[[Unpack[Ts]], object], *args: *Ts, context: Context | None = None
    ) -> asyncio.TimerHandle:
        process = current_process() if context is None else process_of(context)
        when_us = round(when * 1_000_000)
        if process is not None:
            when_us = process.global_us(when_us)
        return self.call_at_us(when_us, callback, *args, context=context)

    def call_at_us(
        self, when_us: int, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> Event:
        """Calls back at a time of the simulation, independent of the process's clock."""
        event = self._event(max(when_us, self._now_us), callback, args, context)
        heapq.heappush(self._timers, (event.when_us, event.order, event))
        return event

    def _event(
        self, when_us: int, callback: Callable[..., object], args: tuple[Any, ...], context: Context | None
    ) -> Event:
        if self._closed:
            raise RuntimeError("this virtual loop is closed")
        self._order += 1
        return Event(self, when_us, self._order, callback, args, context)

    def _timer_handle_cancelled(self, handle: asyncio.TimerHandle) -> None:
        """Called by asyncio's TimerHandle.cancel. Most timers of a server are deadlines that never fire."""
        self._cancelled_timers += 1
        if self._cancelled_timers > 1000 and self._cancelled_timers * 2 > len(self._timers):
            self._timers = [entry for entry in self._timers if not entry[2].cancelled()]
            heapq.heapify(self._timers)
            self._cancelled_timers = 0

    def create_future(self) -> asyncio.Future[Any]:
        return asyncio.Future(loop=self)

    def create_task(self, coro: Generator[Any, None, T] | Coroutine[Any, Any, T], **options: Any) -> asyncio.Task[T]:
        context: Context | None = options.get("context")
        process = (current_process() if context is None else process_of(context)) or self._no_process
        task: asyncio.Task[T] = asyncio.Task(coro, loop=self, **options)
        process.adopt(task)
        return task

    def register(self, process: Process) -> None:
        """The tasks of a registered process are reported on a deadlock and closed with the loop."""
        self._processes.append(process)

    def take_unhandled_errors(self) -> list[str]:
        """Errors of tasks whose result was never retrieved, or given to the exception handler. Returned once."""
        for process in self._processes:
            self._unhandled_errors.extend(
                f"{process.name}: {name} failed and its result was never retrieved: {error!r}"
                for name, error in process.unretrieved_errors()
                if not isinstance(error, ProcessEnded)
            )
        errors, self._unhandled_errors = self._unhandled_errors, []
        return errors

    def resume(self, process: Process) -> None:
        process.paused = False
        self._ready.extend(self._due_while_paused.pop(process, ()))

    def run_until_complete(self, future: Any) -> Any:
        return self.run(future)

    def run(
        self,
        awaited: Awaitable[T],
        *,
        max_virtual_s: float | None = None,
        max_steps: int = DEFAULT_MAX_STEPS,
    ) -> T:
        """Runs until `awaited` has a result; raises Deadlock, LimitReached, or what a callback raised."""
        until_us = None if max_virtual_s is None else self._now_us + round(max_virtual_s * 1_000_000)
        until_step = self.steps + max_steps
        with _Running(self):
            future = asyncio.ensure_future(awaited, loop=self)
            while not future.done():
                if not self._step(until_us):
                    raise Deadlock(self._report("nothing is scheduled"))
                if self.steps >= until_step:
                    raise LimitReached(self._report(f"{max_steps} steps"))
            return future.result()

    def run_forever(self) -> None:
        """Runs until `stop`, or until no event or timer is left."""
        self._stopping = False
        with _Running(self):
            while not self._stopping and self._step(None):
                pass

    def _step(self, until_us: int | None) -> bool:
        """Runs one event or advances time. False when there is neither an event nor a timer."""
        while self._ready:
            event = self._ready.popleft()
            if event.cancelled():
                continue
            process = event.process
            if process is not None and (not process.alive or process.paused):
                if process.alive:
                    self._due_while_paused.setdefault(process, []).append(event)
                continue
            self._run_event(event)
            return True
        return self._advance_time(until_us)

    def _run_event(self, event: Event) -> None:
        self.steps += 1
        self.trace.step(self._now_us, event.order)
        try:
            event.run()
        except ProcessEnded:
            if event.process is None or event.process.alive:
                raise
        except BaseException as error:
            error.add_note(f"raised at {self._now_us / 1_000_000:.6f} s of virtual time, in {event.callback!r}")
            raise
        if self.after_step is not None:
            self.after_step(event.process)

    def _advance_time(self, until_us: int | None) -> bool:
        """Advances to the next timer of a running process; all timers of that instant become ready."""
        timers = self._timers
        while timers:
            when_us, _, event = timers[0]
            if event.cancelled() or not (event.process is None or event.process.alive):
                heapq.heappop(timers)
                self._cancelled_timers -= event.cancelled()
                continue
            if until_us is not None and when_us > until_us:
                self._now_us = until_us
                raise LimitReached(self._report("virtual time"))
            self._now_us = when_us
            while timers and timers[0][0] == when_us:
                event = heapq.heappop(timers)[2]
                self._cancelled_timers -= event.cancelled()
                self._ready.append(event)
            return True
        return False

    def _report(self, why: str) -> str:
        waiting = [
            f"  {process.name}: {task.get_name()} {_where(task)}"
            for process in self._processes
            for task in process.pending_tasks()
            if process.alive
        ]
        return f"{why}, at {self._now_us / 1_000_000:.6f} s after {self.steps} steps; waiting:\n" + "\n".join(waiting)

    def stop(self) -> None:
        self._stopping = True

    def is_running(self) -> bool:
        return self._running

    def is_closed(self) -> bool:
        return self._closed

    def close(self) -> None:
        """Ends every process and closes pending coroutines in order, so that the garbage collector does not do it."""
        if self._closed:
            return
        self._closed = True
        self._ready.clear()
        self._due_while_paused.clear()
        self._timers.clear()
        for process in self._processes:
            process.alive = False
        # A `finally` that awaits is closed in turn; its warnings are of no interest.
        hook, sys.unraisablehook = sys.unraisablehook, lambda _: None
        try:
            for process in self._processes:
                for task in process.pending_tasks():
                    _close_coroutine(task)
        finally:
            sys.unraisablehook = hook

    def get_debug(self) -> bool:
        return False

    def set_debug(self, enabled: bool) -> None:
        """Ignored: the trace serves for debugging."""

    def set_exception_handler(
        self, handler: Callable[[asyncio.AbstractEventLoop, dict[str, Any]], object] | None
    ) -> None:
        self._exception_handler = handler

    def get_exception_handler(self) -> Callable[[asyncio.AbstractEventLoop, dict[str, Any]], object] | None:
        return self._exception_handler

    def default_exception_handler(self, context: dict[str, Any]) -> None:
        self._unhandled_errors.append(f"{context.get('message')}: {context.get('exception')!r}")

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        if isinstance(context.get("exception"), ProcessEnded):
            return
        if self._exception_handler is None:
            self.default_exception_handler(context)
        else:
            self._exception_handler(self, context)

    async def shutdown_asyncgens(self) -> None:
        """Asynchronous generators are closed by their users, or not at all (see _ignore_generator)."""

    async def shutdown_default_executor(self, timeout: float | None = None) -> None:
        """Does nothing: there is no executor, as threads are not deterministic. Blocking work uses the Offload port."""


class _Running:
    """Makes the virtual loop asyncio's running loop inside the block."""

    def __init__(self, loop: VirtualLoop) -> None:
        self._loop = loop

    def __enter__(self) -> None:
        if self._loop._closed:
            raise RuntimeError("this virtual loop is closed")
        if asyncio._get_running_loop() is not None:
            raise RuntimeError("another event loop is running here")
        self._loop._running = True
        asyncio._set_running_loop(self._loop)
        self._hooks = sys.get_asyncgen_hooks()
        sys.set_asyncgen_hooks(firstiter=None, finalizer=_ignore_generator)

    def __exit__(self, *_: object) -> None:
        self._loop._running = False
        asyncio._set_running_loop(None)
        sys.set_asyncgen_hooks(*self._hooks)


def _ignore_generator(generator: AsyncGenerator[Any, Any]) -> None:
    """An unreferenced asynchronous generator belongs to an ended process, whose `finally` blocks must not run."""


def _where(task: asyncio.Task[Any]) -> str:
    """The chain of coroutines from the task's own to the one that is suspended."""
    places = []
    coroutine: Any = task.get_coro()
    while (frame := getattr(coroutine, "cr_frame", None)) is not None:
        places.append(f"{frame.f_code.co_qualname}:{frame.f_lineno}")
        coroutine = coroutine.cr_await
    return " > ".join(places)


def _close_coroutine(task: asyncio.Task[Any]) -> None:
    task._log_destroy_pending = False  # type: ignore[attr-defined]
    coroutine = task.get_coro()
    try:
        if coroutine is not None:
            coroutine.close()
    except BaseException as error:
        # A `finally` block awaits, or uses the disk of a machine that is off: a power loss would not run it either.
        if isinstance(error, (KeyboardInterrupt, SystemExit)):
            raise
