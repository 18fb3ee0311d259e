"""The virtual loop: order of events, time, ended processes. Every supported Python must pass this file."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from strandline.runtime.tasks import TaskGroup
from strandline.simulation.loop import Deadlock, LimitReached, VirtualLoop
from strandline.simulation.process import Process, ProcessEnded


@pytest.fixture
def loop() -> Iterator[VirtualLoop]:
    loop = VirtualLoop()
    yield loop
    loop.close()


def test_sleeping_for_a_virtual_day_takes_no_real_time_and_is_exact(loop: VirtualLoop) -> None:
    async def scenario() -> float:
        await asyncio.sleep(86_400)
        await asyncio.sleep(0.000_5)
        return asyncio.get_running_loop().time()

    assert loop.run(scenario()) == 86_400.000_5


def test_ready_events_run_first_in_first_out_before_any_timer(loop: VirtualLoop) -> None:
    events: list[str] = []

    async def scenario() -> None:
        loop.call_later(0, events.append, "timer")
        for name in ("a", "b", "c"):
            loop.call_soon(events.append, name)
        loop.call_soon(loop.call_soon, events.append, "d")
        await asyncio.sleep(1)

    loop.run(scenario())
    assert events == ["a", "b", "c", "d", "timer"]


def test_timers_fire_by_time_and_then_in_the_order_they_were_set(loop: VirtualLoop) -> None:
    events: list[str] = []

    async def scenario() -> None:
        for name, delay in [("late", 3), ("first", 1), ("second", 1), ("middle", 2)]:
            loop.call_later(delay, events.append, name)
        await asyncio.sleep(5)

    loop.run(scenario())
    assert events == ["first", "second", "middle", "late"]


def test_cancelled_timers_never_fire_and_do_not_pile_up(loop: VirtualLoop) -> None:
    async def scenario() -> None:
        for _ in range(10_000):
            loop.call_later(3600, pytest.fail, "a cancelled timer fired").cancel()
        await asyncio.sleep(7200)

    loop.run(scenario())
    assert len(loop._timers) < 2_000


def test_an_exception_in_a_callback_is_raised_from_the_run(loop: VirtualLoop) -> None:
    async def scenario() -> None:
        loop.call_later(2, int, "not a number")
        await asyncio.sleep(10)

    with pytest.raises(ValueError, match="not a number") as caught:
        loop.run(scenario())
    assert any("2.000000 s of virtual time" in note for note in caught.value.__notes__)


def test_a_deadlock_names_the_waiting_tasks(loop: VirtualLoop) -> None:
    async def inner() -> None:
        await asyncio.get_running_loop().create_future()

    async def stuck_forever() -> None:
        await inner()

    with pytest.raises(Deadlock, match=r"stuck_forever:\d+ > .*inner:\d+"):
        loop.run(stuck_forever())


def test_a_run_is_limited_in_virtual_time(loop: VirtualLoop) -> None:
    async def heartbeat() -> None:
        for _ in range(1_000):
            await asyncio.sleep(1)

    with pytest.raises(LimitReached, match="virtual time"):
        loop.run(heartbeat(), max_virtual_s=100)
    assert loop.now_us == 100_000_000


def test_a_run_is_limited_in_steps(loop: VirtualLoop) -> None:
    async def spin() -> None:
        for _ in range(1_000):
            await asyncio.sleep(0)

    with pytest.raises(LimitReached, match="500 steps"):
        loop.run(spin(), max_steps=500)


def test_asyncio_timeouts_and_our_task_groups_run_on_it(loop: VirtualLoop) -> None:
    async def scenario() -> list[str]:
        events: list[str] = []
        queue: asyncio.Queue[str] = asyncio.Queue()
        lock = asyncio.Lock()

        async def worker(name: str) -> None:
            async with lock:
                await asyncio.sleep(0.1)
                await queue.put(name)

        async with TaskGroup() as group:
            for name in ("x", "y"):
                group.start(worker(name))
            group.start_eagerly(worker("z"))
            for _ in range(3):
                events.append(await queue.get())
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(5):
                await asyncio.sleep(6)
        assert await asyncio.wait_for(asyncio.shield(asyncio.sleep(1, "slept")), 2) == "slept"
        return events

    assert loop.run(scenario()) == ["z", "x", "y"]
    assert loop.time() == pytest.approx(6.3)


def test_threads_and_sockets_are_not_supported(loop: VirtualLoop) -> None:
    async def scenario() -> None:
        await asyncio.to_thread(int)

    with pytest.raises(NotImplementedError):
        loop.run(scenario())


def test_no_code_of_an_ended_process_runs_again_not_even_finally_blocks(loop: VirtualLoop) -> None:
    events: list[str] = []

    async def program() -> None:
        try:
            while True:
                await asyncio.sleep(1)
                events.append("tick")
        finally:
            events.append("cleaned up")

    async def scenario() -> None:
        process = Process("node")
        loop.register(process)
        process.call(loop.create_task, program())
        await asyncio.sleep(3.5)
        process.end()
        await asyncio.sleep(100)
        assert events == ["tick"] * 3

    loop.run(scenario())


def test_the_step_in_which_a_process_ends_is_unwound_and_other_processes_continue(loop: VirtualLoop) -> None:
    events: list[str] = []

    async def scenario() -> None:
        process = Process("node")
        loop.register(process)

        def end() -> None:
            process.end()
            raise ProcessEnded

        async def program() -> None:
            try:
                end()
            except Exception:
                events.append("caught")
            events.append("continued")

        process.call(loop.create_task, program())
        process.call(loop.call_later, 1, end)
        await asyncio.sleep(5)
        events.append("the simulation continues")

    loop.run(scenario())
    assert events == ["the simulation continues"]


def test_events_that_came_due_while_paused_run_when_the_process_resumes(loop: VirtualLoop) -> None:
    events: list[tuple[str, float]] = []

    async def program() -> None:
        for name in ("a", "b", "c"):
            await asyncio.sleep(1)
            events.append((name, loop.time()))

    async def scenario() -> None:
        process = Process("node")
        loop.register(process)
        process.call(loop.create_task, program())
        await asyncio.sleep(1.5)
        process.paused = True
        await asyncio.sleep(10)
        loop.resume(process)
        await asyncio.sleep(10)

    loop.run(scenario())
    assert events == [("a", 1.0), ("b", 11.5), ("c", 12.5)]


def test_timers_of_a_process_with_a_fast_clock_fire_early(loop: VirtualLoop) -> None:
    async def program() -> float:
        await asyncio.sleep(10)
        return loop.time()

    async def scenario() -> tuple[float, float]:
        process = Process("node", clock_rate=2.0, started_us=loop.now_us)
        loop.register(process)
        return await process.call(loop.create_task, program()), loop.time()

    assert loop.run(scenario()) == (10.0, 5.0)


def test_closing_the_loop_closes_pending_tasks_without_warnings(
    loop: VirtualLoop, capsys: pytest.CaptureFixture[str]
) -> None:
    async def stubborn() -> None:
        try:
            await asyncio.sleep(100)
        finally:
            await asyncio.sleep(1)

    async def scenario() -> None:
        loop.create_task(stubborn())
        await asyncio.sleep(1)

    loop.run(scenario())
    loop.close()
    assert loop.take_unhandled_errors() == []
    assert capsys.readouterr().err == ""


def test_the_error_of_a_task_that_was_never_retrieved_is_reported(loop: VirtualLoop) -> None:
    async def failing() -> None:
        raise ValueError("unseen")

    async def scenario() -> None:
        loop.create_task(failing())
        for _ in range(500):
            await loop.create_task(asyncio.sleep(1))

    loop.run(scenario())
    assert [error for error in loop.take_unhandled_errors() if "unseen" in error]
    assert loop.take_unhandled_errors() == []


_PROGRAM = """
import asyncio
from strandline.simulation.loop import VirtualLoop
from strandline.runtime.tasks import TaskGroup

async def worker(name, gate):
    await asyncio.sleep(len(name) * 0.1)
    await gate.wait()

async def main():
    gate = asyncio.Event()
    async with TaskGroup() as group:
        for name in [chr(97 + i) * (i % 5) for i in range(50)]:
            group.start(worker(name, gate))
        await asyncio.sleep(3)
        gate.set()

loop = VirtualLoop()
loop.run(main())
print(loop.trace.digest(), loop.steps)
"""


def test_two_processes_with_different_hash_seeds_run_the_same_steps() -> None:
    source = str(Path(__file__).parents[3] / "src")
    outputs = [
        subprocess.run(
            [sys.executable, "-c", _PROGRAM],
            env={"PYTHONPATH": source, "PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("1", "2")
    ]
    assert outputs[0] == outputs[1]
    assert int(outputs[0].split()[1]) > 50
