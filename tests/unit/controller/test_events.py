"""The event queue on virtual time: one decision at a time, responses on commit, lost leadership."""

from __future__ import annotations

import asyncio

import pytest

from strandline.controller.decisions import Decision
from strandline.model.errors import ErrorCode, KafkaError, NodeFault
from strandline.protocol.messages.metadata_records import AbortTransactionRecord, NoOpRecord
from strandline.protocol.messages.topics import CreatableTopic, CreateTopicsRequest
from strandline.runtime.world import World
from unit.controller.active_controller import ActiveController, simulate


def test_a_response_waits_for_the_commit_and_the_next_decision_sees_the_records_before() -> None:
    async def scenario(world: World) -> None:
        active = await ActiveController(world).with_broker()
        first, second = active.create("t"), active.create("t")
        await asyncio.sleep(0.1)
        assert not first.done()
        assert not second.done()
        assert active.image.latest.topic("t") is not None
        assert active.image.committed.topic("t") is None
        active.log.commit()
        assert (await first).topics[0].error_code == 0
        assert (await second).topics[0].error_code == ErrorCode.TOPIC_ALREADY_EXISTS

    simulate(scenario)


def test_a_rejection_based_on_uncommitted_records_waits_for_their_commit() -> None:
    async def scenario(world: World) -> None:
        active = await ActiveController(world).with_broker()
        active.create("t")
        duplicate = active.create("t")
        await asyncio.sleep(0)
        active.log.commit(active.log.end_offset - 1)
        await asyncio.sleep(0.1)
        assert not duplicate.done()
        active.log.commit()
        await duplicate

    simulate(scenario)


def test_all_topics_of_a_request_are_one_batch() -> None:
    async def scenario(world: World) -> None:
        active = await ActiveController(world).with_broker()
        before = len(active.log.batches)
        topics = [CreatableTopic(name=name, num_partitions=2, replication_factor=1) for name in "abc"]
        await active.committing(active.controller.create_topics(CreateTopicsRequest(topics=topics)))
        assert [len(batch) for batch in active.log.batches[before:]] == [9]

    simulate(scenario)


def test_losing_the_leadership_fails_waiting_requests_and_reverts_uncommitted_records() -> None:
    async def scenario(world: World) -> None:
        active = await ActiveController(world).with_broker()
        kept = active.create("kept")
        await asyncio.sleep(0)
        active.log.commit()
        await kept
        lost = active.create("lost")
        await asyncio.sleep(0)
        active.log.lose()
        active.controller.renounce()
        with pytest.raises(KafkaError) as error:
            await lost
        assert error.value.code is ErrorCode.NOT_CONTROLLER
        assert [topic.name for topic in active.image.latest.topics()] == ["kept"]
        with pytest.raises(KafkaError) as error:
            await active.create("later")
        assert error.value.code is ErrorCode.NOT_CONTROLLER

    simulate(scenario)


def test_losing_the_leadership_between_the_commit_and_its_waiters_keeps_what_is_committed() -> None:
    async def scenario(world: World) -> None:
        active = await ActiveController(world).with_broker()
        kept = active.create("kept")
        await asyncio.sleep(0)
        active.image.commit(active.log.end_offset)
        lost = active.create("lost")
        await asyncio.sleep(0)
        active.lose()
        for waiting in (kept, lost):
            with pytest.raises(KafkaError):
                await waiting
        assert [topic.name for topic in active.image.latest.topics()] == ["kept"]

    simulate(scenario)


def test_a_long_decision_yields_to_the_event_loop_but_not_to_other_decisions() -> None:
    async def scenario(world: World) -> None:
        active = await ActiveController(world).with_broker()
        large, small = active.create("large", 3000), active.create("small")
        yields = 0
        while active.image.latest.topic("small") is None:
            yields += 1
            await asyncio.sleep(0)
        assert yields > 20
        assert [topic.name for topic in active.image.latest.topics()] == ["large", "small"]
        active.log.commit()
        await large
        await small

    simulate(scenario)


def test_losing_the_leadership_during_a_long_decision_discards_it() -> None:
    async def scenario(world: World) -> None:
        active = await ActiveController(world).with_broker()
        before = len(active.log.batches)
        large = active.create("large", 5000)
        while active.image.latest.topic("large") is None:
            await asyncio.sleep(0)
        active.log.lose()
        active.controller.renounce()
        with pytest.raises(KafkaError):
            await large
        assert active.image.latest.topic("large") is None
        assert len(active.log.batches) == before

    simulate(scenario)


def test_a_cancelled_request_leaves_nothing_behind_and_the_next_event_is_handled() -> None:
    async def scenario(world: World) -> None:
        active = await ActiveController(world).with_broker()
        large = active.create("large", 5000)
        while active.image.latest.topic("large") is None:
            await asyncio.sleep(0)
        large.cancel()
        with pytest.raises(asyncio.CancelledError):
            await large
        assert active.image.latest.topic("large") is None
        response = await active.committing(active.create("small"))
        assert response.topics[0].error_code == 0

    simulate(scenario)


def test_a_decision_whose_records_cannot_be_replayed_is_not_written() -> None:
    async def scenario(world: World) -> None:
        active = await ActiveController(world).with_broker()
        before, offset = len(active.log.batches), active.image.end_offset
        with pytest.raises(NodeFault):
            await active.controller._events.decide(lambda: Decision(None, [NoOpRecord(), AbortTransactionRecord()]))
        assert active.measured("kafka.controller:type=KafkaController,name=MetadataErrorCount") == 1
        assert (len(active.log.batches), active.image.end_offset) == (before, offset)

    simulate(scenario)


def test_a_request_times_out_in_the_queue() -> None:
    async def scenario(world: World) -> None:
        active = await ActiveController(world).with_broker()
        await active.controller._events._turn.acquire()
        late = active.create("t", timeout_ms=1000)
        await asyncio.sleep(2)
        active.controller._events._turn.release()
        with pytest.raises(KafkaError) as error:
            await late
        assert error.value.code is ErrorCode.REQUEST_TIMED_OUT
        with pytest.raises(KafkaError) as error:
            await active.create("hasty", timeout_ms=0)
        assert error.value.code is ErrorCode.REQUEST_TIMED_OUT

    simulate(scenario)


def test_a_queued_request_fails_when_the_leadership_is_lost_even_if_it_is_regained() -> None:
    async def scenario(world: World) -> None:
        active = await ActiveController(world).with_broker()
        await active.controller._events._turn.acquire()
        waiting = active.create("t")
        await asyncio.sleep(0)
        active.lose()
        active.log.win()
        activation = asyncio.create_task(active.controller.activate())
        await asyncio.sleep(0)
        active.controller._events._turn.release()
        await active.committing(activation)
        with pytest.raises(KafkaError) as error:
            await waiting
        assert error.value.code is ErrorCode.NOT_CONTROLLER
        assert active.image.latest.topic("t") is None

    simulate(scenario)


def test_a_decision_that_yields_across_two_activations_writes_nothing_in_the_second() -> None:
    async def scenario(world: World) -> None:
        active = await ActiveController(world).with_broker()
        large = active.create("large", 5000)
        while active.image.latest.topic("large") is None:
            await asyncio.sleep(0)
        before = len(active.log.batches)
        active.lose()
        active.log.win()
        activation = asyncio.create_task(active.controller.activate())
        with pytest.raises(KafkaError) as error:
            await large
        assert error.value.code is ErrorCode.NOT_CONTROLLER
        await active.committing(activation)
        assert len(active.log.batches) == before
        assert active.image.latest.topic("large") is None
        assert active.image.end_offset == active.log.end_offset
        assert (await active.committing(active.create("small"))).topics[0].error_code == 0

    simulate(scenario)


def test_a_thousand_requests_wait_for_one_commit() -> None:
    async def scenario(world: World) -> None:
        active = await ActiveController(world).with_broker()
        waiting = [active.create(f"t{number}") for number in range(1000)]
        while active.image.latest.topic("t999") is None:
            await asyncio.sleep(0)
        assert not any(task.done() for task in waiting)
        active.log.commit()
        assert [(await task).topics[0].error_code for task in waiting] == [0] * 1000

    simulate(scenario)


def test_a_request_committed_before_the_leadership_was_lost_succeeds() -> None:
    async def scenario(world: World) -> None:
        active = await ActiveController(world).with_broker()
        kept = active.create("kept")
        await asyncio.sleep(0)
        active.log.commit()
        active.lose()
        assert (await kept).topics[0].error_code == 0

    simulate(scenario)


def test_a_decision_of_many_batches_reports_the_offset_of_its_last_record() -> None:
    async def scenario(world: World) -> None:
        active = await ActiveController(world).with_broker()
        appended: list[int] = []
        records = [NoOpRecord() for _ in range(13_000)]
        decision = Decision(None, list(records), atomic=False, on_appended=appended.append)
        before = len(active.log.batches)
        await active.committing(active.controller._events.decide(lambda: decision))
        assert [len(batch) for batch in active.log.batches[before:]] == [*[2_000] * 6, 1_000]
        assert appended == [active.log.end_offset - 1]
        with pytest.raises(KafkaError) as error:
            await active.controller._events.decide(lambda: Decision(None, list(records)))
        assert error.value.code is ErrorCode.POLICY_VIOLATION

    simulate(scenario)


def test_queue_time_and_processing_time_are_measured() -> None:
    async def scenario(world: World) -> None:
        active = await ActiveController(world).with_broker()
        await active.controller._events._turn.acquire()
        late = active.create("t")
        await asyncio.sleep(2)
        active.controller._events._turn.release()
        await active.committing(late)
        assert (
            active.measured("kafka.controller:type=ControllerEventManager,name=EventQueueTimeMs,attribute=Max") == 2000
        )
        assert (
            active.measured(
                "kafka.controller:type=ControllerEventManager,name=EventQueueProcessingTimeMs,attribute=Max"
            )
            == 0
        )

    simulate(scenario)
