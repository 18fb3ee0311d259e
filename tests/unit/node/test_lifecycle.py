"""A broker's life as it tells it to the controller: patient while it comes, brief when it goes."""

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
    """Answers in turn what it was given; the last answer for ever."""

    def __init__(self, *answers: Message | KafkaError) -> None:
        self.answers = list(answers)
        self.asked: list[ApiKey] = []
        self.requests: list[Any] = []

    async def send(self, request: Message, response: type[Any], *, timeout_ms: int | None = None) -> Any:
        assert request.api_key is not None
        self.asked.append(ApiKey(request.api_key))
        self.requests.append(request)
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, KafkaError):
            raise answer
        return answer


Story = Callable[[BrokerLifecycle, Callable[[], int]], Coroutine[Any, Any, None]]


def _tell(story: Story, controller: Controller, image: Image | None = None) -> int:
    """The virtual milliseconds that the story took."""
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
        life = BrokerLifecycle(
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
        simulation.run(story(life, clock.now_ms), max_virtual_s=600)
        return clock.now_ms() - begin_ms


def _refusal(code: ErrorCode) -> KafkaError:
    return KafkaError(code, "as the test wants it")


async def _register(life: BrokerLifecycle, now_ms: Callable[[], int]) -> None:
    await life.register()


def test_a_broker_waits_for_its_predecessor_to_be_given_up() -> None:
    duplicate = _refusal(ErrorCode.DUPLICATE_BROKER_REGISTRATION)
    controller = Controller(duplicate, duplicate, BrokerRegistrationResponse(broker_epoch=42))
    assert 100 <= _tell(_register, controller) < 1_000
    assert controller.asked == [ApiKey.BROKER_REGISTRATION] * 3


def test_a_broker_whose_id_is_taken_gives_up_in_the_end_and_says_what_to_do() -> None:
    controller = Controller(_refusal(ErrorCode.DUPLICATE_BROKER_REGISTRATION))
    with pytest.raises(NodeFault, match=r"node\.id of its own"):
        _tell(_register, controller)


def test_a_broker_of_another_cluster_gives_up_at_once() -> None:
    controller = Controller(_refusal(ErrorCode.INCONSISTENT_CLUSTER_ID))
    with pytest.raises(NodeFault, match="own cluster"):
        _tell(_register, controller)
    assert len(controller.asked) == 1


def test_a_broker_taken_for_dead_is_heard_again_at_once() -> None:
    controller = Controller(BrokerHeartbeatResponse(is_fenced=True), BrokerHeartbeatResponse(is_fenced=False))

    async def story(life: BrokerLifecycle, now_ms: Callable[[], int]) -> None:
        task = asyncio.get_running_loop().create_task(life.run())
        while len(controller.asked) < 2:
            await asyncio.sleep(0.01)
        task.cancel()

    assert _tell(story, controller) < 2_500


def test_news_do_not_wait_for_the_next_heartbeat() -> None:
    controller = Controller(BrokerHeartbeatResponse(is_fenced=False))

    async def story(life: BrokerLifecycle, now_ms: Callable[[], int]) -> None:
        task = asyncio.get_running_loop().create_task(life.run())
        await asyncio.sleep(0.1)
        life.send_heartbeat_soon()
        await asyncio.sleep(0.1)
        assert len(controller.asked) == 1
        await asyncio.sleep(2.1)
        assert len(controller.asked) == 2, "and then it is as before"
        task.cancel()

    _tell(story, controller)


@pytest.mark.parametrize(("level", "told"), [(29, None), (30, [DIRECTORY])])
def test_cordoned_directories_are_told_where_metadata_has_a_place_for_them(level: int, told: list[Uuid] | None) -> None:
    image = Image()
    image.replay_batch(0, [FeatureLevelRecord(name="metadata.version", feature_level=level)])
    image.commit(1)
    controller = Controller(BrokerHeartbeatResponse(is_fenced=False))

    async def story(life: BrokerLifecycle, now_ms: Callable[[], int]) -> None:
        await life.unfence()

    _tell(story, controller, image)
    assert [request.cordoned_log_dirs for request in controller.requests] == [told]


def test_a_broker_that_leaves_asks_until_it_may_go() -> None:
    controller = Controller(BrokerHeartbeatResponse(), BrokerHeartbeatResponse(should_shut_down=True))

    async def story(life: BrokerLifecycle, now_ms: Callable[[], int]) -> None:
        await life.controlled_shutdown(30_000)

    assert _tell(story, controller) < 1_000
    assert len(controller.asked) == 2


def test_a_broker_that_nobody_answers_leaves_all_the_same() -> None:
    controller = Controller(_refusal(ErrorCode.REQUEST_TIMED_OUT))

    async def story(life: BrokerLifecycle, now_ms: Callable[[], int]) -> None:
        await life.controlled_shutdown(30_000)

    _tell(story, controller)
    assert len(controller.asked) == 1


def test_a_broker_that_was_unregistered_registers_again() -> None:
    controller = Controller(_refusal(ErrorCode.STALE_BROKER_EPOCH), BrokerRegistrationResponse(broker_epoch=50))

    async def story(life: BrokerLifecycle, now_ms: Callable[[], int]) -> None:
        task = asyncio.get_running_loop().create_task(life.run())
        while life.broker_epoch != 50:
            await asyncio.sleep(0.01)
        task.cancel()

    _tell(story, controller)
    assert controller.asked[:2] == [ApiKey.BROKER_HEARTBEAT, ApiKey.BROKER_REGISTRATION]


def test_a_broker_that_starts_stops_when_no_controller_answers() -> None:
    with pytest.raises(NodeFault, match="majority of the controllers"):
        _tell(_register, Controller(_refusal(ErrorCode.REQUEST_TIMED_OUT)))


def test_a_broker_that_runs_goes_on_when_no_controller_registers_it_again() -> None:
    controller = Controller(
        _refusal(ErrorCode.STALE_BROKER_EPOCH),
        _refusal(ErrorCode.REQUEST_TIMED_OUT),
        _refusal(ErrorCode.STALE_BROKER_EPOCH),
        BrokerRegistrationResponse(broker_epoch=50),
        BrokerHeartbeatResponse(is_fenced=False),
    )

    async def story(life: BrokerLifecycle, now_ms: Callable[[], int]) -> None:
        task = asyncio.get_running_loop().create_task(life.run())
        while life.broker_epoch != 50:
            await asyncio.sleep(0.01)
            assert not task.done()
        task.cancel()

    assert _tell(story, controller) < 5_000
    assert controller.asked[:4] == [ApiKey.BROKER_HEARTBEAT, ApiKey.BROKER_REGISTRATION] * 2


def test_a_broker_that_cannot_tell_its_directories_yet_is_heard_all_the_same() -> None:
    controller = Controller(_refusal(ErrorCode.REQUEST_TIMED_OUT), BrokerHeartbeatResponse(is_fenced=False))

    async def story(life: BrokerLifecycle, now_ms: Callable[[], int]) -> None:
        task = asyncio.get_running_loop().create_task(life.run())
        while len(controller.asked) < 2:
            await asyncio.sleep(0.01)
            assert not task.done()
        task.cancel()

    _tell(story, controller, _upgraded())
    assert controller.asked[:2] == [ApiKey.BROKER_REGISTRATION, ApiKey.BROKER_HEARTBEAT]


@pytest.mark.parametrize("code", [ErrorCode.DUPLICATE_BROKER_REGISTRATION, ErrorCode.INCONSISTENT_CLUSTER_ID])
def test_a_broker_that_runs_stops_when_it_can_never_be_registered_again(code: ErrorCode) -> None:
    controller = Controller(_refusal(ErrorCode.STALE_BROKER_EPOCH), _refusal(code))

    async def story(life: BrokerLifecycle, now_ms: Callable[[], int]) -> None:
        await life.run()

    with pytest.raises(NodeFault, match="rejected the registration"):
        _tell(story, controller)


def test_a_broker_whose_place_was_taken_stops() -> None:
    image = Image()
    image.replay_batch(0, [RegisterBrokerRecord(broker_id=7, broker_epoch=0, incarnation_id=Uuid(b"somebody-else-00"))])
    image.commit(1)
    controller = Controller(_refusal(ErrorCode.STALE_BROKER_EPOCH))

    async def story(life: BrokerLifecycle, now_ms: Callable[[], int]) -> None:
        await life.run()

    with pytest.raises(NodeFault, match="another process"):
        _tell(story, controller, image)


def test_a_broker_registers_again_when_a_late_word_of_its_predecessor_took_its_place() -> None:
    """As seed 2 of the fault "late" did: a registration that was under way when its sender was killed."""
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
        _refusal(ErrorCode.STALE_BROKER_EPOCH),
        BrokerRegistrationResponse(broker_epoch=52),
        BrokerHeartbeatResponse(is_fenced=False),
    )

    async def story(life: BrokerLifecycle, now_ms: Callable[[], int]) -> None:
        await life.unfence()
        assert life.broker_epoch == 52

    _tell(story, controller, image)


def test_a_broker_that_starts_outlives_a_silent_controller_and_a_lost_registration() -> None:
    controller = Controller(
        _refusal(ErrorCode.REQUEST_TIMED_OUT),
        _refusal(ErrorCode.STALE_BROKER_EPOCH),
        BrokerRegistrationResponse(broker_epoch=51),
        BrokerHeartbeatResponse(is_fenced=True),
        BrokerHeartbeatResponse(is_fenced=False),
    )

    async def story(life: BrokerLifecycle, now_ms: Callable[[], int]) -> None:
        await life.unfence()
        assert life.broker_epoch == 51

    assert _tell(story, controller) < 1_000
    assert controller.asked.count(ApiKey.BROKER_HEARTBEAT) == 4


def _upgraded() -> Image:
    """To a version that has a place for the directories of a broker that registered before."""
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


def test_a_broker_tells_its_directories_when_an_upgrade_has_made_room_for_them() -> None:
    controller = Controller(BrokerRegistrationResponse(broker_epoch=1), BrokerHeartbeatResponse(is_fenced=False))

    async def story(life: BrokerLifecycle, now_ms: Callable[[], int]) -> None:
        task = asyncio.get_running_loop().create_task(life.run())
        while len(controller.asked) < 2:
            await asyncio.sleep(0.01)
        task.cancel()

    _tell(story, controller, _upgraded())
    assert controller.asked[:2] == [ApiKey.BROKER_REGISTRATION, ApiKey.BROKER_HEARTBEAT]


def test_a_broker_that_was_let_go_does_not_come_back_by_a_late_heartbeat() -> None:
    controller = Controller(BrokerHeartbeatResponse(should_shut_down=True))

    async def story(life: BrokerLifecycle, now_ms: Callable[[], int]) -> None:
        task = asyncio.get_running_loop().create_task(life.run())
        await life.controlled_shutdown(30_000)
        while len(controller.asked) < 3:
            await asyncio.sleep(0.01)
        task.cancel()

    _tell(story, controller)
    assert [request.want_shut_down for request in controller.requests] == [True] * 3
