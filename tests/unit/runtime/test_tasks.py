"""Task groups: order of cancellation, errors, and coroutines that start without a task."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from strandline.runtime.tasks import ITEMS_PER_YIELD, LARGE_YIELDS, TaskGroup, YieldCounter


def run(scenario: Callable[[], Awaitable[Any]]) -> Any:
    async def main() -> Any:
        return await scenario()

    return asyncio.run(main())


async def forever(name: str, events: list[str]) -> None:
    try:
        await asyncio.get_running_loop().create_future()
    except asyncio.CancelledError:
        events.append(name)
        raise


def test_a_group_exits_when_its_last_task_has_ended() -> None:
    async def scenario() -> list[int]:
        done: list[int] = []

        async def child(number: int) -> None:
            await asyncio.sleep(0)
            done.append(number)

        async with TaskGroup() as group:
            for number in range(3):
                group.start(child(number))
        return done

    assert run(scenario) == [0, 1, 2]


def test_tasks_are_cancelled_in_the_order_of_their_start() -> None:
    async def scenario() -> list[str]:
        events: list[str] = []
        names = [f"task {number}" for number in range(50)]
        async with TaskGroup() as group:
            for name in names:
                group.start(forever(name, events))
            await asyncio.sleep(0)
            group.cancel()
        assert events == names
        return events

    assert len(run(scenario)) == 50


def test_the_first_failure_cancels_the_others_and_the_owner_and_is_raised() -> None:
    async def scenario() -> list[str]:
        events: list[str] = []

        async def failing() -> None:
            await asyncio.sleep(0)
            raise ValueError("broken")

        with pytest.raises(ValueError, match="broken"):
            async with TaskGroup() as group:
                group.start(forever("sibling", events))
                group.start(failing())
                await forever("owner", events)
        task = asyncio.current_task()
        assert task is not None
        assert task.cancelling() == 0
        return events

    assert sorted(run(scenario)) == ["owner", "sibling"]


def test_the_owners_own_error_wins_and_no_cancellation_is_left_pending() -> None:
    async def scenario() -> int:
        async def failing() -> None:
            raise ValueError("child")

        with pytest.raises(KeyError):
            async with TaskGroup() as group:
                group.start(failing())
                try:
                    await asyncio.get_running_loop().create_future()
                except asyncio.CancelledError:
                    raise KeyError("owner") from None
        task = asyncio.current_task()
        assert task is not None
        return task.cancelling()

    assert run(scenario) == 0


def test_cancelling_the_owner_cancels_the_tasks_and_waits_for_them() -> None:
    async def scenario() -> list[str]:
        events: list[str] = []

        async def slow_to_end() -> None:
            try:
                await asyncio.get_running_loop().create_future()
            finally:
                await asyncio.sleep(0)
                await asyncio.sleep(0)
                events.append("ended")

        async def owner() -> None:
            async with TaskGroup() as group:
                group.start(slow_to_end())

        task = asyncio.ensure_future(owner())
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        return events

    assert run(scenario) == ["ended"]


def test_a_task_started_in_a_closing_group_never_runs() -> None:
    async def scenario() -> list[str]:
        events: list[str] = []

        async def late() -> None:
            events.append("ran")

        async with TaskGroup() as group:
            group.cancel()
            group.start(late())
        return events

    assert run(scenario) == []


def test_a_coroutine_that_never_waits_needs_no_task() -> None:
    async def scenario() -> list[str]:
        events: list[str] = []

        async def quick() -> None:
            events.append("ran")

        async with TaskGroup() as group:
            assert group.start_eagerly(quick()) is None
            assert events == ["ran"]
        return events

    assert run(scenario) == ["ran"]


def test_a_coroutine_that_waits_continues_as_a_task() -> None:
    async def scenario() -> list[str]:
        events: list[str] = []
        gate: asyncio.Future[str] = asyncio.get_running_loop().create_future()

        async def waiting() -> None:
            events.append("before")
            events.append(await gate)
            await asyncio.sleep(0)
            events.append("after")

        async with TaskGroup() as group:
            assert group.start_eagerly(waiting()) is not None
            assert events == ["before"]
            gate.set_result("opened")
        return events

    assert run(scenario) == ["before", "opened", "after"]


def test_a_wait_that_ends_before_the_tasks_first_step_is_not_missed() -> None:
    async def scenario() -> list[str]:
        events: list[str] = []
        gate: asyncio.Future[str] = asyncio.get_running_loop().create_future()

        async def waiting() -> None:
            try:
                await gate
            except LookupError as error:
                events.append(str(error))

        async with TaskGroup() as group:
            group.start_eagerly(waiting())
            gate.set_exception(LookupError("raised at once"))
        return events

    assert run(scenario) == ["raised at once"]


def test_cancelling_before_the_tasks_first_step_reaches_the_coroutine() -> None:
    async def scenario() -> list[str]:
        events: list[str] = []
        gate: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        async def waiting() -> None:
            try:
                await gate
            except asyncio.CancelledError:
                events.append("cancelled")
                await asyncio.sleep(0)
                events.append("cleaned up")
                raise

        async with TaskGroup() as group:
            group.start_eagerly(waiting())
            group.cancel()
        assert gate.cancelled()
        return events

    assert run(scenario) == ["cancelled", "cleaned up"]


def test_cancelling_a_continued_coroutine_that_yielded_bare_reaches_it_too() -> None:
    async def scenario() -> list[str]:
        events: list[str] = []

        async def waiting() -> None:
            try:
                await asyncio.sleep(0)
            except asyncio.CancelledError:
                events.append("cancelled")
                raise

        async with TaskGroup() as group:
            group.start_eagerly(waiting())
            group.cancel()
        return events

    assert run(scenario) == ["cancelled"]


def test_an_error_after_the_first_wait_fails_the_group() -> None:
    async def scenario() -> None:
        async def failing() -> None:
            await asyncio.sleep(0)
            raise ValueError("later")

        with pytest.raises(ValueError, match="later"):
            async with TaskGroup() as group:
                group.start_eagerly(failing())

    run(scenario)


class Result:
    offload_encoding = False


def test_a_yield_is_due_after_every_so_many_items() -> None:
    result = Result()
    yields = YieldCounter(result)
    due = [number for number in range(3 * ITEMS_PER_YIELD) if yields.due()]
    assert due == [ITEMS_PER_YIELD, 2 * ITEMS_PER_YIELD + 1]
    assert not result.offload_encoding


def test_one_large_item_makes_the_next_yield_due() -> None:
    yields = YieldCounter(Result())
    assert [yields.due(ITEMS_PER_YIELD), yields.due(1), yields.due(1)] == [False, True, False]


def test_a_result_that_took_many_yields_is_marked_to_be_encoded_in_a_thread() -> None:
    result = Result()
    yields = YieldCounter(result)
    for _ in range(LARGE_YIELDS):
        assert not result.offload_encoding
        yields.due(ITEMS_PER_YIELD + 1)
    assert result.offload_encoding
