"""Registration, heartbeats and controlled shutdown of a broker."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from strandline.metadata.image import Image
from strandline.model.errors import ErrorCode, KafkaError, NodeFault
from strandline.model.ids import Endpoint, Uuid
from strandline.node.lifecycle import BrokerLifecycle, Registration
from strandline.protocol.apis import ApiKey
from strandline.protocol.messages.brokers import BrokerHeartbeatResponse, BrokerRegistrationResponse
from strandline.protocol.messages.metadata_records import FeatureLevelRecord, RegisterBrokerRecord
from strandline.protocol.types import Message
from strandline.simulation.clock import SimClock
from strandline.simulation.process import Process
from strandline.simulation.world import Simulation

INCARNATION = Uuid(b"incarnation-0001")
DIRECTORY = Uuid(b"directory-000001")


class Controller:
    """Responds in order; the last response is repeated."""

    def __init__(self, *responses: Message | KafkaError) -> None:
        self.responses = list(responses)
        self.received: list[ApiKey] = []
        self.requests: list[Any] = []

    async def send(self, request: Message, response: type[Any], *, timeout_ms: int | None = None) -> Any:
        assert request.api_key is not None
        self.received.append(ApiKey(request.api_key))
        self.requests.append(request)
        response = self.responses.pop(0) if len(self.responses) > 1 else self.responses[0]
        if isinstance(response, KafkaError):
            raise response
        return response


Scenario = Callable[[BrokerLifecycle, Callable[[], int]], Coroutine[Any, Any, None]]


def _run(scenario: Scenario, controller: Controller, image: Image | None = None) -> int:
    """The virtual milliseconds that the scenario took."""
    with Simulation(seed=1) as simulation:
        clock = SimClock(simulation.loop, Process("test"), 0)
        registration = Registration(
            broker_id=7,
            cluster_id="cluster",
            incarnation_id=INCARNATION,
            listeners=(("PLAINTEXT", Endpoint("host", 9092), "PLAINTEXT"),),
            rack=None,
            directories=(DIRECTORY,),
            previous_broker_epoch=-1,
        )
        lifecycle = BrokerLifecycle(
            registration,
            image or Image(),
            controller.send,
            clock,
            heartbeat_interval_ms=2_000,
            session_timeout_ms=9_000,
            registration_timeout_ms=60_000,
            offline_directories=list,
            cordoned_directories=lambda: [DIRECTORY],
        )
        begin_ms = clock.now_ms()
        simulation.run(scenario(lifecycle, clock.now_ms), max_virtual_s=600)
        return clock.now_ms() - begin_ms


def _error(code: ErrorCode) -> KafkaError:
    return KafkaError(code, "as the test wants it")


async def _register(lifecycle: BrokerLifecycle, now_ms: Callable[[], int]) -> None:
    await lifecycle.register()


def test_registration_is_retried_until_the_previous_incarnation_is_fenced() -> None:
    duplicate = _error(ErrorCode.DUPLICATE_BROKER_REGISTRATION)
    controller = Controller(duplicate, duplicate, BrokerRegistrationResponse(broker_epoch=42))
    assert 100 <= _run(_register, controller) < 1_000
    assert controller.received == [ApiKey.BROKER_REGISTRATION] * 3


def test_a_broker_whose_id_is_in_use_stops_after_the_registration_timeout() -> None:
    controller = Controller(_error(ErrorCode.DUPLICATE_BROKER_REGISTRATION))
    with pytest.raises(NodeFault, match=r"node\.id of its own"):
        _run(_register, controller)


def test_a_broker_of_another_cluster_stops_at_once() -> None:
    controller = Controller(_error(ErrorCode.INCONSISTENT_CLUSTER_ID))
    with pytest.raises(NodeFault, match="own cluster"):
        _run(_register, controller)
    assert len(controller.received) == 1


def test_a_fenced_broker_sends_heartbeats_quickly_at_first() -> None:
    controller = Controller(BrokerHeartbeatResponse(is_fenced=True), BrokerHeartbeatResponse(is_fenced=False))

    async def scenario(lifecycle: BrokerLifecycle, now_ms: Callable[[], int]) -> None:
        task = asyncio.get_running_loop().create_task(lifecycle.run())
        while len(controller.received) < 2:
            await asyncio.sleep(0.01)
        task.cancel()

    assert _run(scenario, controller) < 2_500


def test_a_requested_heartbeat_does_not_wait_for_the_interval() -> None:
    controller = Controller(BrokerHeartbeatResponse(is_fenced=False))

    async def scenario(lifecycle: BrokerLifecycle, now_ms: Callable[[], int]) -> None:
        task = asyncio.get_running_loop().create_task(lifecycle.run())
        await asyncio.sleep(0.1)
        lifecycle.send_heartbeat_soon()
        await asyncio.sleep(0.1)
        assert len(controller.received) == 1
        await asyncio.sleep(2.1)
        assert len(controller.received) == 2, "and then it is as before"
        task.cancel()

    _run(scenario, controller)


@pytest.mark.parametrize(("level", "reported"), [(29, None), (30, [DIRECTORY])])
def test_cordoned_directories_are_reported_if_the_metadata_version_records_them(
    level: int, reported: list[Uuid] | None
) -> None:
    image = Image()
    image.replay_batch(0, [FeatureLevelRecord(name="metadata.version", feature_level=level)])
    image.commit(1)
    controller = Controller(BrokerHeartbeatResponse(is_fenced=False))

    async def scenario(lifecycle: BrokerLifecycle, now_ms: Callable[[], int]) -> None:
        await lifecycle.unfence()

    _run(scenario, controller, image)
    assert [request.cordoned_log_dirs for request in controller.requests] == [reported]


def test_controlled_shutdown_waits_until_the_controller_allows_it() -> None:
    controller = Controller(BrokerHeartbeatResponse(), BrokerHeartbeatResponse(should_shut_down=True))

    async def scenario(lifecycle: BrokerLifecycle, now_ms: Callable[[], int]) -> None:
        await lifecycle.controlled_shutdown(30_000)

    assert _run(scenario, controller) < 1_000
    assert len(controller.received) == 2


def test_controlled_shutdown_ends_if_no_controller_responds() -> None:
    controller = Controller(_error(ErrorCode.REQUEST_TIMED_OUT))

    async def scenario(lifecycle: BrokerLifecycle, now_ms: Callable[[], int]) -> None:
        await lifecycle.controlled_shutdown(30_000)

    _run(scenario, controller)
    assert len(controller.received) == 1


def test_a_broker_that_was_unregistered_registers_again() -> None:
    controller = Controller(_error(ErrorCode.STALE_BROKER_EPOCH), BrokerRegistrationResponse(broker_epoch=50))

    async def scenario(lifecycle: BrokerLifecycle, now_ms: Callable[[], int]) -> None:
        task = asyncio.get_running_loop().create_task(lifecycle.run())
        while lifecycle.broker_epoch != 50:
            await asyncio.sleep(0.01)
        task.cancel()

    _run(scenario, controller)
    assert controller.received[:2] == [ApiKey.BROKER_HEARTBEAT, ApiKey.BROKER_REGISTRATION]


def test_a_starting_broker_stops_if_no_controller_responds() -> None:
    with pytest.raises(NodeFault, match="majority of the controllers"):
        _run(_register, Controller(_error(ErrorCode.REQUEST_TIMED_OUT)))


def test_a_running_broker_continues_if_no_controller_registers_it_again() -> None:
    controller = Controller(
        _error(ErrorCode.STALE_BROKER_EPOCH),
        _error(ErrorCode.REQUEST_TIMED_OUT),
        _error(ErrorCode.STALE_BROKER_EPOCH),
        BrokerRegistrationResponse(broker_epoch=50),
        BrokerHeartbeatResponse(is_fenced=False),
    )

    async def scenario(lifecycle: BrokerLifecycle, now_ms: Callable[[], int]) -> None:
        task = asyncio.get_running_loop().create_task(lifecycle.run())
        while lifecycle.broker_epoch != 50:
            await asyncio.sleep(0.01)
            assert not task.done()
        task.cancel()

    assert _run(scenario, controller) < 5_000
    assert controller.received[:4] == [ApiKey.BROKER_HEARTBEAT, ApiKey.BROKER_REGISTRATION] * 2


def test_a_broker_whose_directories_cannot_be_registered_yet_sends_heartbeats() -> None:
    controller = Controller(_error(ErrorCode.REQUEST_TIMED_OUT), BrokerHeartbeatResponse(is_fenced=False))

    async def scenario(lifecycle: BrokerLifecycle, now_ms: Callable[[], int]) -> None:
        task = asyncio.get_running_loop().create_task(lifecycle.run())
        while len(controller.received) < 2:
            await asyncio.sleep(0.01)
            assert not task.done()
        task.cancel()

    _run(scenario, controller, _upgraded())
    assert controller.received[:2] == [ApiKey.BROKER_REGISTRATION, ApiKey.BROKER_HEARTBEAT]


@pytest.mark.parametrize("code", [ErrorCode.DUPLICATE_BROKER_REGISTRATION, ErrorCode.INCONSISTENT_CLUSTER_ID])
def test_a_running_broker_stops_on_a_final_registration_error(code: ErrorCode) -> None:
    controller = Controller(_error(ErrorCode.STALE_BROKER_EPOCH), _error(code))

    async def scenario(lifecycle: BrokerLifecycle, now_ms: Callable[[], int]) -> None:
        await lifecycle.run()

    with pytest.raises(NodeFault, match="rejected the registration"):
        _run(scenario, controller)


def test_a_broker_whose_id_was_registered_by_another_process_stops() -> None:
    image = Image()
    image.replay_batch(0, [RegisterBrokerRecord(broker_id=7, broker_epoch=0, incarnation_id=Uuid(b"somebody-else-00"))])
    image.commit(1)
    controller = Controller(_error(ErrorCode.STALE_BROKER_EPOCH))

    async def scenario(lifecycle: BrokerLifecycle, now_ms: Callable[[], int]) -> None:
        await lifecycle.run()

    with pytest.raises(NodeFault, match="another process"):
        _run(scenario, controller, image)


def test_a_broker_registers_again_after_a_late_registration_of_its_previous_process() -> None:
    """A registration that was in flight when its sender was killed (seed 2 of the fault "late")."""
    image = Image()
    ghost = RegisterBrokerRecord(
        broker_id=7,
        broker_epoch=0,
        incarnation_id=Uuid(b"predecessor-0000"),
        log_dirs=[Uuid(b"directory-000001")],
    )
    image.replay_batch(0, [ghost])
    image.commit(1)
    controller = Controller(
        _error(ErrorCode.STALE_BROKER_EPOCH),
        BrokerRegistrationResponse(broker_epoch=52),
        BrokerHeartbeatResponse(is_fenced=False),
    )

    async def scenario(lifecycle: BrokerLifecycle, now_ms: Callable[[], int]) -> None:
        await lifecycle.unfence()
        assert lifecycle.broker_epoch == 52

    _run(scenario, controller, image)


def test_a_starting_broker_survives_an_unresponsive_controller_and_a_lost_registration() -> None:
    controller = Controller(
        _error(ErrorCode.REQUEST_TIMED_OUT),
        _error(ErrorCode.STALE_BROKER_EPOCH),
        BrokerRegistrationResponse(broker_epoch=51),
        BrokerHeartbeatResponse(is_fenced=True),
        BrokerHeartbeatResponse(is_fenced=False),
    )

    async def scenario(lifecycle: BrokerLifecycle, now_ms: Callable[[], int]) -> None:
        await lifecycle.unfence()
        assert lifecycle.broker_epoch == 51

    assert _run(scenario, controller) < 1_000
    assert controller.received.count(ApiKey.BROKER_HEARTBEAT) == 4


def _upgraded() -> Image:
    """To a version that records directories; the broker registered before."""
    image = Image()
    image.replay_batch(
        0,
        [
            FeatureLevelRecord(name="metadata.version", feature_level=17),
            RegisterBrokerRecord(broker_id=7, broker_epoch=1, incarnation_id=INCARNATION),
        ],
    )
    image.commit(2)
    return image


def test_a_broker_registers_its_directories_after_an_upgrade_of_the_metadata_version() -> None:
    controller = Controller(BrokerRegistrationResponse(broker_epoch=1), BrokerHeartbeatResponse(is_fenced=False))

    async def scenario(lifecycle: BrokerLifecycle, now_ms: Callable[[], int]) -> None:
        task = asyncio.get_running_loop().create_task(lifecycle.run())
        while len(controller.received) < 2:
            await asyncio.sleep(0.01)
        task.cancel()

    _run(scenario, controller, _upgraded())
    assert controller.received[:2] == [ApiKey.BROKER_REGISTRATION, ApiKey.BROKER_HEARTBEAT]


def test_a_late_heartbeat_does_not_unfence_a_broker_after_controlled_shutdown() -> None:
    controller = Controller(BrokerHeartbeatResponse(should_shut_down=True))

    async def scenario(lifecycle: BrokerLifecycle, now_ms: Callable[[], int]) -> None:
        task = asyncio.get_running_loop().create_task(lifecycle.run())
        await lifecycle.controlled_shutdown(30_000)
        while len(controller.received) < 3:
            await asyncio.sleep(0.01)
        task.cancel()

    _run(scenario, controller)
    assert [request.want_shut_down for request in controller.requests] == [True] * 3
