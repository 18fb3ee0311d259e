"""One event at a time, answers on commit, and what losing the lead undoes. On virtual time."""

from __future__ import annotations

import asyncio

import pytest

from strandline.controller.decisions import Decision
from strandline.model.errors import ErrorCode, KafkaError, NodeFault
from strandline.protocol.messages.metadata_records import AbortTransactionRecord, NoOpRecord
from strandline.protocol.messages.topics import CreatableTopic, CreateTopicsRequest
from strandline.runtime.world import World
from unit.controller.active_controller import ActiveController, play


def test_an_answer_comes_when_its_records_are_committed_and_the_next_decision_sees_them_before() -> None:
    async def scene(world: World) -> None:
        stage = await ActiveController(world).with_broker()
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
        stage = await ActiveController(world).with_broker()
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
        stage = await ActiveController(world).with_broker()
        before = len(stage.log.batches)
        topics = [CreatableTopic(name=name, num_partitions=2, replication_factor=1) for name in "abc"]
        await stage.committing(stage.controller.create_topics(CreateTopicsRequest(topics=topics)))
        assert [len(batch) for batch in stage.log.batches[before:]] == [9]

    play(scene)


def test_losing_the_lead_fails_what_waits_and_takes_back_what_was_not_committed() -> None:
    async def scene(world: World) -> None:
        stage = await ActiveController(world).with_broker()
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


def test_a_lead_that_is_lost_between_the_commit_and_those_who_wait_for_it_keeps_what_is_committed() -> None:
    async def scene(world: World) -> None:
        stage = await ActiveController(world).with_broker()
        kept = stage.create("kept")
        await asyncio.sleep(0)
        stage.image.commit(stage.log.end_offset)
        lost = stage.create("lost")
        await asyncio.sleep(0)
        stage.lose()
        for waiting in (kept, lost):
            with pytest.raises(KafkaError):
                await waiting
        assert [topic.name for topic in stage.image.latest.topics()] == ["kept"]

    play(scene)


def test_a_long_decision_lets_others_run_but_not_decide() -> None:
    async def scene(world: World) -> None:
        stage = await ActiveController(world).with_broker()
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
        stage = await ActiveController(world).with_broker()
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
        stage = await ActiveController(world).with_broker()
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
        stage = await ActiveController(world).with_broker()
        before, offset = len(stage.log.batches), stage.image.end_offset
        with pytest.raises(NodeFault):
            await stage.controller._events.decide(lambda: Decision(None, [NoOpRecord(), AbortTransactionRecord()]))
        assert stage.measured("kafka.controller:type=KafkaController,name=MetadataErrorCount") == 1
        assert (len(stage.log.batches), stage.image.end_offset) == (before, offset)

    play(scene)


def test_a_request_that_waited_in_line_beyond_its_time_is_told_so() -> None:
    async def scene(world: World) -> None:
        stage = await ActiveController(world).with_broker()
        await stage.controller._events._turn.acquire()
        late = stage.create("t", timeout_ms=1000)
        await asyncio.sleep(2)
        stage.controller._events._turn.release()
        with pytest.raises(KafkaError) as refusal:
            await late
        assert refusal.value.code is ErrorCode.REQUEST_TIMED_OUT
        with pytest.raises(KafkaError) as refusal:
            await stage.create("hasty", timeout_ms=0)
        assert refusal.value.code is ErrorCode.REQUEST_TIMED_OUT

    play(scene)


def test_a_request_in_line_when_the_lead_is_lost_fails_even_if_the_lead_comes_back() -> None:
    async def scene(world: World) -> None:
        stage = await ActiveController(world).with_broker()
        await stage.controller._events._turn.acquire()
        waiting = stage.create("t")
        await asyncio.sleep(0)
        stage.lose()
        stage.log.win()
        activation = asyncio.create_task(stage.controller.activate())
        await asyncio.sleep(0)
        stage.controller._events._turn.release()
        await stage.committing(activation)
        with pytest.raises(KafkaError) as refusal:
            await waiting
        assert refusal.value.code is ErrorCode.NOT_CONTROLLER
        assert stage.image.latest.topic("t") is None

    play(scene)


def test_a_decision_that_draws_breath_across_two_leaderships_writes_nothing_in_the_second() -> None:
    async def scene(world: World) -> None:
        stage = await ActiveController(world).with_broker()
        large = stage.create("large", 5000)
        while stage.image.latest.topic("large") is None:
            await asyncio.sleep(0)
        before = len(stage.log.batches)
        stage.lose()
        stage.log.win()
        activation = asyncio.create_task(stage.controller.activate())
        with pytest.raises(KafkaError) as refusal:
            await large
        assert refusal.value.code is ErrorCode.NOT_CONTROLLER
        await stage.committing(activation)
        assert len(stage.log.batches) == before
        assert stage.image.latest.topic("large") is None
        assert stage.image.end_offset == stage.log.end_offset
        assert (await stage.committing(stage.create("small"))).topics[0].error_code == 0

    play(scene)


def test_a_thousand_requests_wait_for_one_commit_together() -> None:
    async def scene(world: World) -> None:
        stage = await ActiveController(world).with_broker()
        waiting = [stage.create(f"t{number}") for number in range(1000)]
        while stage.image.latest.topic("t999") is None:
            await asyncio.sleep(0)
        assert not any(task.done() for task in waiting)
        stage.log.commit()
        assert [(await task).topics[0].error_code for task in waiting] == [0] * 1000

    play(scene)


def test_what_the_log_had_committed_before_the_lead_was_lost_is_answered_as_done() -> None:
    async def scene(world: World) -> None:
        stage = await ActiveController(world).with_broker()
        kept = stage.create("kept")
        await asyncio.sleep(0)
        stage.log.commit()
        stage.lose()
        assert (await kept).topics[0].error_code == 0

    play(scene)


def test_a_decision_of_many_batches_tells_where_its_last_record_stands() -> None:
    async def scene(world: World) -> None:
        stage = await ActiveController(world).with_broker()
        told: list[int] = []
        records = [NoOpRecord() for _ in range(13_000)]
        decision = Decision(None, list(records), atomic=False, appended=told.append)
        before = len(stage.log.batches)
        await stage.committing(stage.controller._events.decide(lambda: decision))
        assert [len(batch) for batch in stage.log.batches[before:]] == [*[2_000] * 6, 1_000]
        assert told == [stage.log.end_offset - 1]
        with pytest.raises(KafkaError) as refusal:
            await stage.controller._events.decide(lambda: Decision(None, list(records)))
        assert refusal.value.code is ErrorCode.POLICY_VIOLATION

    play(scene)


def test_the_time_in_line_and_the_time_of_deciding_are_measured() -> None:
    async def scene(world: World) -> None:
        stage = await ActiveController(world).with_broker()
        await stage.controller._events._turn.acquire()
        late = stage.create("t")
        await asyncio.sleep(2)
        stage.controller._events._turn.release()
        await stage.committing(late)
        assert (
            stage.measured("kafka.controller:type=ControllerEventManager,name=EventQueueTimeMs,attribute=Max") == 2000
        )
        assert (
            stage.measured("kafka.controller:type=ControllerEventManager,name=EventQueueProcessingTimeMs,attribute=Max")
            == 0
        )

    play(scene)
