"""Requests find the active controller: here, elsewhere, or after it has moved."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

from strandline.model.errors import ErrorCode, KafkaError
from strandline.model.ids import Endpoint
from strandline.node.controller_channel import ControllerChannel
from strandline.protocol.apis import ApiKey
from strandline.protocol.messages.brokers import BrokerHeartbeatRequest, BrokerHeartbeatResponse
from strandline.protocol.types import Message
from strandline.runtime.tasks import TaskGroup
from strandline.simulation.world import Simulation

REQUEST = BrokerHeartbeatRequest(broker_id=1)


@dataclass(frozen=True)
class Leader:
    id: int
    endpoint: Endpoint | None


class Quorum:
    def __init__(self, leader: Leader) -> None:
        self.leader = leader
        self._changed = asyncio.Event()

    def move(self, leader: Leader) -> None:
        self.leader = leader
        self._changed.set()
        self._changed = asyncio.Event()

    async def leader_other_than(self, known: Leader) -> Leader:
        while self.leader == known:
            await self._changed.wait()
        return self.leader


class Network:
    """Peers by port; each answers, raises, or never comes back."""

    def __init__(self, **peers: Callable[[], Any]) -> None:
        self.peers = peers
        self.asked: list[str] = []

    async def call(self, endpoint: Endpoint, request: Message, *, timeout_ms: int) -> Message:
        self.asked.append(endpoint.host)
        answer = self.peers[endpoint.host]()
        if isinstance(answer, Exception):
            raise answer
        if isinstance(answer, asyncio.Event):
            await answer.wait()
        assert isinstance(answer, Message)
        return answer


def _leader(id_: int, host: str) -> Leader:
    return Leader(id_, Endpoint(host, 9093))


def _run(story: Callable[[Simulation], Any]) -> Any:
    with Simulation(seed=1) as simulation:
        return simulation.run(story(simulation), max_virtual_s=100)


def _channel(simulation: Simulation, quorum: Quorum, network: Network, **local: Any) -> ControllerChannel:
    from strandline.simulation.clock import SimClock
    from strandline.simulation.process import Process

    clock = SimClock(simulation.loop, Process("test"), 0)
    methods = {ApiKey.BROKER_HEARTBEAT: local["method"]} if local else {}
    return ControllerChannel(1, quorum, network, clock, methods, timeout_ms=30_000)


def test_a_leader_in_this_process_is_called_directly() -> None:
    async def method(request: Message, version: int) -> Message:
        return BrokerHeartbeatResponse(is_caught_up=True)

    async def story(simulation: Simulation) -> None:
        network = Network()
        channel = _channel(simulation, Quorum(Leader(1, None)), network, method=method)
        assert (await channel.send(REQUEST, BrokerHeartbeatResponse)).is_caught_up
        assert network.asked == []

    _run(story)


def test_a_controller_that_is_active_in_a_moment_is_asked_again_in_a_moment() -> None:
    async def story(simulation: Simulation) -> float:
        loop = asyncio.get_running_loop()

        async def method(request: Message, version: int) -> Message:
            if loop.time() < active_at:
                raise KafkaError(ErrorCode.NOT_CONTROLLER, "not active yet")
            return BrokerHeartbeatResponse(is_caught_up=True)

        channel = _channel(simulation, Quorum(Leader(1, None)), Network(), method=method)
        active_at = loop.time() + 0.005
        assert (await channel.send(REQUEST, BrokerHeartbeatResponse)).is_caught_up
        return loop.time() - active_at

    assert _run(story) < 0.005


def test_who_does_not_lead_any_more_is_left_for_who_does() -> None:
    async def story(simulation: Simulation) -> list[str]:
        quorum = Quorum(_leader(2, "two"))

        def two() -> Message:
            quorum.move(_leader(3, "three"))
            return BrokerHeartbeatResponse(error_code=ErrorCode.NOT_CONTROLLER)

        network = Network(two=two, three=lambda: BrokerHeartbeatResponse(is_caught_up=True))
        channel = _channel(simulation, quorum, network)
        assert (await channel.send(REQUEST, BrokerHeartbeatResponse)).is_caught_up
        return network.asked

    assert _run(story) == ["two", "three"]


def test_a_lost_connection_is_tried_again() -> None:
    async def story(simulation: Simulation) -> list[str]:
        failures = [ConnectionResetError("gone"), KafkaError(ErrorCode.NETWORK_EXCEPTION, "refused")]

        def two() -> Any:
            return failures.pop() if failures else BrokerHeartbeatResponse(is_caught_up=True)

        network = Network(two=two)
        channel = _channel(simulation, Quorum(_leader(2, "two")), network)
        assert (await channel.send(REQUEST, BrokerHeartbeatResponse)).is_caught_up
        return network.asked

    assert _run(story) == ["two", "two", "two"]


def test_a_silent_leader_is_left_when_another_is_elected() -> None:
    async def story(simulation: Simulation) -> list[str]:
        quorum = Quorum(_leader(2, "two"))
        network = Network(two=asyncio.Event, three=lambda: BrokerHeartbeatResponse(is_caught_up=True))
        channel = _channel(simulation, quorum, network)
        asyncio.get_running_loop().call_later(2, quorum.move, _leader(3, "three"))
        assert (await channel.send(REQUEST, BrokerHeartbeatResponse)).is_caught_up
        return network.asked

    assert _run(story) == ["two", "three"]


def test_a_refusal_that_is_final_is_raised() -> None:
    async def story(simulation: Simulation) -> None:
        network = Network(two=lambda: BrokerHeartbeatResponse(error_code=ErrorCode.STALE_BROKER_EPOCH))
        await _channel(simulation, Quorum(_leader(2, "two")), network).send(REQUEST, BrokerHeartbeatResponse)

    with pytest.raises(KafkaError) as refused:
        _run(story)
    assert refused.value.code is ErrorCode.STALE_BROKER_EPOCH


def test_without_a_leader_the_time_runs_out_and_the_error_says_so() -> None:
    async def story(simulation: Simulation) -> None:
        channel = _channel(simulation, Quorum(Leader(-1, None)), Network())
        await channel.send(REQUEST, BrokerHeartbeatResponse, timeout_ms=4_000)

    with pytest.raises(KafkaError, match="nobody is known to lead") as refused:
        _run(story)
    assert refused.value.code is ErrorCode.REQUEST_TIMED_OUT


def test_a_handler_that_has_no_task_yet_may_find_that_its_own_controller_has_stepped_down() -> None:
    """Handlers run eagerly up to their first wait, and a time limit needs a task."""
    answered: list[Any] = []

    async def story(simulation: Simulation) -> None:
        quorum = Quorum(Leader(1, None))

        async def method(request: Message, version: int) -> Message:
            quorum.move(_leader(2, "two"))
            raise KafkaError(ErrorCode.NOT_CONTROLLER, "not any more")

        network = Network(two=lambda: BrokerHeartbeatResponse(is_caught_up=True))
        channel = _channel(simulation, quorum, network, method=method)

        async def handle() -> None:
            answered.append(await channel.send(REQUEST, BrokerHeartbeatResponse))

        async with TaskGroup() as tasks:
            asyncio.get_running_loop().call_soon(lambda: tasks.start_eagerly(handle()))
            await asyncio.sleep(1)

    _run(story)
    assert [answer.is_caught_up for answer in answered] == [True]
