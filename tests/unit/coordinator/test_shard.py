"""The shard: loading, batching, commit, failed appends, lost leadership, timers. The machine is a map of offsets."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Hashable
from typing import Any

import pytest

from strandline.coordinator.decision import Completion, Decision, Now, Token
from strandline.coordinator.machine import Producer
from strandline.coordinator.records import GROUP_RECORDS, CoordinatorRecord
from strandline.coordinator.shard import Shard, ShardSettings
from strandline.coordinator.timers import Timers
from strandline.model.errors import ErrorCode, KafkaError
from strandline.model.ids import TopicPartition
from strandline.model.timeline import Timeline, TimelineMap
from strandline.protocol.messages.group_records import OffsetCommitKey, OffsetCommitValue
from strandline.protocol.messages.offsets import OffsetCommitResponse
from unit.coordinator.memory_log import MemoryLog
from unit.coordinator.virtual_time import LoopClock, run

PRODUCER = Producer(7, 1)


class Offsets:
    """A machine: committed offsets by topic; a transaction's offsets take effect with its marker."""

    def __init__(self) -> None:
        self.timeline = Timeline()
        self.timers = Timers()
        self.offsets: TimelineMap[str, int] = TimelineMap(self.timeline)
        self.pending: TimelineMap[tuple[Producer, str], int] = TimelineMap(self.timeline)
        self.fired: list[Hashable] = []
        self.failures: list[ErrorCode] = []
        self.parked: list[Token] = []

    def replay(self, record: CoordinatorRecord, producer: Producer | None) -> None:
        assert isinstance(record.key, OffsetCommitKey) and isinstance(record.value, OffsetCommitValue)
        if producer is None:
            self.offsets[record.key.topic] = record.value.offset
        else:
            self.pending[producer, record.key.topic] = record.value.offset

    def replay_marker(self, producer: Producer, *, commit: bool) -> None:
        for key, _ in list(self.pending.items()):
            if key[0] != producer:
                continue
            if commit:
                self.offsets[key[1]] = self.pending.get(key) or 0
            del self.pending[key]

    def on_loaded(self, now: Now) -> Decision[None]:
        return Decision(None)

    def on_timer(self, key: Hashable, now: Now) -> Decision[None]:
        self.fired.append((key, now.ms))
        return Decision(None, [record(f"timer-{key}", now.ms)])

    def commit(self, topic: str, offset: int) -> Decision[OffsetCommitResponse | None]:
        return Decision(OffsetCommitResponse(), [record(topic, offset)], on_append_failed=self.failed)

    def failed(self, code: ErrorCode, now: Now) -> Decision[None]:
        self.failures.append(code)
        return Decision(None)


def record(topic: str, offset: int) -> CoordinatorRecord:
    return CoordinatorRecord(OffsetCommitKey("g", topic, 0), OffsetCommitValue(offset, metadata=""))


def shard_over(log: MemoryLog, *, linger_ms: int = 5) -> Shard[Offsets]:
    settings = ShardSettings(append_linger_ms=linger_ms, write_timeout_ms=5_000)
    return Shard(TopicPartition("__consumer_offsets", 0), log, Offsets(), GROUP_RECORDS, LoopClock(), settings)


def commit(shard: Shard[Offsets], topic: str, offset: int) -> Coroutine[Any, Any, Any]:
    return shard.write(lambda machine, token, now: machine.commit(topic, offset))


def committed(shard: Shard[Offsets], topic: str) -> int | None:
    return shard.read(lambda machine, offset: machine.offsets.get(topic, offset))


def test_a_shard_that_is_not_loaded_answers_that_it_is_loading() -> None:
    async def scene() -> None:
        shard = shard_over(MemoryLog())
        with pytest.raises(KafkaError) as refused:
            await commit(shard, "t", 1)
        assert refused.value.code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        await shard.load()
        await commit(shard, "t", 1)
        assert committed(shard, "t") == 1

    run(scene)


def test_writes_of_one_step_of_the_event_loop_share_one_batch() -> None:
    async def scene() -> None:
        log = MemoryLog()
        shard = shard_over(log)
        await shard.load()
        await asyncio.gather(*(commit(shard, f"t{index}", index) for index in range(100)))
        assert log.headers() == [(0, 100)]

    run(scene)


def test_while_an_append_is_in_flight_records_gather_until_it_is_committed() -> None:
    async def scene() -> None:
        log = MemoryLog(replicates=False)
        shard = shard_over(log, linger_ms=1_000)
        await shard.load()
        first = asyncio.ensure_future(commit(shard, "a", 1))
        await asyncio.sleep(0.001)
        later = [asyncio.ensure_future(commit(shard, "b", 2)), asyncio.ensure_future(commit(shard, "c", 3))]
        await asyncio.sleep(0.1)
        assert log.headers() == [(0, 1)] and not first.done()
        log.commit()
        await asyncio.sleep(0)
        assert log.headers() == [(0, 1), (1, 2)]
        await first
        log.commit()
        await asyncio.gather(*later)

    run(scene)


def test_records_gather_no_longer_than_the_linger() -> None:
    async def scene() -> None:
        log = MemoryLog(replicates=False)
        shard = shard_over(log, linger_ms=5)
        await shard.load()
        for topic in ("a", "b"):
            asyncio.ensure_future(commit(shard, topic, 1)).add_done_callback(lambda done: done.exception())
            await asyncio.sleep(0.001)
        await asyncio.sleep(0.004)
        assert log.headers() == [(0, 1), (1, 1)]
        shard.unload(KafkaError(ErrorCode.NOT_COORDINATOR, "the test is over"))
        log.resign()

    run(scene)


def test_a_batch_never_exceeds_the_largest_that_the_topic_takes() -> None:
    async def scene() -> None:
        log = MemoryLog()
        log.max_batch_bytes = 1_000
        shard = shard_over(log)
        await shard.load()
        await asyncio.gather(*(commit(shard, f"t{index}", index) for index in range(50)))
        assert len(log.appended) > 1 and max(map(len, log.appended)) <= 1_000
        assert sum(count for _, count in log.headers()) == 50

    run(scene)


def test_the_response_waits_for_the_high_watermark_and_reads_see_only_committed_state() -> None:
    async def scene() -> None:
        log = MemoryLog(replicates=False)
        shard = shard_over(log)
        await shard.load()
        writing = asyncio.ensure_future(commit(shard, "t", 5))
        await asyncio.sleep(0.01)
        assert not writing.done() and committed(shard, "t") is None
        assert shard.machine.offsets.get("t") == 5
        log.commit()
        await writing
        assert committed(shard, "t") == 5

    run(scene)


def test_a_decision_without_records_waits_for_the_records_it_rests_on() -> None:
    async def scene() -> None:
        log = MemoryLog(replicates=False)
        shard = shard_over(log)
        await shard.load()
        writing = asyncio.ensure_future(commit(shard, "t", 5))
        await asyncio.sleep(0.001)
        reading = asyncio.ensure_future(shard.write(lambda machine, token, now: Decision(OffsetCommitResponse())))
        await asyncio.sleep(0.01)
        assert not reading.done()
        log.commit()
        await asyncio.gather(writing, reading)

    run(scene)


@pytest.mark.parametrize(
    ("failure", "answered"),
    [
        (ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.NOT_COORDINATOR),
        (ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.NOT_COORDINATOR),
        (ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.UNKNOWN_SERVER_ERROR),
    ],
)
def test_a_failed_append_reverts_the_state_and_is_answered_with_kafkas_error(
    failure: ErrorCode, answered: ErrorCode
) -> None:
    async def scene() -> None:
        log = MemoryLog()
        shard = shard_over(log)
        await shard.load()
        await commit(shard, "t", 1)
        log.failure = KafkaError(failure, "as the test wants it")
        with pytest.raises(KafkaError) as refused:
            await commit(shard, "t", 2)
        assert refused.value.code is answered and shard.machine.failures == [answered]
        assert shard.machine.offsets.get("t") == 1
        log.failure = None
        await commit(shard, "t", 3)
        assert log.headers() == [(0, 1), (1, 1)] and committed(shard, "t") == 3

    run(scene)


def test_records_of_a_decision_that_is_not_atomic_fill_several_batches() -> None:
    async def scene() -> None:
        log = MemoryLog()
        log.max_batch_bytes = 1_000
        shard = shard_over(log)
        await shard.load()
        records = [record(f"t{index}", index) for index in range(100)]
        await shard.write(lambda machine, token, now: Decision(OffsetCommitResponse(), records, is_atomic=False))
        assert len(log.appended) > 5 and max(map(len, log.appended)) <= 1_000
        assert sum(count for _, count in log.headers()) == 100 and len(shard.machine.offsets) == 100
        loaded = shard_over(log.successor())
        await loaded.load()
        assert len(loaded.machine.offsets) == 100

    run(scene)


def test_a_decision_fails_with_the_full_batch_whose_records_it_rests_on() -> None:
    async def scene() -> None:
        log = MemoryLog()
        log.max_batch_bytes = 400
        shard = shard_over(log)
        await shard.load()
        log.failure = KafkaError(ErrorCode.NOT_ENOUGH_REPLICAS, "as the test wants it")
        writes = [asyncio.ensure_future(commit(shard, f"t{index}", index)) for index in range(4)]
        for each in writes:
            with pytest.raises(KafkaError) as refused:
                await each
            assert refused.value.code is ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert len(shard.machine.offsets) == 0 and log.appended == []
        log.failure = None
        await commit(shard, "t", 1)
        assert committed(shard, "t") == 1 and log.headers() == [(0, 1)]

    run(scene)


def test_a_decision_names_the_error_of_records_that_do_not_fit() -> None:
    async def scene() -> None:
        log = MemoryLog()
        log.failure = KafkaError(ErrorCode.MESSAGE_TOO_LARGE, "as the test wants it")
        shard = shard_over(log)
        await shard.load()
        code = ErrorCode.INVALID_COMMIT_OFFSET_SIZE
        with pytest.raises(KafkaError) as refused:
            await shard.write(
                lambda machine, token, now: Decision(OffsetCommitResponse(), [record("t", 1)], too_large=code)
            )
        assert refused.value.code is code and len(shard.machine.offsets) == 0

    run(scene)


def test_records_that_are_not_replicated_in_time_are_answered_not_available_and_may_be_committed_later() -> None:
    async def scene() -> None:
        log = MemoryLog(replicates=False)
        shard = shard_over(log)
        await shard.load()
        with pytest.raises(KafkaError) as refused:
            await commit(shard, "t", 2)
        assert refused.value.code is ErrorCode.COORDINATOR_NOT_AVAILABLE
        log.commit()
        assert committed(shard, "t") == 2

    run(scene)


def test_lost_leadership_fails_what_waits_for_its_commit_and_what_is_parked() -> None:
    async def scene() -> None:
        log = MemoryLog(replicates=False)
        shard = shard_over(log)
        await shard.load()
        writing = asyncio.ensure_future(commit(shard, "t", 2))
        parked = asyncio.ensure_future(shard.write(lambda machine, token, now: Decision(None)))
        await asyncio.sleep(0.001)
        shard.unload(KafkaError(ErrorCode.NOT_COORDINATOR, "another broker leads"))
        log.resign()
        for each in (writing, parked):
            with pytest.raises(KafkaError) as refused:
                await each
            assert refused.value.code is ErrorCode.NOT_COORDINATOR

    run(scene)


def test_a_parked_request_is_completed_when_the_records_of_the_completing_decision_are_committed() -> None:
    async def scene() -> None:
        log = MemoryLog(replicates=False)
        shard = shard_over(log)
        await shard.load()

        def park(machine: Offsets, token: Token, now: Now) -> Decision[OffsetCommitResponse | None]:
            machine.parked.append(token)
            return Decision(None)

        def complete(machine: Offsets, token: Token, now: Now) -> Decision[OffsetCommitResponse | None]:
            completed = [Completion(each, OffsetCommitResponse(throttle_time_ms=9)) for each in machine.parked]
            return Decision(OffsetCommitResponse(), [record("t", 1)], completed)

        parked = asyncio.ensure_future(shard.write(park))
        await asyncio.sleep(0.001)
        completing = asyncio.ensure_future(shard.write(complete))
        await asyncio.sleep(0.001)
        assert not parked.done() and not completing.done()
        log.commit()
        assert (await parked).throttle_time_ms == 9
        await completing

    run(scene)


def test_a_new_leader_serves_when_everything_up_to_its_log_end_is_loaded_and_committed() -> None:
    async def scene() -> None:
        log = MemoryLog()
        shard = shard_over(log)
        await shard.load()
        await commit(shard, "t", 1)
        log.replicates = False
        lost = asyncio.ensure_future(commit(shard, "t", 2))
        await asyncio.sleep(0.001)
        log.resign()
        with pytest.raises(KafkaError):
            await lost

        successor = log.successor()
        loaded = shard_over(successor)
        loading = asyncio.ensure_future(loaded.load())
        await asyncio.sleep(1)
        with pytest.raises(KafkaError) as refused:
            committed(loaded, "t")
        assert refused.value.code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        successor.commit()
        await loading
        assert committed(loaded, "t") == 2

    run(scene)


def test_loading_ends_when_the_leadership_is_lost() -> None:
    async def scene() -> None:
        log = MemoryLog(replicates=False)
        shard = shard_over(log)
        await shard.load()
        asyncio.ensure_future(commit(shard, "t", 2)).add_done_callback(lambda done: done.exception())
        await asyncio.sleep(0.001)
        successor = log.successor()
        loading = asyncio.ensure_future(shard_over(successor).load())
        await asyncio.sleep(1)
        successor.resign()
        with pytest.raises(KafkaError):
            await loading
        log.resign()

    run(scene)


@pytest.mark.parametrize("commits", [True, False])
def test_offsets_of_a_transaction_take_effect_with_its_marker_now_and_after_loading(commits: bool) -> None:
    async def scene() -> None:
        log = MemoryLog()
        shard = shard_over(log)
        await shard.load()
        await shard.write_in_transaction(
            PRODUCER, lambda machine, now: Decision(OffsetCommitResponse(), [record("t", 4)])
        )
        assert committed(shard, "t") is None
        await shard.end_transaction(PRODUCER, 3, commit=commits)
        loaded = shard_over(log.successor())
        await loaded.load()
        for each in (shard, loaded):
            assert committed(each, "t") == (4 if commits else None)
            assert len(each.machine.pending) == 0

    run(scene)


def test_timers_fire_at_their_deadlines_and_what_they_decide_is_written() -> None:
    async def scene() -> None:
        log = MemoryLog()
        shard = shard_over(log)
        await shard.load()

        def schedule(machine: Offsets, token: Token, now: Now) -> Decision[OffsetCommitResponse | None]:
            machine.timers.schedule("late", now.ms + 300)
            machine.timers.schedule("early", now.ms + 100)
            machine.timers.schedule("cancelled", now.ms + 50)
            machine.timers.cancel("cancelled")
            machine.timers.schedule("early", now.ms + 200)
            return Decision(OffsetCommitResponse())

        await shard.write(schedule)
        await asyncio.sleep(0.25)
        assert shard.machine.fired == [("early", 200)] and committed(shard, "timer-early") == 200
        await asyncio.sleep(0.1)
        assert [key for key, _ in shard.machine.fired] == ["early", "late"]  # type: ignore[misc]

    run(scene)
