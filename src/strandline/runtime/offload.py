"""Work that may block, outside the event loop: threads in production, scheduled events in simulation.

A caller that is cancelled returns only when the work has ended or will never start: otherwise a thread could still
write to files that their owner has closed or passed on.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, Protocol, TypeVar

T = TypeVar("T")


class Offload(Protocol):
    async def run(self, work: Callable[..., T], *arguments: object) -> T: ...
    def close(self) -> None: ...


class ThreadOffload:
    def __init__(self, threads: int) -> None:
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix="offload")

    async def run(self, work: Callable[..., T], *arguments: object) -> T:
        job = self._pool.submit(work, *arguments)
        try:
            return await asyncio.wrap_future(job)
        except asyncio.CancelledError:
            if not job.cancel():
                await _ended(job)
            raise

    def close(self) -> None:
        self._pool.shutdown(wait=True, cancel_futures=True)


async def _ended(job: Future[Any]) -> None:
    """Waits until the work has ended, however often the caller is cancelled."""
    loop = asyncio.get_running_loop()
    ended: asyncio.Future[None] = loop.create_future()
    job.add_done_callback(lambda _: loop.call_soon_threadsafe(ended.set_result, None))
    while not ended.done():
        try:
            await asyncio.shield(ended)
        except asyncio.CancelledError:
            continue
