"""The shell: one event at a time, answers on commit, and what losing the lead undoes. On virtual time."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from random import Random
from typing import Any

import pytest

from strandline.controller.controller import Controller
from strandline.controller.settings import ControllerSettings
from strandline.metadata.features import SUPPORTED_FEATURES, bootstrap_records
from strandline.metadata.image import Image
from strandline.model.errors import ErrorCode, KafkaError, NodeFault
from strandline.model.ids import Uuid
from strandline.protocol.messages.brokers import (
    BrokerHeartbeatRequest,
    BrokerRegistrationRequest,
    Feature,
)
from strandline.protocol.messages.metadata_records import (
    AbortTransactionRecord,
    BeginTransactionRecord,
    FeatureLevelRecord,
    NoOpRecord,
)
from strandline.protocol.messages.topics import (
    CreatableTopic,
    CreateTopicsRequest,
    CreateTopicsResponse,
    DeleteTopicsRequest,
    DeleteTopicState,
)
from strandline.protocol.types import Message
from strandline.runtime.watermark import Watermark
from strandline.runtime.world import World
from strandline.simulation.world import Simulation


class HandLog:
    """A metadata log whose commits are done by hand."""

    def __init__(self, image: Image) -> None:
        self._image = image
        self.is_leader = True
        self.epoch = 1
        self.kraft_version = 1
        self.end_offset = 0
        self.committed = Watermark(0)
        self.batches: list[Sequence[Message]] = []

    def append(self, records: Sequence[Message]) -> int:
        self.batches.append(records)
        self.end_offset += len(records)
        return self.end_offset - 1

    def commit(self, offset: int | None = None) -> None:
        upto = self.end_offset if offset is None else offset
        self._image.commit(upto)
        self.committed.advance(upto)

    def lose(self) -> None:
        self.is_leader = False
        self.epoch += 1
        self.committed.lose(KafkaError(ErrorCode.NOT_CONTROLLER))


class Stage:
    def __init__(self, world: World) -> None:
        self.image = Image()
        self.log = HandLog(self.image)
        self.controller = Controller(
            self.image,
            self.log,
            world.clock,
            Random(1),
            ControllerSettings(node_id=100, cluster_id="cluster"),
            bootstrap_records(),
        )

    async def activate(self) -> None:
        active = asyncio.create_task(self.controller.activate())
        await asyncio.sleep(0)
        self.log.commit()
        await active

    async def with_broker(self) -> Stage:
        await self.activate()
        registration = BrokerRegistrationRequest(
            broker_id=1,
            cluster_id="cluster",
            incarnation_id=Uuid.of(8, 8),
            rack=None,
            log_dirs=[Uuid.of(7, 777)],
            features=[
                Feature(name=name, min_supported_version=low, max_supported_version=high)
                for name, (low, high) in SUPPORTED_FEATURES.items()
            ],
        )
        epoch = (await self.committing(self.controller.register_broker(registration))).broker_epoch
        await self.committing(self.beat(epoch))
        return self

    def beat(self, epoch: int) -> Awaitable[Any]:
        return self.controller.broker_heartbeat(
            BrokerHeartbeatRequest(broker_id=1, broker_epoch=epoch, current_metadata_offset=self.log.end_offset)
        )

    async def committing(self, call: Awaitable[Any]) -> Any:
        """The call's answer, committing whatever it appends."""
        task = asyncio.ensure_future(call)
        while not task.done():
            await asyncio.sleep(0)
            self.log.commit()
        return task.result()

    def create(self, name: str, partitions: int = 1, **options: Any) -> asyncio.Task[CreateTopicsResponse]:
        topic = CreatableTopic(name=name, num_partitions=partitions, replication_factor=1)
        return asyncio.create_task(self.controller.create_topics(CreateTopicsRequest(topics=[topic], **options)))


def play(scene: Callable[[World], Awaitable[None]]) -> None:
    with Simulation(seed=1) as simulation:

        async def scenario() -> None:
            async def program(world: World) -> None:
                await scene(world)

            await simulation.machine("node").boot(program)

        simulation.run(scenario(), max_virtual_s=100)


def test_the_first_active_controller_writes_the_bootstrap_records_and_no_later_one_does() -> None:
    async def scene(world: World) -> None:
        stage = Stage(world)
        await stage.activate()
        assert len(stage.log.batches) == 1
        assert stage.image.committed.features() == {"eligible.leader.replicas.version": 1, "metadata.version": 30}
        await stage.activate()
        assert len(stage.log.batches) == 1

    play(scene)


def test_a_transaction_left_open_by_a_predecessor_is_aborted_first() -> None:
    async def scene(world: World) -> None:
        stage = Stage(world)
        stage.image.replay_batch(
            0, [BeginTransactionRecord(), FeatureLevelRecord(name="metadata.version", feature_level=7)]
        )
        stage.log.end_offset = 2
        stage.log.commit()
        await stage.committing(stage.controller.activate())
        assert [type(record) for record in stage.log.batches[0]] == [AbortTransactionRecord]
        assert stage.image.committed.metadata_version == 30

    play(scene)


def test_an_answer_comes_when_its_records_are_committed_and_the_next_decision_sees_them_before() -> None:
    async def scene(world: World) -> None:
        stage = await Stage(world).with_broker()
        first, second = stage.create("t"), stage.create("t")
        await asyncio.sleep(0.1)
        assert not first.done()
        assert not second.done()
        assert stage.image.latest.topic("t") is not None
        assert stage.image.committed.topic("t") is None
        stage.log.commit()
        assert (await first).topics[0].error_code == 0
        assert (await second).topics[0].error_code == ErrorCode.TOPIC_ALREADY_EXISTS

    play(scene)


def test_a_refusal_that_rests_on_uncommitted_records_waits_for_them_too() -> None:
    async def scene(world: World) -> None:
        stage = await Stage(world).with_broker()
        stage.create("t")
        refused = stage.create("t")
        await asyncio.sleep(0)
        stage.log.commit(stage.log.end_offset - 1)
        await asyncio.sleep(0.1)
        assert not refused.done()
        stage.log.commit()
        await refused

    play(scene)


def test_all_topics_of_a_request_are_one_batch() -> None:
    async def scene(world: World) -> None:
        stage = await Stage(world).with_broker()
        before = len(stage.log.batches)
        topics = [CreatableTopic(name=name, num_partitions=2, replication_factor=1) for name in "abc"]
        await stage.committing(stage.controller.create_topics(CreateTopicsRequest(topics=topics)))
        assert [len(batch) for batch in stage.log.batches[before:]] == [9]

    play(scene)


def test_losing_the_lead_fails_what_waits_and_takes_back_what_was_not_committed() -> None:
    async def scene(world: World) -> None:
        stage = await Stage(world).with_broker()
        kept = stage.create("kept")
        await asyncio.sleep(0)
        stage.log.commit()
        await kept
        lost = stage.create("lost")
        await asyncio.sleep(0)
        stage.log.lose()
        stage.controller.renounce()
        with pytest.raises(KafkaError) as refusal:
            await lost
        assert refusal.value.code is ErrorCode.NOT_CONTROLLER
        assert [topic.name for topic in stage.image.latest.topics()] == ["kept"]
        with pytest.raises(KafkaError) as refusal:
            await stage.create("later")
        assert refusal.value.code is ErrorCode.NOT_CONTROLLER

    play(scene)


def test_a_long_decision_lets_others_run_but_not_decide() -> None:
    async def scene(world: World) -> None:
        stage = await Stage(world).with_broker()
        large, small = stage.create("large", 3000), stage.create("small")
        breaths = 0
        while stage.image.latest.topic("small") is None:
            breaths += 1
            await asyncio.sleep(0)
        assert breaths > 20
        assert [topic.name for topic in stage.image.latest.topics()] == ["large", "small"]
        stage.log.commit()
        await large
        await small

    play(scene)


def test_losing_the_lead_in_the_middle_of_a_long_decision_leaves_nothing_of_it() -> None:
    async def scene(world: World) -> None:
        stage = await Stage(world).with_broker()
        before = len(stage.log.batches)
        large = stage.create("large", 5000)
        while stage.image.latest.topic("large") is None:
            await asyncio.sleep(0)
        stage.log.lose()
        stage.controller.renounce()
        with pytest.raises(KafkaError):
            await large
        assert stage.image.latest.topic("large") is None
        assert len(stage.log.batches) == before

    play(scene)


def test_a_caller_that_gives_up_in_the_middle_leaves_nothing_behind_and_the_next_has_its_turn() -> None:
    async def scene(world: World) -> None:
        stage = await Stage(world).with_broker()
        large = stage.create("large", 5000)
        while stage.image.latest.topic("large") is None:
            await asyncio.sleep(0)
        large.cancel()
        with pytest.raises(asyncio.CancelledError):
            await large
        assert stage.image.latest.topic("large") is None
        answer = await stage.committing(stage.create("small"))
        assert answer.topics[0].error_code == 0

    play(scene)


def test_a_decision_whose_records_cannot_be_replayed_is_not_written() -> None:
    async def scene(world: World) -> None:
        stage = await Stage(world).with_broker()
        before, offset = len(stage.log.batches), stage.image.end_offset
        with pytest.raises(NodeFault):
            await stage.controller._append([NoOpRecord(), AbortTransactionRecord()])
        assert (len(stage.log.batches), stage.image.end_offset) == (before, offset)

    play(scene)


def test_a_request_that_waited_in_line_beyond_its_time_is_told_so() -> None:
    async def scene(world: World) -> None:
        stage = await Stage(world).with_broker()
        await stage.controller._turn.acquire()
        late = stage.create("t", timeout_ms=1000)
        await asyncio.sleep(2)
        stage.controller._turn.release()
        with pytest.raises(KafkaError) as refusal:
            await late
        assert refusal.value.code is ErrorCode.REQUEST_TIMED_OUT
        with pytest.raises(KafkaError) as refusal:
            await stage.create("hasty", timeout_ms=0)
        assert refusal.value.code is ErrorCode.REQUEST_TIMED_OUT

    play(scene)


def test_a_broker_that_falls_silent_is_fenced_in_time_and_one_that_is_heard_is_not() -> None:
    async def scene(world: World) -> None:
        stage = await Stage(world).with_broker()
        clockwork = asyncio.create_task(stage.controller.run())

        def fenced() -> bool:
            broker = stage.image.latest.broker(1)
            assert broker is not None
            return broker.fenced

        broker = stage.image.latest.broker(1)
        assert broker is not None
        for _ in range(4):
            await asyncio.sleep(5)
            await stage.committing(stage.beat(broker.epoch))
            assert not fenced()
        await asyncio.sleep(8.9)
        assert not fenced()
        await asyncio.sleep(0.2)
        assert fenced()
        clockwork.cancel()

    play(scene)


def test_deleting_and_creating_a_topic_at_once_gives_it_a_new_id() -> None:
    async def scene(world: World) -> None:
        stage = await Stage(world).with_broker()
        first = (await stage.committing(stage.create("t"))).topics[0].topic_id
        gone = asyncio.create_task(
            stage.controller.delete_topics(DeleteTopicsRequest(topics=[DeleteTopicState(name="t")], timeout_ms=1000))
        )
        second = stage.create("t")
        await asyncio.sleep(0)
        stage.log.commit()
        assert (await gone).responses[0].topic_id == first
        assert (await second).topics[0].topic_id != first

    play(scene)
