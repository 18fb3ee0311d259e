"""The shell around the followers of one leader: one fetch under way at a time, shared by all partitions it leads.

`replication/broker_replication` owns one for each leader and tells it which partitions to follow. While an answer is
awaited a new
leadership may take a partition away: so every answer is matched with the very following that asked, and what comes too
late is dropped.

A turn costs what has changed: a partition that was not answered wants what it wanted before, and is not looked at.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

import msgspec

from strandline.client.peers import Peers
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
    Effect,
    Failed,
    FetchLeaderOffsets,
    Follower,
    RaiseHighWatermark,
    RaiseLogStart,
    Truncate,
    TruncateFully,
)
from strandline.replication.offset_questions import fetch_leader_offsets
from strandline.replication.partition import Begin, Partition
from strandline.replication.settings import ReplicationSettings
from strandline.runtime.tasks import yield_to_loop
from strandline.runtime.world import World

logger = logging.getLogger(__name__)

# Then others have their turn: to check and write this much takes about a millisecond.
_BYTES_PER_TURN = 512 * 1024
_LOOKED_AT_PER_TURN = 200


class Following:
    """A partition that is followed in one leader epoch."""

    __slots__ = ("follower", "log", "partition", "started")

    def __init__(self, partition: Partition, log: PartitionLog, follower: Follower) -> None:
        self.partition = partition
        self.log = log
        self.follower = follower
        self.started = False

    @property
    def key(self) -> PartitionKey:
        return self.partition.topic_id, self.partition.topic_partition.partition


class FetcherContext(msgspec.Struct):
    """What the fetchers of a broker share."""

    broker_id: int
    world: World
    peers: Peers
    settings: ReplicationSettings
    registered_epoch: Callable[[int], int]
    """Of a broker, by committed metadata; -1 when it has no registration."""
    endpoint: Callable[[int], Endpoint | None]
    """Of another broker; None when it cannot be reached now."""
    removed: Callable[[list[Segment]], None]
    """Hears which segments a truncation has taken out of a log."""


class Fetcher:
    def __init__(self, leader_id: int, equipment: FetcherContext) -> None:
        self._leader_id = leader_id
        self._equipment = equipment
        settings = equipment.settings
        manners = Manners(settings.fetch_wait_max_ms, settings.fetch_min_bytes, settings.fetch_response_max_bytes)
        self._conversation = Conversation(equipment.broker_id, manners)
        self._followed: dict[PartitionKey, Following] = {}
        # Those that may want something else by now than what the conversation knows.
        self._to_look_at: dict[PartitionKey, None] = {}
        self._changed = asyncio.Event()
        # Whom the fetch under way was sent to: where, and under which broker epoch.
        self._asked: tuple[Endpoint, int] | None = None
        self._silent = False
        self._bytes_in_turn = 0

    def __len__(self) -> int:
        return len(self._followed)

    def follow(self, following: Following) -> None:
        self._followed[following.key] = following
        self._to_look_at[following.key] = None
        self._changed.set()

    def unfollow(self, key: PartitionKey) -> None:
        self._followed.pop(key, None)
        self._conversation.want(key, None)

    def on_brokers_changed(self) -> None:
        """The leader may be back, or somewhere else. If it was started anew, nobody is left who could answer: where its
        host went down, not even the connection would tell."""
        self._changed.set()
        if self._asked is not None:
            endpoint, epoch = self._asked
            if self._equipment.registered_epoch(self._leader_id) != epoch:
                self._equipment.peers.disconnect(endpoint)

    async def run(self) -> None:
        while True:
            self._changed.clear()
            await self._look_at_changed()
            endpoint = self._equipment.endpoint(self._leader_id)
            if not self._conversation.wanted or endpoint is None:
                await self._pause()
                continue
            response = await self._fetch(endpoint)
            if response is None:
                await self._trouble()
            else:
                await self._work_off(response)

    async def _look_at_changed(self) -> None:
        """Who wants nothing for now (delayed, or about to be cut) is looked at again in the next turn."""
        looked_at, self._to_look_at = self._to_look_at, {}
        for number, key in enumerate(looked_at):
            if number % _LOOKED_AT_PER_TURN == _LOOKED_AT_PER_TURN - 1:
                await yield_to_loop()
            following = self._followed.get(key)
            wanted = await self._prepare(following) if following is not None else None
            if following is None or not self._is_current(following):
                continue
            self._conversation.want(key, wanted)
            if wanted is None and not isinstance(following.follower.state, Failed):
                self._to_look_at[key] = None

    async def _prepare(self, following: Following) -> FetchPartition | None:
        """Its part in the next request, after everything that comes before."""
        if not following.started:
            following.started = True
            await self._perform(following, following.follower.start())
        if following.partition.is_truncating:
            return None
        if following.log.damage is not None:
            await self._perform(following, following.follower.mend())
        if following.follower.must_flush:
            await self._flush(following)
        return following.follower.wanted(following.key[1], self._equipment.world.clock.now_ms())

    async def _pause(self) -> None:
        """Until there is something new, or a delayed partition may be tried again."""
        try:
            async with asyncio.timeout(self._equipment.settings.fetch_backoff_ms / 1000):
                await self._changed.wait()
        except TimeoutError:
            return

    async def _fetch(self, endpoint: Endpoint) -> FetchResponse | None:
        registered_epoch = self._equipment.registered_epoch
        self._asked = endpoint, registered_epoch(self._leader_id)
        try:
            own_epoch = registered_epoch(self._equipment.broker_id)
            response = await self._call(endpoint, self._conversation.request(own_epoch))
            assert isinstance(response, FetchResponse)
            believed = self._conversation.on_answer(response)
        except (OSError, KafkaError) as error:
            self._conversation.begin_anew()
            if not self._silent:
                self._silent = True
                logger.warning("broker %d, which is followed, does not answer: %s", self._leader_id, error)
            return None
        finally:
            self._asked = None
        self._silent = False
        return response if believed else FetchResponse()

    async def _call(self, endpoint: Endpoint, request: Message) -> Message:
        return await self._equipment.peers.call(
            endpoint, request, timeout_ms=self._equipment.settings.socket_timeout_ms
        )

    async def _work_off(self, response: FetchResponse) -> None:
        to_flush: list[Following] = []
        answers = ((topic.topic_id, answer) for topic in response.responses for answer in topic.partitions)
        for number, (topic_id, answer) in enumerate(answers):
            if number % _LOOKED_AT_PER_TURN == _LOOKED_AT_PER_TURN - 1:
                await yield_to_loop()
            following = self._followed.get((topic_id, answer.partition_index))
            if following is None:
                continue
            self._to_look_at[following.key] = None
            # One that came while another's answer was under way has not asked yet, and is not answered either.
            now_ms = self._equipment.world.clock.now_ms()
            await self._perform(following, following.follower.on_answer(answer, now_ms))
            if following.follower.must_flush:
                to_flush.append(following)
        # Together, which is quicker than one by one when it is their turn to ask again.
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
                following.follower.on_fetch_failed(self._equipment.world.clock.now_ms())
            else:
                following.follower.on_log_failed(str(error))

    async def _perform_one(self, following: Following, effect: Effect) -> None:
        world, log = self._equipment.world, following.log
        match effect:
            case Append(records, offset):
                following.partition.append_as_follower(
                    memoryview(records),
                    leader_epoch=following.follower.leader_epoch,
                    offset=offset,
                    wall_ms=world.clock.wall_ms(),
                    now_ms=world.clock.now_ms(),
                )
                self._bytes_in_turn += len(records)
                if self._bytes_in_turn >= _BYTES_PER_TURN:
                    self._bytes_in_turn = 0
                    await yield_to_loop()
            case RaiseHighWatermark(offset):
                log.advance_high_watermark(offset)
            case RaiseLogStart(offset):
                log.delete_records_before(min(offset, log.high_watermark))
            case Truncate(offset):
                level = logging.WARNING if offset < log.high_watermark else logging.INFO
                logger.log(level, "%r, shown up to %d, is cut back to %d", log, log.high_watermark, offset)
                await self._cut(following, lambda log: log.begin_truncation(offset))
            case TruncateFully(offset):
                logger.warning("%r begins again, empty, at %d", log, offset)
                await self._cut(following, lambda log: log.begin_full_truncation(offset))
            case FetchLeaderOffsets():
                await self._ask(following)

    async def _cut(self, following: Following, begin: Begin) -> None:
        follower, offload = following.follower, self._equipment.world.offload
        self._equipment.removed(await following.partition.cut(begin, offload, follower.leader_epoch))
        follower.on_truncated()

    async def _ask(self, following: Following) -> None:
        follower = following.follower
        endpoint = self._equipment.endpoint(self._leader_id)
        if endpoint is None:
            raise KafkaError(ErrorCode.BROKER_NOT_AVAILABLE, f"broker {self._leader_id} cannot be reached")
        earliest, latest = await fetch_leader_offsets(
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
            following.follower.on_log_failed(str(error))

    async def _trouble(self) -> None:
        for number, key in enumerate(list(self._conversation.wanted)):
            if number % _LOOKED_AT_PER_TURN == _LOOKED_AT_PER_TURN - 1:
                await yield_to_loop()
            following = self._followed.get(key)
            if following is not None and following.follower.asked is not None:
                following.follower.on_fetch_failed(self._equipment.world.clock.now_ms())
                self._to_look_at[key] = None
