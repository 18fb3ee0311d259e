"""Threads behind the offload port."""

from __future__ import annotations

import asyncio
import contextlib
import threading

import pytest

from strandline.runtime.offload import ThreadOffload


def test_work_runs_in_another_thread_and_its_result_comes_back() -> None:
    async def scenario() -> tuple[int, int]:
        offload = ThreadOffload(2)
        try:
            return await offload.run(threading.get_ident), await offload.run(max, 3, 4)
        finally:
            offload.close()

    thread, result = asyncio.run(scenario())
    assert thread != threading.get_ident()
    assert result == 4


def test_an_error_of_the_work_is_raised_to_the_caller() -> None:
    async def scenario() -> None:
        offload = ThreadOffload(1)
        try:
            await offload.run(int, "not a number")
        finally:
            offload.close()

    with pytest.raises(ValueError, match="not a number"):
        asyncio.run(scenario())


def test_work_that_is_queued_at_close_never_starts() -> None:
    begun: list[str] = []
    gate = threading.Event()

    async def scenario() -> None:
        offload = ThreadOffload(1)
        first = asyncio.ensure_future(offload.run(gate.wait))
        second = asyncio.ensure_future(offload.run(begun.append, "second"))
        await asyncio.sleep(0)
        second.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await second
        gate.set()
        assert await first is True
        offload.close()

    asyncio.run(scenario())
    assert begun == []


def test_a_cancelled_caller_returns_when_its_work_has_ended() -> None:
    events: list[str] = []
    begun, gate = threading.Event(), threading.Event()

    def work() -> None:
        begun.set()
        gate.wait()
        events.append("the work has ended")

    async def scenario() -> None:
        offload = ThreadOffload(1)
        waiting = asyncio.ensure_future(offload.run(work))
        await asyncio.sleep(0)
        begun.wait()
        for _ in range(3):
            waiting.cancel()
            await asyncio.sleep(0)
        assert not waiting.done()
        gate.set()
        with contextlib.suppress(asyncio.CancelledError):
            await waiting
        events.append("the waiting has ended")
        assert waiting.cancelled()
        offload.close()

    asyncio.run(scenario())
    assert events == ["the work has ended", "the waiting has ended"]
