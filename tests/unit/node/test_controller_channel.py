"""Requests reach the active controller: in this process, on another node, or after a failover."""

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
    """Peers by host; each responds, raises, or never responds."""

    def __init__(self, **peers: Callable[[], Any]) -> None:
        self.peers = peers
        self.called: list[str] = []

    async def call(self, endpoint: Endpoint, request: Message, *, timeout_ms: int) -> Message:
        self.called.append(endpoint.host)
        response = self.peers[endpoint.host]()
        if isinstance(response, Exception):
            raise response
        if isinstance(response, asyncio.Event):
            await response.wait()
        assert isinstance(response, Message)
        return response


def _leader(id_: int, host: str) -> Leader:
    return Leader(id_, Endpoint(host, 9093))


def _run(scenario: Callable[[Simulation], Any]) -> Any:
    with Simulation(seed=1) as simulation:
        return simulation.run(scenario(simulation), max_virtual_s=100)


def _channel(simulation: Simulation, quorum: Quorum, network: Network, **local: Any) -> ControllerChannel:
    from strandline.simulation.clock import SimClock
    from strandline.simulation.process import Process

    clock = SimClock(simulation.loop, Process("test"), 0)
    methods = {ApiKey.BROKER_HEARTBEAT: local["method"]} if local else {}
    return ControllerChannel(1, quorum, network, clock, methods, timeout_ms=30_000)


def test_a_controller_in_this_process_is_called_directly() -> None:
    async def method(request: Message, version: int) -> Message:
        return BrokerHeartbeatResponse(is_caught_up=True)

    async def scenario(simulation: Simulation) -> None:
        network = Network()
        channel = _channel(simulation, Quorum(Leader(1, None)), network, method=method)
        assert (await channel.send(REQUEST, BrokerHeartbeatResponse)).is_caught_up
        assert network.called == []

    _run(scenario)


def test_a_controller_that_is_not_active_yet_is_retried_within_milliseconds() -> None:
    async def scenario(simulation: Simulation) -> float:
        loop = asyncio.get_running_loop()

        async def method(request: Message, version: int) -> Message:
            if loop.time() < active_at:
                raise KafkaError(ErrorCode.NOT_CONTROLLER, "not active yet")
            return BrokerHeartbeatResponse(is_caught_up=True)

        channel = _channel(simulation, Quorum(Leader(1, None)), Network(), method=method)
        active_at = loop.time() + 0.005
        assert (await channel.send(REQUEST, BrokerHeartbeatResponse)).is_caught_up
        return loop.time() - active_at

    assert _run(scenario) < 0.005


def test_a_request_to_a_former_leader_is_sent_to_the_new_leader() -> None:
    async def scenario(simulation: Simulation) -> list[str]:
        quorum = Quorum(_leader(2, "two"))

        def two() -> Message:
            quorum.move(_leader(3, "three"))
            return BrokerHeartbeatResponse(error_code=ErrorCode.NOT_CONTROLLER)

        network = Network(two=two, three=lambda: BrokerHeartbeatResponse(is_caught_up=True))
        channel = _channel(simulation, quorum, network)
        assert (await channel.send(REQUEST, BrokerHeartbeatResponse)).is_caught_up
        return network.called

    assert _run(scenario) == ["two", "three"]


def test_a_request_is_retried_after_a_lost_connection() -> None:
    async def scenario(simulation: Simulation) -> list[str]:
        failures = [ConnectionResetError("gone"), KafkaError(ErrorCode.NETWORK_EXCEPTION, "error")]

        def two() -> Any:
            return failures.pop() if failures else BrokerHeartbeatResponse(is_caught_up=True)

        network = Network(two=two)
        channel = _channel(simulation, Quorum(_leader(2, "two")), network)
        assert (await channel.send(REQUEST, BrokerHeartbeatResponse)).is_caught_up
        return network.called

    assert _run(scenario) == ["two", "two", "two"]


def test_a_request_to_an_unresponsive_leader_is_sent_again_when_another_is_elected() -> None:
    async def scenario(simulation: Simulation) -> list[str]:
        quorum = Quorum(_leader(2, "two"))
        network = Network(two=asyncio.Event, three=lambda: BrokerHeartbeatResponse(is_caught_up=True))
        channel = _channel(simulation, quorum, network)
        asyncio.get_running_loop().call_later(2, quorum.move, _leader(3, "three"))
        assert (await channel.send(REQUEST, BrokerHeartbeatResponse)).is_caught_up
        return network.called

    assert _run(scenario) == ["two", "three"]


def test_a_final_error_is_raised() -> None:
    async def scenario(simulation: Simulation) -> None:
        network = Network(two=lambda: BrokerHeartbeatResponse(error_code=ErrorCode.STALE_BROKER_EPOCH))
        await _channel(simulation, Quorum(_leader(2, "two")), network).send(REQUEST, BrokerHeartbeatResponse)

    with pytest.raises(KafkaError) as error:
        _run(scenario)
    assert error.value.code is ErrorCode.STALE_BROKER_EPOCH


def test_a_request_times_out_without_a_leader() -> None:
    async def scenario(simulation: Simulation) -> None:
        channel = _channel(simulation, Quorum(Leader(-1, None)), Network())
        await channel.send(REQUEST, BrokerHeartbeatResponse, timeout_ms=4_000)

    with pytest.raises(KafkaError, match="no known leader") as error:
        _run(scenario)
    assert error.value.code is ErrorCode.REQUEST_TIMED_OUT


def test_a_handler_without_a_task_may_meet_a_local_controller_that_has_stepped_down() -> None:
    """Handlers run eagerly up to their first wait, and `asyncio.timeout` needs a task."""
    answered: list[Any] = []

    async def scenario(simulation: Simulation) -> None:
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

    _run(scenario)
    assert [response.is_caught_up for response in answered] == [True]
