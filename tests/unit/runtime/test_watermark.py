"""Watermarks and waits, on asyncio's own loop, stepped by sleep(0): no time passes."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from strandline.runtime.watermark import Wait, Watermark


def run(scenario: Callable[[], Awaitable[Any]]) -> Any:
    async def main() -> Any:
        return await scenario()

    return asyncio.run(main())


async def settle() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


def test_waiters_wake_in_the_order_of_their_offsets_and_then_of_their_arrival() -> None:
    watermark = Watermark()
    woken: list[str] = []
    for name, offset in [("a5", 5), ("b3", 3), ("c5", 5), ("d9", 9)]:
        watermark.call_when(offset, lambda name=name: woken.append(name))  # type: ignore[misc]
    watermark.advance(4)
    assert woken == ["b3"]
    watermark.advance(5)
    assert woken == ["b3", "a5", "c5"]


def test_a_watermark_never_falls() -> None:
    watermark = Watermark(7)
    watermark.advance(3)
    assert watermark.value == 7


def test_a_waiter_for_a_reached_offset_is_called_at_once() -> None:
    woken: list[int] = []
    Watermark(7).call_when(7, lambda: woken.append(7))
    assert woken == [7]


def test_losing_a_watermark_fails_its_waiters_in_the_order_of_arrival() -> None:
    async def scenario() -> list[str]:
        watermark = Watermark()
        failed: list[str] = []

        async def waiter(name: str, offset: int) -> None:
            try:
                await watermark.reached(offset)
            except LookupError as error:
                failed.append(f"{name}: {error}")

        tasks = [asyncio.ensure_future(waiter("first", 9)), asyncio.ensure_future(waiter("second", 2))]
        await settle()
        watermark.lose(LookupError("moved"))
        await asyncio.gather(*tasks)
        return failed

    assert run(scenario) == ["first: moved", "second: moved"]


def test_an_advance_after_the_loss_cannot_turn_it_into_success() -> None:
    async def scenario() -> None:
        watermark = Watermark()
        waiter = asyncio.ensure_future(watermark.reached(5))
        await settle()
        watermark.lose(LookupError("moved"))
        watermark.advance(5)  # before the waiter's task has had its turn
        with pytest.raises(LookupError):
            await waiter

    run(scenario)


def test_only_the_first_loss_counts() -> None:
    watermark = Watermark()
    watermark.lose(LookupError("first"))
    watermark.lose(LookupError("second"))
    assert str(watermark.lost) == "first"


def test_an_offset_reached_before_the_loss_stays_reached() -> None:
    async def scenario() -> None:
        watermark = Watermark(5)
        watermark.lose(LookupError("moved"))
        await watermark.reached(5)
        with pytest.raises(LookupError):
            await watermark.reached(6)

    run(scenario)


def test_a_waiter_that_is_cancelled_leaves_nothing_behind() -> None:
    async def scenario() -> int:
        watermark = Watermark()
        waiter = asyncio.ensure_future(watermark.reached(5))
        await settle()
        assert watermark.waiting == 1
        waiter.cancel()
        await settle()
        return watermark.waiting

    assert run(scenario) == 0


def test_a_forgotten_waiter_is_not_called_while_others_are() -> None:
    watermark = Watermark()
    woken: list[int] = []
    wakes = [lambda number=number: woken.append(number) for number in range(10)]
    for wake in wakes:
        watermark.call_when(3, wake)
    watermark.forget(wakes[4])
    watermark.forget(wakes[7])
    watermark.advance(3)
    assert woken == [0, 1, 2, 3, 5, 6, 8, 9]


def test_a_cancelled_waiter_may_wait_again() -> None:
    watermark = Watermark()
    woken: list[int] = []

    def wake() -> None:
        woken.append(watermark.value)

    for _ in range(3):
        watermark.call_when(9, lambda: None)
    watermark.call_when(3, wake)
    watermark.forget(wake)
    watermark.call_when(5, wake)
    watermark.advance(9)
    assert woken == [9]


def test_a_forgotten_waiter_is_not_called_on_a_loss() -> None:
    watermark = Watermark()
    woken: list[str] = []
    wakes = [lambda name=name: woken.append(name) for name in "abcde"]
    for wake in wakes:
        watermark.call_when(3, wake)
    watermark.forget(wakes[2])
    watermark.lose(LookupError())
    assert woken == ["a", "b", "d", "e"]


def test_entries_of_cancelled_waiters_do_not_accumulate() -> None:
    watermark = Watermark()
    for _ in range(10):
        watermark.call_when(100, lambda: None)
    for _ in range(10_000):

        def wake() -> None:
            raise AssertionError("this waiter was cancelled")

        watermark.call_when(50, wake)
        watermark.forget(wake)
    assert watermark.waiting <= 40
    watermark.advance(60)
    assert watermark.waiting == 10


def test_a_wait_ends_when_all_its_offsets_are_reached() -> None:
    async def scenario() -> bool:
        first, second = Watermark(), Watermark()
        wait = Wait(2)
        parts = [wait.reach(first, 3), wait.reach(second, 4)]
        done = asyncio.ensure_future(wait.done(60_000))
        await settle()
        first.advance(3)
        await settle()
        assert not done.done()
        second.advance(10)
        in_time = await done
        assert [part.reached for part in parts] == [True, True]
        return in_time

    assert run(scenario) is True


def test_a_lost_condition_counts_and_has_its_error() -> None:
    async def scenario() -> None:
        kept, lost = Watermark(), Watermark()
        wait = Wait(2)
        first, second = wait.reach(kept, 1), wait.reach(lost, 1)
        done = asyncio.ensure_future(wait.done(60_000))
        await settle()
        lost.lose(LookupError("moved"))
        kept.advance(1)
        assert await done is True
        assert first.lost is None
        assert str(second.lost) == "moved"

    run(scenario)


def test_a_wait_for_reached_offsets_returns_at_once() -> None:
    async def scenario() -> bool:
        lost = Watermark()
        lost.lose(LookupError())
        wait = Wait(2)
        wait.reach(Watermark(5), 5)
        wait.reach(lost, 9)
        assert wait.finished
        return await wait.done(0)

    assert run(scenario) is True


def test_collecting_measures_again_on_every_advance_until_there_is_enough() -> None:
    async def scenario() -> list[int]:
        watermark = Watermark()
        measured: list[int] = []

        def measure() -> int:
            measured.append(watermark.value)
            return watermark.value * 10

        wait = Wait(100)
        part = wait.collect(watermark, measure)
        done = asyncio.ensure_future(wait.done(60_000))
        for value in (3, 5, 11):
            await settle()
            watermark.advance(value)
        assert await done is True
        assert part.weight == 110
        return measured

    assert run(scenario) == [0, 3, 5, 11]


def test_a_weight_that_falls_again_is_subtracted() -> None:
    async def scenario() -> bool:
        first, second = Watermark(), Watermark()
        weights = {"first": 0, "second": 0}
        wait = Wait(10)
        wait.collect(first, lambda: weights["first"])
        wait.collect(second, lambda: weights["second"])
        done = asyncio.ensure_future(wait.done(60_000))
        await settle()
        weights["first"] = 8
        first.advance(1)
        weights["first"] = 1  # the log was truncated, or a segment retired
        first.advance(2)
        weights["second"] = 8
        second.advance(1)
        await settle()
        assert not done.done()
        weights["second"] = 9
        second.advance(2)
        return await done

    assert run(scenario) is True


def test_collecting_from_a_lost_watermark_ends_the_wait_at_once() -> None:
    async def scenario() -> bool:
        watermark = Watermark()
        watermark.lose(LookupError())
        wait = Wait(1)
        wait.collect(watermark, lambda: 0)
        return await wait.done(60_000)

    assert run(scenario) is True


def test_a_wait_ends_at_its_timeout_and_leaves_nothing_behind() -> None:
    async def scenario() -> None:
        watermark = Watermark()
        wait = Wait(1)
        part = wait.reach(watermark, 5)
        assert await wait.done(1) is False
        assert not part.reached
        assert watermark.waiting == 0

    run(scenario)


def test_a_wait_that_is_finished_before_it_waits_registers_nowhere() -> None:
    async def scenario() -> None:
        idle, busy = Watermark(), Watermark(100)
        for _ in range(100):
            wait = Wait(10)
            wait.collect(idle, lambda: 0)
            wait.collect(busy, lambda: 50)
            assert await wait.done(1_000) is True
            expired = Wait(10)
            expired.collect(idle, lambda: 0)
            assert await expired.done(0) is False
        assert idle.waiting == 0

    run(scenario)


def test_a_wait_ended_by_one_watermark_leaves_nothing_at_the_others() -> None:
    async def scenario() -> int:
        idle, busy = Watermark(), Watermark()
        wait = Wait(1)
        wait.collect(idle, lambda: 0)
        wait.collect(busy, lambda: busy.value)
        done = asyncio.ensure_future(wait.done(60_000))
        await settle()
        assert idle.waiting == 1
        busy.advance(1)
        assert await done is True
        return idle.waiting

    assert run(scenario) == 0


def test_a_cancelled_wait_leaves_nothing_behind() -> None:
    async def scenario() -> int:
        watermark = Watermark()
        wait = Wait(1)
        wait.reach(watermark, 5)
        done = asyncio.ensure_future(wait.done(60_000))
        await settle()
        done.cancel()
        await settle()
        return watermark.waiting

    assert run(scenario) == 0
