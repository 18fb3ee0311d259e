"""Deterministic task groups, coroutines that start without waiting for the loop, and yielding to the loop.

asyncio's own group keeps its tasks in a set, so that the order of cancellation depends on addresses; this one cancels
in the order of start. Every coroutine of the system lives in one of these groups.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Generator
from types import TracebackType, coroutine
from typing import Any, Protocol, Self, TypeVar

T = TypeVar("T")

ITEMS_PER_YIELD = 200  # about a millisecond of lookups and results
LARGE_YIELDS = 10


class TaskGroup:
    """Exits when every child has ended; the first child that fails cancels the others and its error is raised."""

    def __init__(self, on_error: Callable[[BaseException], None] | None = None) -> None:
        """`on_error` is called with the error of a child, for groups that are not left by an `async with`."""
        self._on_error = on_error
        self._tasks: dict[asyncio.Task[Any], None] = {}
        self._owner: asyncio.Task[Any] | None = None
        self._error: BaseException | None = None
        self._empty: asyncio.Future[None] | None = None
        self._closing = False
        self._cancelled_owner = False

    async def __aenter__(self) -> Self:
        self._owner = asyncio.current_task()
        return self

    def start(self, coroutine: Coroutine[Any, Any, Any], name: str | None = None) -> asyncio.Task[Any]:
        task = asyncio.get_running_loop().create_task(coroutine, name=name)
        self._tasks[task] = None
        task.add_done_callback(self._ended)
        if self._closing:
            task.cancel()
        return task

    def start_eagerly(self, coroutine: Coroutine[Any, Any, None]) -> asyncio.Task[Any] | None:
        """Runs the coroutine up to its first wait; it becomes a task only if it waits.

        The first step runs outside any task, so it may await futures but not use asyncio.timeout or current_task.
        """
        try:
            awaited = coroutine.send(None)
        except StopIteration:
            return None
        return self.start(_Continued(coroutine, awaited))

    def cancel(self) -> None:
        self._closing = True
        for task in list(self._tasks):
            task.cancel()

    def _ended(self, task: asyncio.Task[Any]) -> None:
        self._tasks.pop(task, None)
        error = None if task.cancelled() else task.exception()
        if error is not None and self._error is None:
            self._error = error
            self.cancel()
            if self._owner is not None and not self._owner.done() and self._empty is None:
                self._cancelled_owner = True
                self._owner.cancel()
            if self._on_error is not None:
                self._on_error(error)
        if not self._tasks and self._empty is not None and not self._empty.done():
            self._empty.set_result(None)

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        if error is not None:
            self.cancel()
        interrupted: asyncio.CancelledError | None = None
        while self._tasks:
            self._empty = asyncio.get_running_loop().create_future()
            try:
                await self._empty
            except asyncio.CancelledError as cancelled:
                interrupted = cancelled
                error = error or cancelled
                self.cancel()
        self._empty = None
        if self._cancelled_owner and self._owner is not None and self._owner.uncancel() and interrupted is None:
            interrupted = asyncio.CancelledError()
        if interrupted is not None:
            # A request to cancel this task must not be lost, whatever else failed meanwhile.
            raise interrupted
        if self._error is not None and (error is None or isinstance(error, asyncio.CancelledError)):
            raise self._error
        if kind is None and error is not None:
            raise error
        return False


@coroutine
def yield_to_loop() -> Generator[None, None, None]:
    """Lets the event loop run everything that is ready before the caller continues."""
    yield


class LargeResult(Protocol):
    offload_encoding: bool
    """Whether the result is to be encoded in a thread."""


class YieldCounter:
    """Counts the items of a long loop, so that it yields to the event loop about once in a millisecond.

        yields = YieldCounter(call)
        for item in items:
            if yields.due():
                await yield_to_loop()

    A result that takes many yields to build would take long to encode too: it is marked to be encoded in a thread.
    """

    __slots__ = ("_count", "_every", "_left", "_result")

    def __init__(self, result: LargeResult | None = None, every: int = ITEMS_PER_YIELD) -> None:
        self._result = result
        self._every = self._left = every
        self._count = 0

    def due(self, items: int = 1) -> bool:
        """Counts the items about to be processed; True when the loop must yield before them."""
        self._left -= items
        if self._left >= 0:
            return False
        self._left = self._every
        self._count += 1
        if self._count >= LARGE_YIELDS and self._result is not None:
            self._result.offload_encoding = True
        return True


async def cancel_when(interruption: Callable[[], Coroutine[Any, Any, Any]], work: Coroutine[Any, Any, T]) -> T | None:
    """The result of `work`; None if the interruption completes first, which cancels the work."""
    try:
        async with TaskGroup() as watching, asyncio.timeout(None) as limit:

            async def watch() -> None:
                await interruption()
                limit.reschedule(asyncio.get_running_loop().time())

            watcher = watching.start(watch())
            try:
                return await work
            finally:
                watcher.cancel()
    except TimeoutError:
        if not limit.expired():
            raise
    return None


async def run_to_completion(work: Coroutine[Any, Any, T]) -> T:
    """The result of `work`. A cancelled caller waits until the work is done before it raises CancelledError."""
    task = asyncio.get_running_loop().create_task(work)
    cancelled: asyncio.CancelledError | None = None
    while not task.done():
        try:
            await asyncio.shield(task)
        except asyncio.CancelledError as error:
            cancelled = error
        except BaseException:
            break
    if cancelled is not None and not task.cancelled():
        task.exception()  # retrieved, so that asyncio does not log it
        raise cancelled
    return task.result()


class _Continued(Coroutine[Any, Any, None]):
    """A coroutine that was stepped once by hand, for a task to continue with its first wait.

    It is the task's coroutine itself, not wrapped in one: a task that is cancelled before its first step throws into
    its coroutine, and a wrapper that has not started would swallow that, leaving the clean-up to garbage collection.
    """

    __slots__ = ("_awaited", "_coroutine", "_handed_over")

    def __init__(self, coroutine: Coroutine[Any, Any, None], awaited: Any) -> None:
        self._coroutine = coroutine
        self._awaited = awaited
        self._handed_over = False

    def send(self, value: Any) -> Any:
        if self._handed_over:
            return self._coroutine.send(value)
        self._handed_over = True
        awaited, self._awaited = self._awaited, None
        return awaited

    def throw(self, kind: Any, error: Any = None, trace: Any = None) -> Any:
        if not self._handed_over:
            self._handed_over = True
            awaited, self._awaited = self._awaited, None
            # As for any task: the awaited future is cancelled, and throws into the coroutine itself.
            if isinstance(kind, asyncio.CancelledError) and awaited is not None and awaited.cancel():
                return awaited
        return self._coroutine.throw(kind) if error is None else self._coroutine.throw(kind, error, trace)

    def close(self) -> None:
        self._coroutine.close()

    def __await__(self) -> Generator[Any, Any, None]:
        return self._coroutine.__await__()
