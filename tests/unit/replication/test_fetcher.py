"""What a fetch costs who follows many partitions of one leader."""

from __future__ import annotations

import asyncio

from strandline.log.partition_log import PartitionLog
from strandline.log.settings import LogSettings
from strandline.metadata.values import PartitionInfo
from strandline.model.ids import Endpoint, TopicPartition, Uuid
from strandline.protocol.messages.fetch import (
    FetchableTopicResponse,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    PartitionData,
)
from strandline.protocol.types import Message
from strandline.replication.fetcher import Equipment, Fetcher, Following
from strandline.replication.follower import Follower
from strandline.replication.partition import Partition
from strandline.replication.settings import ReplicationSettings
from unit.replication.rig import NODE, TOPIC_ID, Rig, on_virtual_time

LEADER = 2
PARTITIONS = 500
FETCHES = 50


class CountedFollower(Follower):
    looks = 0

    def wanted(self, partition: int, now_ms: int) -> FetchPartition | None:
        CountedFollower.looks += 1
        return super().wanted(partition, now_ms)


class OneAtATime:
    """A leader that has news of one partition in each answer."""

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


def test_a_fetch_costs_what_has_changed_and_not_what_is_followed() -> None:
    async def scenario(rig: Rig) -> None:
        CountedFollower.looks = 0
        leader = OneAtATime()
        equipment = Equipment(
            NODE,
            rig.world,
            leader,
            ReplicationSettings(),
            lambda: 7,
            lambda broker_id: Endpoint("h", broker_id),
            lambda segments: None,
        )
        fetcher = Fetcher(LEADER, equipment)
        for index in range(PARTITIONS):
            log = PartitionLog.open(
                rig.world.disk, f"/data/t-{index}", TopicPartition("t", index), LogSettings(), wall_ms=1
            )

            async def open_log(log: PartitionLog = log) -> PartitionLog:
                return log

            info = PartitionInfo((NODE, LEADER), (LEADER,), leader=LEADER)
            partition = Partition(TopicPartition("t", index), TOPIC_ID, info, open_log, rig.partitions)
            fetcher.follow(Following(partition, log, CountedFollower(log, 0, max_bytes=1 << 20, backoff_ms=1_000)))
        rig.tasks.start(fetcher.run())
        await leader.done.wait()
        assert len(fetcher) == PARTITIONS
        assert leader.named[:3] == [PARTITIONS, 0, 0]
        assert PARTITIONS <= CountedFollower.looks <= PARTITIONS + FETCHES
        fetcher.unfollow((TOPIC_ID, 3))
        fetcher.unfollow((Uuid.of(8, 8), 3))
        assert len(fetcher) == PARTITIONS - 1

    on_virtual_time(scenario)
