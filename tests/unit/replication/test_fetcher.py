"""A fetcher with many partitions of one leader: the cost of a fetch, and the end of one that is never answered."""

from __future__ import annotations

import asyncio

from strandline.log.partition_log import PartitionLog
from strandline.log.settings import LogSettings
from strandline.metadata.values import PartitionInfo
from strandline.model.errors import ErrorCode, KafkaError
from strandline.model.ids import Endpoint, TopicPartition, Uuid
from strandline.protocol.messages.fetch import (
    FetchableTopicResponse,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    PartitionData,
)
from strandline.protocol.types import Message
from strandline.replication.fetcher import Fetcher, FetcherContext, FollowedPartition
from strandline.replication.follower import Follower
from strandline.replication.partition import Partition
from strandline.replication.settings import ReplicationSettings
from unit.replication.one_broker import NODE, TOPIC_ID, Rig, on_virtual_time

LEADER = 2
PARTITIONS = 500
FETCHES = 50


class CountedFollower(Follower):
    looks = 0

    def next_fetch(self, partition: int, now_ms: int) -> FetchPartition | None:
        CountedFollower.looks += 1
        return super().next_fetch(partition, now_ms)


class OneAtATime:
    """A leader with news of one partition in each response."""

    def __init__(self) -> None:
        self.named: list[int] = []
        self.done = asyncio.Event()

    async def call(self, endpoint: Endpoint, request: Message, *, timeout_ms: int) -> Message:
        assert isinstance(request, FetchRequest)
        await asyncio.sleep(0.001)
        self.named.append(sum(len(topic.partitions) for topic in request.topics))
        if len(self.named) == FETCHES:
            self.done.set()
        news = PartitionData(partition_index=len(self.named), error_code=0, high_watermark=0, records=b"")
        topic = FetchableTopicResponse(topic_id=TOPIC_ID, partitions=[news])
        return FetchResponse(session_id=9, responses=[topic])

    def disconnect(self, endpoint: Endpoint) -> None:
        raise AssertionError("the leader has not restarted")


class SilentLeader:
    """A leader that never responds, on a connection that stays open."""

    def __init__(self) -> None:
        self.calls: list[asyncio.Future[Message]] = []
        self.called = asyncio.Event()

    async def call(self, endpoint: Endpoint, request: Message, *, timeout_ms: int) -> Message:
        self.calls.append(asyncio.get_running_loop().create_future())
        self.called.set()
        return await self.calls[-1]

    def disconnect(self, endpoint: Endpoint) -> None:
        assert endpoint == Endpoint("h", LEADER)
        self.calls[-1].set_exception(KafkaError(ErrorCode.NETWORK_EXCEPTION, "disconnected"))


def test_a_fetch_to_a_leader_that_has_restarted_is_aborted_and_sent_again() -> None:
    async def scenario(rig: Rig) -> None:
        leader, epochs = SilentLeader(), {NODE: 7, LEADER: 20}
        context = FetcherContext(
            NODE,
            rig.world,
            leader,
            ReplicationSettings(),
            epochs.__getitem__,
            lambda broker_id: Endpoint("h", broker_id),
            lambda segments: None,
            lambda leader_id: None,
        )
        fetcher = Fetcher(LEADER, context)
        fetcher.on_brokers_changed()
        follow(rig, fetcher, 0, Follower)
        rig.tasks.start(fetcher.run())
        await leader.called.wait()
        fetcher.on_brokers_changed()
        await asyncio.sleep(0.1)
        assert len(leader.calls) == 1, "another broker changed"
        epochs[LEADER] = 31
        fetcher.on_brokers_changed()
        await asyncio.sleep(2)
        assert len(leader.calls) == 2

    on_virtual_time(scenario)


def follow(rig: Rig, fetcher: Fetcher, index: int, kind: type[Follower]) -> None:
    log = PartitionLog.open(rig.world.disk, f"/data/t-{index}", TopicPartition("t", index), LogSettings(), wall_ms=1)

    async def open_log() -> PartitionLog:
        return log

    info = PartitionInfo((NODE, LEADER), (LEADER,), leader=LEADER)
    partition = Partition(TopicPartition("t", index), TOPIC_ID, info, open_log, rig.partitions)
    fetcher.follow(FollowedPartition(partition, log, kind(log, 0, max_bytes=1 << 20, backoff_ms=1_000)))


def test_a_fetch_costs_the_changed_partitions_and_not_the_followed_ones() -> None:
    async def scenario(rig: Rig) -> None:
        CountedFollower.looks = 0
        leader = OneAtATime()
        context = FetcherContext(
            NODE,
            rig.world,
            leader,
            ReplicationSettings(),
            lambda broker_id: 7,
            lambda broker_id: Endpoint("h", broker_id),
            lambda segments: None,
            lambda leader_id: None,
        )
        fetcher = Fetcher(LEADER, context)
        for index in range(PARTITIONS):
            follow(rig, fetcher, index, CountedFollower)
        rig.tasks.start(fetcher.run())
        await leader.done.wait()
        assert len(fetcher) == PARTITIONS
        assert leader.named[:3] == [PARTITIONS, 0, 0]
        assert PARTITIONS <= CountedFollower.looks <= PARTITIONS + FETCHES
        fetcher.unfollow((TOPIC_ID, 3))
        fetcher.unfollow((Uuid.of(8, 8), 3))
        assert len(fetcher) == PARTITIONS - 1

    on_virtual_time(scenario)
