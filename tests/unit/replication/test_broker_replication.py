"""Three brokers that replicate, on virtual time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from strandline.log.settings import LogSettings
from strandline.model.errors import ErrorCode
from strandline.model.ids import Endpoint, Uuid
from strandline.protocol.messages.brokers import AlterPartitionRequest, AlterPartitionResponse
from strandline.protocol.messages.fetch import FetchRequest
from strandline.protocol.messages.metadata_records import PartitionRecord, TopicRecord
from strandline.protocol.types import Message
from strandline.replication.leader import IsrChange, Leader, RemoteReplica
from strandline.runtime.tasks import TaskGroup
from unit.replication.three_brokers import TOPIC_ID, Cluster, on_virtual_time


async def settled(cluster: Cluster, *values: str) -> None:
    """Waits until every replica has these values and the high watermark behind them."""
    await asyncio.sleep(2)
    for broker in cluster.brokers.values():
        log = await broker.partition.ready()
        assert await broker.values() == list(values), broker.id
        assert log.high_watermark == len(values), broker.id


def test_a_write_is_acknowledged_when_every_replica_in_sync_has_it() -> None:
    async def scenario(cluster: Cluster) -> None:
        cluster.create()
        assert await cluster.brokers[1].produce("a", "b") == ErrorCode.NONE
        assert [await broker.values() for broker in cluster.brokers.values()] == [["a", "b"]] * 3
        await settled(cluster, "a", "b")
        assert await cluster.brokers[2].produce("c") == ErrorCode.NOT_LEADER_OR_FOLLOWER

    on_virtual_time(scenario)


def test_an_unreachable_follower_delays_writes_until_it_leaves_the_isr_and_joins_again_later() -> None:
    async def scenario(cluster: Cluster) -> None:
        cluster.create()
        await cluster.brokers[1].produce("a")
        cluster.unreachable.add(3)
        assert await cluster.brokers[1].produce("b", timeout_ms=1_000) == ErrorCode.REQUEST_TIMED_OUT
        assert cluster.brokers[1].partition.leading().high_watermark.value == 1
        assert await cluster.brokers[1].produce("c", timeout_ms=30_000) == ErrorCode.NONE
        assert cluster.isr == (1, 2)
        cluster.unreachable.clear()
        await asyncio.sleep(5)
        assert cluster.isr == (1, 2, 3)
        await settled(cluster, "a", "b", "c")

    on_virtual_time(scenario)


def test_below_min_isr_acks_all_is_rejected_and_records_of_acks_1_are_not_committed() -> None:
    async def scenario(cluster: Cluster) -> None:
        cluster.create()
        await cluster.brokers[1].produce("a")
        cluster.unreachable |= {2, 3}
        await asyncio.sleep(30)
        assert cluster.isr == (1, 2, 3)  # a follower that has all records does not lag
        assert await cluster.brokers[1].produce("b", acks=1) == ErrorCode.NONE
        await asyncio.sleep(15)
        assert cluster.isr == (1,)
        assert await cluster.brokers[1].produce("refused") == ErrorCode.NOT_ENOUGH_REPLICAS
        assert await cluster.brokers[1].produce("c", acks=1) == ErrorCode.NONE
        assert cluster.brokers[1].partition.leading().high_watermark.value == 1
        cluster.unreachable.clear()
        await asyncio.sleep(5)
        await settled(cluster, "a", "b", "c")

    on_virtual_time(scenario)


def test_a_joining_follower_that_is_fenced_does_not_hold_back_the_high_watermark() -> None:
    async def scenario(cluster: Cluster) -> None:
        cluster.create(isr=[1])

        async def no_response(request: AlterPartitionRequest) -> AlterPartitionResponse:
            raise ConnectionResetError("no controller")

        leader = cluster.brokers[1].partition
        await leader.ready()
        cluster.brokers[1].isr._send = no_response
        await asyncio.sleep(2)
        proposed = leader.leading().proposed
        assert proposed is not None
        leader.leading().on_proposal_response(proposed, ErrorCode.INELIGIBLE_REPLICA)
        joining = [remote.broker_id for remote in leader.leading().remotes.values() if remote.joining]
        assert joining == [2, 3]
        cluster.unreachable |= {2, 3}
        writing = asyncio.ensure_future(cluster.brokers[1].produce("a"))
        await asyncio.sleep(1)
        assert not writing.done()
        for broker_id in (2, 3):
            cluster.fence(broker_id)
        await asyncio.sleep(0.1)
        assert writing.done() and writing.result() == ErrorCode.NONE

    on_virtual_time(scenario, LogSettings(min_insync_replicas=1))


def test_the_old_leader_truncates_records_that_no_other_replica_had() -> None:
    async def scenario(cluster: Cluster) -> None:
        cluster.create()
        old, new = cluster.brokers[1], cluster.brokers[2]
        await old.produce("a")
        cluster.unreachable.add(1)
        waiting = asyncio.ensure_future(old.produce("lost", timeout_ms=60_000))
        await asyncio.sleep(1)
        cluster.elect(2, isr=[2, 3])
        assert await waiting == ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert await new.produce("b") == ErrorCode.NONE
        cluster.unreachable.clear()
        await asyncio.sleep(5)
        assert cluster.isr == (2, 3, 1)
        assert await new.produce("c") == ErrorCode.NONE
        await settled(cluster, "a", "b", "c")

    on_virtual_time(scenario)


def test_a_fully_caught_up_follower_is_skipped_until_there_are_new_records(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def scenario(cluster: Cluster) -> None:
        cluster.create()
        assert await cluster.brokers[1].produce("a") == ErrorCode.NONE
        await settled(cluster, "a")
        fetches: list[int] = []
        on_fetch = Leader.on_fetch

        def noted(leader: Leader, remote: RemoteReplica, *said: int) -> IsrChange | None:
            fetches.append(remote.broker_id)
            return on_fetch(leader, remote, *said)

        monkeypatch.setattr(Leader, "on_fetch", noted)
        await asyncio.sleep(30)
        assert fetches == [], "dozens of fetches, none of which has to look at the partition"
        assert await cluster.brokers[1].produce("b", timeout_ms=50) == ErrorCode.NONE, (
            "the waiting fetches are answered at once"
        )
        await settled(cluster, "a", "b")
        assert 4 <= len(fetches) <= 8
        assert cluster.isr == (1, 2, 3)

    on_virtual_time(scenario)


def test_a_log_with_followers_is_opened_before_their_first_fetch() -> None:
    async def scenario(cluster: Cluster) -> None:
        cluster.unreachable.update((2, 3))
        cluster.create()
        await asyncio.sleep(1)
        assert cluster.brokers[1].partition.log is not None

    on_virtual_time(scenario)


def test_with_flush_messages_1_a_write_is_acknowledged_when_every_replica_has_flushed_it() -> None:
    async def scenario(cluster: Cluster) -> None:
        cluster.create()
        assert await cluster.brokers[1].produce("a") == ErrorCode.NONE
        for broker in cluster.brokers.values():
            log = await broker.partition.ready()
            assert log.flushed_offset == 1, broker.id

    on_virtual_time(scenario, LogSettings(min_insync_replicas=2, flush_messages=1))


def test_with_flush_messages_1_a_new_follower_flushes_records_of_an_earlier_epoch_before_it_fetches() -> None:
    async def scenario(cluster: Cluster) -> None:
        cluster.create()
        await cluster.brokers[1].produce("a")
        log = await cluster.brokers[3].partition.ready()
        call, offload = cluster.call, cluster.world.offload.run
        fetched: list[tuple[int, int]] = []

        async def noted(endpoint: Endpoint, request: Message, *, timeout_ms: int) -> Message:
            if isinstance(request, FetchRequest) and request.replica_state.replica_id == 3:
                offsets = [each.fetch_offset for topic in request.topics for each in topic.partitions]
                fetched.extend((offset, log.flushed_offset) for offset in offsets)
            return await call(endpoint, request, timeout_ms=timeout_ms)

        async def slow(work: Callable[..., object], *arguments: object) -> object:
            if getattr(work, "__self__", None) is log:
                await asyncio.sleep(3)
            return await offload(work, *arguments)

        cluster.call = noted  # type: ignore[method-assign]
        cluster.world.offload.run = slow  # type: ignore[method-assign, assignment]
        await cluster.brokers[1].produce("b", timeout_ms=100)
        while log.log_end_offset < 2:
            await asyncio.sleep(0.01)
        assert log.flushed_offset == 1
        cluster.elect(2)
        await asyncio.sleep(10)
        assert log.flushed_offset == 2 and fetched[-1] == (2, 2)
        assert all(offset <= flushed for offset, flushed in fetched), fetched

    on_virtual_time(scenario, LogSettings(min_insync_replicas=2, flush_messages=1))


def test_a_follower_with_a_new_registration_counts_again() -> None:
    async def scenario(cluster: Cluster) -> None:
        cluster.create()
        await cluster.brokers[1].produce("a")
        cluster.register(3)
        assert await cluster.brokers[1].produce("b") == ErrorCode.NONE
        await settled(cluster, "a", "b")

    on_virtual_time(scenario)


@pytest.mark.parametrize("seed", range(5))
def test_frequent_elections_lose_no_acknowledged_records(seed: int) -> None:
    """Clean elections only: every leader was in the ISR. Sometimes one broker is unreachable."""

    async def scenario(cluster: Cluster) -> None:
        random = cluster.world.random
        acked: list[str] = []

        async def produce(number: int) -> None:
            for attempt in range(3):
                value = f"{number}-{attempt}"
                if await cluster.brokers[cluster.leader].produce(value, timeout_ms=3_000) == ErrorCode.NONE:
                    acked.append(value)

        cluster.create()
        async with TaskGroup() as producing:
            for number in range(60):
                cluster.unreachable = {random.randint(1, 3)} if random.random() < 0.3 else set()
                candidates = [broker_id for broker_id in cluster.isr if broker_id not in cluster.unreachable]
                if candidates:
                    cluster.elect(random.choice(candidates))
                producing.start(produce(number))
                await asyncio.sleep(random.choice((0.002, 0.02, 5)))
            cluster.unreachable = set()
        assert len(acked) > 30
        held = await cluster.brokers[cluster.leader].values()
        assert sorted(value for value in held if value in acked) == sorted(acked)
        await settled(cluster, *held)

    on_virtual_time(scenario, LogSettings(min_insync_replicas=2, segment_bytes=500), seed)


def test_a_follower_whose_leader_learns_of_its_leadership_later_does_not_hold_back_writes_for_a_second() -> None:
    async def scenario(cluster: Cluster) -> None:
        cluster.create()
        assert await cluster.brokers[1].produce("a") == ErrorCode.NONE
        new = cluster.brokers.pop(2)  # learns of the election later than broker 3
        cluster.unreachable.add(1)
        cluster.elect(2, isr=[2, 3])
        cluster.brokers[2] = new
        await asyncio.sleep(0.02)
        new.table.on_metadata(TOPIC_ID, 0, cluster.info)
        assert await new.produce("b", timeout_ms=300) == ErrorCode.NONE

    on_virtual_time(scenario)


def test_a_fetch_that_waits_at_a_new_leader_does_not_hold_back_writes() -> None:
    """Broker 3 follows broker 2 already, for a partition without traffic, when broker 2 is elected for another one."""

    async def scenario(cluster: Cluster) -> None:
        cluster.create()
        other = Uuid.of(8, 8)
        partition = PartitionRecord(partition_id=0, topic_id=other, replicas=[2, 3], isr=[2, 3], leader=2)
        cluster.write(TopicRecord(name="idle", topic_id=other), partition)
        assert await cluster.brokers[1].produce("a") == ErrorCode.NONE
        for _ in range(10):
            await asyncio.sleep(1.01)
            leader = 3 - cluster.leader
            cluster.elect(leader)
            assert await cluster.brokers[leader].produce("b", timeout_ms=150) == ErrorCode.NONE

    on_virtual_time(scenario)
