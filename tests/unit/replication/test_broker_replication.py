"""Three brokers that replicate, on virtual time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from strandline.log.settings import LogSettings
from strandline.model.errors import ErrorCode
from strandline.model.ids import Endpoint
from strandline.protocol.messages.brokers import AlterPartitionRequest, AlterPartitionResponse
from strandline.protocol.messages.fetch import FetchRequest
from strandline.protocol.types import Message
from strandline.replication.leader import IsrChange, Leader, RemoteReplica
from strandline.runtime.tasks import TaskGroup
from unit.replication.brokers import Cluster, on_virtual_time


async def settled(cluster: Cluster, *values: str) -> None:
    """Every replica holds this, and knows that it does."""
    await asyncio.sleep(2)
    for broker in cluster.brokers.values():
        log = await broker.partition.ready()
        assert await broker.values() == list(values), broker.id
        assert log.high_watermark == len(values), broker.id


def test_a_write_is_acknowledged_when_every_replica_in_sync_holds_it() -> None:
    async def scenario(cluster: Cluster) -> None:
        cluster.create()
        assert await cluster.brokers[1].produce("a", "b") == ErrorCode.NONE
        assert [await broker.values() for broker in cluster.brokers.values()] == [["a", "b"]] * 3
        await settled(cluster, "a", "b")
        assert await cluster.brokers[2].produce("c") == ErrorCode.NOT_LEADER_OR_FOLLOWER

    on_virtual_time(scenario)


def test_a_silent_follower_holds_writes_up_until_it_is_out_of_the_isr_and_then_returns() -> None:
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


def test_too_few_in_sync_refuse_acks_all_and_show_nothing_of_what_acks_1_wrote() -> None:
    async def scenario(cluster: Cluster) -> None:
        cluster.create()
        await cluster.brokers[1].produce("a")
        cluster.unreachable |= {2, 3}
        await asyncio.sleep(30)
        assert cluster.isr == (1, 2, 3)  # who has everything does not lag
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


def test_who_was_about_to_join_and_is_fenced_holds_nobody_up() -> None:
    async def scenario(cluster: Cluster) -> None:
        cluster.create(isr=[1])

        async def nobody_answers(request: AlterPartitionRequest) -> AlterPartitionResponse:
            raise ConnectionResetError("no controller")

        leader = cluster.brokers[1].partition
        await leader.ready()
        cluster.brokers[1].isr._send = nobody_answers
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


def test_the_old_leader_returns_without_what_nobody_else_had() -> None:
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


def test_a_follower_that_has_everything_is_looked_at_when_there_is_something_new(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def scenario(cluster: Cluster) -> None:
        cluster.create()
        assert await cluster.brokers[1].produce("a") == ErrorCode.NONE
        await settled(cluster, "a")
        looks: list[int] = []
        on_fetch = Leader.on_fetch

        def noted(leader: Leader, remote: RemoteReplica, *said: int) -> IsrChange | None:
            looks.append(remote.broker_id)
            return on_fetch(leader, remote, *said)

        monkeypatch.setattr(Leader, "on_fetch", noted)
        await asyncio.sleep(30)
        assert looks == [], "dozens of fetches, and nothing that they could bring about"
        assert await cluster.brokers[1].produce("b", timeout_ms=50) == ErrorCode.NONE, "they hear of it at once"
        await settled(cluster, "a", "b")
        assert 4 <= len(looks) <= 8
        assert cluster.isr == (1, 2, 3)

    on_virtual_time(scenario)


def test_a_log_that_others_follow_is_open_before_they_ask_for_it() -> None:
    async def scenario(cluster: Cluster) -> None:
        cluster.unreachable.update((2, 3))
        cluster.create()
        await asyncio.sleep(1)
        assert cluster.brokers[1].partition.log is not None

    on_virtual_time(scenario)


def test_with_flush_messages_1_a_write_is_acknowledged_when_it_is_on_every_disk() -> None:
    async def scenario(cluster: Cluster) -> None:
        cluster.create()
        assert await cluster.brokers[1].produce("a") == ErrorCode.NONE
        for broker in cluster.brokers.values():
            log = await broker.partition.ready()
            assert log.flushed_offset == 1, broker.id

    on_virtual_time(scenario, LogSettings(min_insync_replicas=2, flush_messages=1))


def test_with_flush_messages_1_nobody_vouches_for_what_an_earlier_following_has_not_synced() -> None:
    async def scenario(cluster: Cluster) -> None:
        cluster.create()
        await cluster.brokers[1].produce("a")
        log = await cluster.brokers[3].partition.ready()
        call, offload = cluster.call, cluster.world.offload.run
        vouched: list[tuple[int, int]] = []

        async def noted(endpoint: Endpoint, request: Message, *, timeout_ms: int) -> Message:
            if isinstance(request, FetchRequest) and request.replica_state.replica_id == 3:
                asked = [one.fetch_offset for topic in request.topics for one in topic.partitions]
                vouched.extend((offset, log.flushed_offset) for offset in asked)
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
        assert log.flushed_offset == 2 and vouched[-1] == (2, 2)
        assert all(offset <= flushed for offset, flushed in vouched), vouched

    on_virtual_time(scenario, LogSettings(min_insync_replicas=2, flush_messages=1))


def test_a_broker_registered_anew_is_believed_once_everybody_knows_it() -> None:
    async def scenario(cluster: Cluster) -> None:
        cluster.create()
        await cluster.brokers[1].produce("a")
        cluster.register(3)
        assert await cluster.brokers[1].produce("b") == ErrorCode.NONE
        await settled(cluster, "a", "b")

    on_virtual_time(scenario)


@pytest.mark.parametrize("seed", range(5))
def test_leaderships_that_change_all_the_time_lose_nothing_that_was_acknowledged(seed: int) -> None:
    """Clean elections only: whoever leads was in the ISR. One broker at a time is cut off, now and then."""

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
