"""The shell around the followers of one leader: one fetch under way at a time, shared by all partitions it leads.

`replication/engine` owns one for each leader and tells it which partitions to follow. While an answer is awaited a new
leadership may take a partition away: so every answer is matched with the very following that asked, and what comes too
late is dropped.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable

import msgspec

from strandline.log.partition_log import PartitionLog
from strandline.log.segment import Segment
from strandline.metadata.values import PartitionKey
from strandline.model.errors import ErrorCode, KafkaError
from strandline.model.ids import Endpoint
from strandline.protocol.messages.fetch import FetchPartition, FetchResponse
from strandline.protocol.types import Message
from strandline.replication.conversation import Conversation, Manners
from strandline.replication.follower import (
    Append,
    AskForOffsets,
    BeginAgain,
    Cut,
    Effect,
    Follower,
    RaiseHighWatermark,
    RaiseLogStart,
)
from strandline.replication.offset_questions import ask_for_offsets
from strandline.replication.partition import Begin, Partition
from strandline.replication.peers_port import Peers
from strandline.replication.settings import ReplicationSettings
from strandline.runtime.world import World

logger = logging.getLogger(__name__)

# Then others have their turn: to check and write this much takes about a millisecond.
_BYTES_PER_TURN = 512 * 1024


class Following:
    """A partition that is followed in one leader epoch."""

    __slots__ = ("follower", "log", "partition")

    def __init__(self, partition: Partition, log: PartitionLog, follower: Follower) -> None:
        self.partition = partition
        self.log = log
        self.follower = follower

    @property
    def key(self) -> PartitionKey:
        return self.partition.topic_id, self.partition.topic_partition.partition


class Equipment(msgspec.Struct):
    """What the fetchers of a broker share."""

    broker_id: int
    world: World
    peers: Peers
    settings: ReplicationSettings
    broker_epoch: Callable[[], int]
    endpoint: Callable[[int], Endpoint | None]
    """Of another broker; None when it cannot be reached now."""
    removed: Callable[[list[Segment]], None]
    """Hears which segments a truncation has taken out of a log."""


class Fetcher:
    def __init__(self, leader_id: int, equipment: Equipment) -> None:
        self._leader_id = leader_id
        self._equipment = equipment
        settings = equipment.settings
        manners = Manners(settings.fetch_wait_max_ms, settings.fetch_min_bytes, settings.fetch_response_max_bytes)
        self._conversation = Conversation(equipment.broker_id, manners)
        self._followed: dict[PartitionKey, Following] = {}
        self._new: list[Following] = []
        self._changed = asyncio.Event()
        self._silent = False
        self._bytes_in_turn = 0

    def __len__(self) -> int:
        return len(self._followed)

    def follow(self, following: Following) -> None:
        self._followed[following.key] = following
        self._new.append(following)
        self._changed.set()

    def unfollow(self, key: PartitionKey) -> None:
        self._followed.pop(key, None)

    def look_again(self) -> None:
        """The leader may be back, or somewhere else."""
        self._changed.set()

    async def run(self) -> None:
        while True:
            self._changed.clear()
            while self._new:
                following = self._new.pop()
                await self._perform(following, following.follower.start())
            wanted = self._wanted()
            endpoint = self._equipment.endpoint(self._leader_id)
            if not wanted or endpoint is None:
                await self._pause()
                continue
            asked = {key: self._followed[key] for key in wanted}
            response = await self._fetch(endpoint, wanted)
            if response is None:
                self._trouble(asked.values())
            else:
                await self._work_off(asked, response)

    def _wanted(self) -> dict[PartitionKey, FetchPartition]:
        now_ms = self._equipment.world.clock.now_ms()
        wanted = {
            key: each.follower.wanted(key[1], now_ms)
            for key, each in self._followed.items()
            if not each.partition.is_being_cut
        }
        return {key: one for key, one in wanted.items() if one is not None}

    async def _pause(self) -> None:
        """Until there is something new, or a delayed partition may be tried again."""
        try:
            async with asyncio.timeout(self._equipment.settings.fetch_backoff_ms / 1000):
                await self._changed.wait()
        except TimeoutError:
            return

    async def _fetch(self, endpoint: Endpoint, wanted: dict[PartitionKey, FetchPartition]) -> FetchResponse | None:
        try:
            response = await self._call(endpoint, self._conversation.request(wanted, self._equipment.broker_epoch()))
            assert isinstance(response, FetchResponse)
            believed = self._conversation.on_answer(response)
        except (OSError, KafkaError) as error:
            self._conversation.begin_anew()
            if not self._silent:
                self._silent = True
                logger.warning("broker %d, which is followed, does not answer: %s", self._leader_id, error)
            return None
        self._silent = False
        return response if believed else FetchResponse()

    async def _call(self, endpoint: Endpoint, request: Message) -> Message:
        return await self._equipment.peers.call(
            endpoint, request, timeout_ms=self._equipment.settings.socket_timeout_ms
        )

    async def _work_off(self, asked: dict[PartitionKey, Following], response: FetchResponse) -> None:
        to_flush: list[Following] = []
        for topic in response.responses:
            for answer in topic.partitions:
                following = asked.get((topic.topic_id, answer.partition_index))
                if following is None or not self._is_current(following):
                    continue
                end_offset = following.log.log_end_offset
                now_ms = self._equipment.world.clock.now_ms()
                await self._perform(following, following.follower.on_answer(answer, now_ms))
                if following.log.settings.flush_messages == 1 and following.log.log_end_offset > end_offset:
                    to_flush.append(following)
        # Who promised that what he holds is on his disk must not ask for the next record before it is.
        await asyncio.gather(*(self._flush(following) for following in to_flush))

    def _is_current(self, following: Following) -> bool:
        return self._followed.get(following.key) is following

    async def _perform(self, following: Following, effects: list[Effect]) -> None:
        try:
            for effect in effects:
                if not self._is_current(following):
                    return
                await self._perform_one(following, effect)
        except (OSError, KafkaError) as error:
            if not self._is_current(following):
                return
            if following.log.health.is_online:
                logger.warning("%r cannot follow broker %d for now: %s", following.log, self._leader_id, error)
                following.follower.on_trouble(self._equipment.world.clock.now_ms())
            else:
                following.follower.on_broken(str(error))

    async def _perform_one(self, following: Following, effect: Effect) -> None:
        world, log = self._equipment.world, following.log
        match effect:
            case Append(records, offset):
                following.partition.append_fetched(
                    memoryview(records),
                    leader_epoch=following.follower.leader_epoch,
                    offset=offset,
                    wall_ms=world.clock.wall_ms(),
                    now_ms=world.clock.now_ms(),
                )
                self._bytes_in_turn += len(records)
                if self._bytes_in_turn >= _BYTES_PER_TURN:
                    self._bytes_in_turn = 0
                    await asyncio.sleep(0)
            case RaiseHighWatermark(offset):
                log.advance_high_watermark(offset)
            case RaiseLogStart(offset):
                log.delete_records_before(min(offset, log.high_watermark))
            case Cut(offset):
                level = logging.WARNING if offset < log.high_watermark else logging.INFO
                logger.log(level, "%r, shown up to %d, is cut back to %d", log, log.high_watermark, offset)
                await self._cut(following, lambda log: log.begin_truncation(offset))
            case BeginAgain(offset):
                logger.warning("%r begins again, empty, at %d", log, offset)
                await self._cut(following, lambda log: log.begin_restart(offset))
            case AskForOffsets():
                await self._ask(following)

    async def _cut(self, following: Following, begin: Begin) -> None:
        follower, offload = following.follower, self._equipment.world.offload
        self._equipment.removed(await following.partition.cut(begin, offload, follower.leader_epoch))
        follower.on_cut()

    async def _ask(self, following: Following) -> None:
        follower = following.follower
        endpoint = self._equipment.endpoint(self._leader_id)
        if endpoint is None:
            raise KafkaError(ErrorCode.BROKER_NOT_AVAILABLE, f"broker {self._leader_id} cannot be reached")
        earliest, latest = await ask_for_offsets(
            lambda request: self._call(endpoint, request),
            self._equipment.broker_id,
            following.partition.topic_partition,
            follower.leader_epoch,
        )
        if self._is_current(following):
            await self._perform(following, follower.on_offsets(earliest, latest))

    async def _flush(self, following: Following) -> None:
        try:
            await self._equipment.world.offload.run(following.log.flush)
        except KafkaError as error:
            following.follower.on_broken(str(error))

    def _trouble(self, asked: Iterable[Following]) -> None:
        now_ms = self._equipment.world.clock.now_ms()
        for following in asked:
            following.follower.on_trouble(now_ms)
