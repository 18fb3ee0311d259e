"""Work that may block, away from the event loop: threads in production, scheduled events in simulation.

Who is cancelled while it waits for its work leaves when the work has ended, or will never begin: otherwise a thread
could still be writing to files that its owner has closed, or handed to somebody else.
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
    """However often who waits is cancelled."""
    loop = asyncio.get_running_loop()
    ended: asyncio.Future[None] = loop.create_future()
    job.add_done_callback(lambda _: loop.call_soon_threadsafe(ended.set_result, None))
    while not ended.done():
        try:
            await asyncio.shield(ended)
        except asyncio.CancelledError:
            continue
