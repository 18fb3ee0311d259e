"""The order of the machine's inputs, with and without a reservation."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from strandline.raft.machine.effects import Effect
from strandline.raft.shell.input_queue import InputQueue
from unit.server.memory_server import run, settle


def step(executed: list[str], name: str) -> Callable[[], list[Effect]]:
    def say() -> list[Effect]:
        executed.append(name)
        return []

    return say


def test_steps_run_in_order_and_first_steps_before_all_others() -> None:
    async def scenario() -> None:
        executed: list[str] = []
        queue = InputQueue(lambda: False)
        queue.put(step(executed, "a"))
        queue.put(step(executed, "b"))
        queue.put(step(executed, "writes"), writes=True)
        queue.put(step(executed, "first"), first=True)
        while not queue.is_empty:
            (await queue.next())()
        assert executed == ["first", "writes", "a", "b"]

    run(scenario())


def test_writing_steps_wait_while_an_offset_is_reserved_and_other_steps_run() -> None:
    async def scenario() -> None:
        executed: list[str] = []
        reserved = True
        queue = InputQueue(lambda: reserved)

        async def take() -> None:
            while True:
                (await queue.next())()

        taking = asyncio.create_task(take())
        queue.put(step(executed, "writes"), writes=True)
        queue.put(step(executed, "a"))
        await settle()
        queue.put(step(executed, "b"))
        await settle()
        assert executed == ["a", "b"]
        reserved = False
        queue.put(step(executed, "c"))
        queue.wake()
        await settle()
        assert executed == ["a", "b", "writes", "c"]
        taking.cancel()

    run(scenario())


def test_the_end_of_a_reservation_runs_the_writing_steps() -> None:
    async def scenario() -> None:
        executed: list[str] = []
        reserved = True
        queue = InputQueue(lambda: reserved)
        queue.put(step(executed, "writes"), writes=True)
        waiting = asyncio.create_task(queue.next())
        await settle()
        assert not waiting.done()
        reserved = False
        queue.wake()
        (await waiting)()
        assert executed == ["writes"]

    run(scenario())
