"""Work that is cancelled by an interruption."""

from __future__ import annotations

import asyncio

import pytest

from strandline.runtime.tasks import cancel_when


async def _result(value: int) -> int:
    await asyncio.sleep(0)
    return value


async def _failing() -> int:
    await asyncio.sleep(0)
    raise TimeoutError("its own")


def test_work_that_ends_before_the_interruption_returns_its_result() -> None:
    async def scenario() -> int | None:
        return await cancel_when(asyncio.Event().wait, _result(7))

    assert asyncio.run(scenario()) == 7


def test_an_interruption_cancels_the_work() -> None:
    cancelled = []

    async def endless() -> int:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            cancelled.append(True)
            raise
        return 1

    async def scenario() -> int | None:
        event = asyncio.Event()
        asyncio.get_running_loop().call_soon(event.set)
        return await cancel_when(event.wait, endless())

    assert asyncio.run(scenario()) is None
    assert cancelled == [True]


def test_a_timeout_of_the_work_itself_is_no_interruption() -> None:
    async def scenario() -> int | None:
        return await cancel_when(asyncio.Event().wait, _failing())

    with pytest.raises(TimeoutError, match="its own"):
        asyncio.run(scenario())


def test_a_cancellation_is_not_lost_behind_an_error_that_came_first() -> None:
    """1. The work fails. 2. While the interruption's watcher ends, the caller is cancelled. 3. The watcher ends."""

    async def failing() -> int:
        raise ConnectionResetError("gone")

    async def slow_to_end() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0)

    async def retrying() -> None:
        for _ in range(10):
            try:
                await cancel_when(slow_to_end, failing())
            except ConnectionResetError:
                await asyncio.sleep(0)

    async def scenario(steps: int) -> bool:
        task = asyncio.get_running_loop().create_task(retrying())
        for _ in range(steps):
            await asyncio.sleep(0)
        task.cancel()
        try:
            await task
        except asyncio.CancelledError:
            return True
        return False

    assert [asyncio.run(scenario(steps)) for steps in range(8)] == [True] * 8
