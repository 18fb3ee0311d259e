"""The queue before the machine: in order, except for those who must wait for a reservation to end."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from strandline.raft.machine.effects import Effect
from strandline.raft.shell.input_queue import InputQueue
from unit.server.memory_server import run, settle


def step(said: list[str], word: str) -> Callable[[], list[Effect]]:
    def say() -> list[Effect]:
        said.append(word)
        return []

    return say


def test_steps_run_in_order_and_first_steps_before_all_others() -> None:
    async def scenario() -> None:
        said: list[str] = []
        inbox = InputQueue(lambda: False)
        inbox.put(step(said, "a"))
        inbox.put(step(said, "b"))
        inbox.put(step(said, "writes"), writes=True)
        inbox.put(step(said, "first"), first=True)
        while not inbox.is_empty:
            (await inbox.next())()
        assert said == ["first", "writes", "a", "b"]

    run(scenario())


def test_writing_steps_wait_while_an_offset_is_reserved_and_other_steps_run() -> None:
    async def scenario() -> None:
        said: list[str] = []
        reserved = True
        inbox = InputQueue(lambda: reserved)

        async def take() -> None:
            while True:
                (await inbox.next())()

        taking = asyncio.create_task(take())
        inbox.put(step(said, "writes"), writes=True)
        inbox.put(step(said, "a"))
        await settle()
        inbox.put(step(said, "b"))
        await settle()
        assert said == ["a", "b"]
        reserved = False
        inbox.put(step(said, "c"))
        inbox.wake()
        await settle()
        assert said == ["a", "b", "writes", "c"]
        taking.cancel()

    run(scenario())


def test_the_end_of_a_reservation_runs_the_writing_steps() -> None:
    async def scenario() -> None:
        said: list[str] = []
        reserved = True
        inbox = InputQueue(lambda: reserved)
        inbox.put(step(said, "writes"), writes=True)
        waiting = asyncio.create_task(inbox.next())
        await settle()
        assert not waiting.done()
        reserved = False
        inbox.wake()
        (await waiting)()
        assert said == ["writes"]

    run(scenario())
