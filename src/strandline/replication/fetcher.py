"""The shell around the followers of one leader: one fetch in flight, shared by all partitions that the leader leads.

`replication/broker_replication` owns one fetcher for each leader and assigns the partitions. A new leader epoch may
take a partition away while a response is awaited, so every response is matched with the followed partition that
requested it; a response that comes too late is dropped.

A round costs what has changed: a partition that the response does not name is fetched as before, without any work here.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

import msgspec

from strandline.client.core.fetch_session import FetchSessionHandler
from strandline.client.errors import BrokerUnreachable, ConnectionLost
from strandline.client.peers import Peers
from strandline.log.partition_log import PartitionLog
from strandline.log.segment import Segment
from strandline.metadata.values import PartitionKey
from strandline.model.errors import ErrorCode, KafkaError, code_of
from strandline.model.ids import Endpoint
from strandline.protocol.messages.fetch import FetchPartition, FetchRequest, FetchResponse, ReplicaState
from strandline.protocol.messages.list_offsets import (
    EARLIEST,
    LATEST,
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from strandline.protocol.types import Message
from strandline.replication.follower import (
    Append,
    Delayed,
    Effect,
    Failed,
    FetchLeaderOffsets,
    Follower,
    RaiseHighWatermark,
    RaiseLogStart,
    Truncate,
    TruncateFully,
)
from strandline.replication.partition import BeginTruncation, Partition
from strandline.replication.settings import ReplicationSettings
from strandline.runtime.tasks import YieldCounter, yield_to_loop
from strandline.runtime.world import World

logger = logging.getLogger(__name__)

# Checking and writing this much takes about a millisecond.
_BYTES_PER_YIELD = 512 * 1024
# The leader has no such session any more: the next request, which creates one, may follow at once.
_SESSION_LOST = frozenset(
    {
        ErrorCode.FETCH_SESSION_ID_NOT_FOUND,
        ErrorCode.INVALID_FETCH_SESSION_EPOCH,
        ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR,
    }
)


class FollowedPartition:
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


class FetcherContext(msgspec.Struct, frozen=True):
    """What the fetchers of a broker share."""

    broker_id: int
    world: World
    peers: Peers
    settings: ReplicationSettings
    registered_epoch: Callable[[int], int]
    """The broker epoch in committed metadata; -1 when the broker is not registered."""
    endpoint: Callable[[int], Endpoint | None]
    """The endpoint of another broker; None when it has none at the moment."""
    removed: Callable[[list[Segment]], None]
    """Receives the segments that a truncation has removed from a log."""
    connection_lost: Callable[[int], None]
    """Receives the id of a leader when the first fetch after a successful one fails for lack of a connection."""


class Fetcher:
    def __init__(self, leader_id: int, context: FetcherContext) -> None:
        self._leader_id = leader_id
        self._context = context
        self._session = FetchSessionHandler()
        self._followed: dict[PartitionKey, FollowedPartition] = {}
        self._changed: dict[PartitionKey, None] = {}
        """Partitions that may have to be fetched differently from what the session says."""
        self._woken = asyncio.Event()
        self._in_flight: tuple[Endpoint, int] | None = None
        """The endpoint and the broker epoch of the leader that the fetch in flight was sent to."""
        self._failing = False
        self._bytes_since_yield = 0
        self._delay_ms: int | None = None
        """How long until a delayed partition may be fetched again; neither a wait nor a fetch takes longer."""

    def __len__(self) -> int:
        return len(self._followed)

    def follow(self, followed: FollowedPartition) -> None:
        self._followed[followed.key] = followed
        self._changed[followed.key] = None
        self._woken.set()

    def unfollow(self, key: PartitionKey) -> None:
        self._followed.pop(key, None)
        self._want(key, None)

    def on_brokers_changed(self) -> None:
        """The leader may have a new endpoint or a new registration. If it has restarted, the fetch in flight will never
        be answered, and where its host failed the connection does not report that: it is closed."""
        self._woken.set()
        if self._in_flight is not None:
            endpoint, epoch = self._in_flight
            if self._context.registered_epoch(self._leader_id) != epoch:
                self._context.peers.disconnect(endpoint)

    async def run(self) -> None:
        while True:
            self._woken.clear()
            await self._prepare_changed()
            endpoint = self._context.endpoint(self._leader_id)
            if not self._session.wanted or endpoint is None:
                await self._wait_for_changes()
                continue
            response = await self._fetch(endpoint)
            if response is None:
                await self._on_fetch_failed()
            else:
                await self._process(response)

    def _want(self, key: PartitionKey, wanted: FetchPartition | None) -> None:
        self._session.want((key[0], "", key[1]), wanted)

    async def _prepare_changed(self) -> None:
        """A partition that cannot be fetched now (delayed, or to be truncated) is prepared again in the next round."""
        changed, self._changed = self._changed, {}
        self._delay_ms = None
        yields = YieldCounter()
        for key in changed:
            if yields.due():
                await yield_to_loop()
            followed = self._followed.get(key)
            wanted = await self._prepare(followed) if followed is not None else None
            if followed is None or not self._is_current(followed):
                continue
            self._want(key, wanted)
            if wanted is None and not isinstance(followed.follower.state, Failed):
                self._changed[key] = None
                if isinstance(followed.follower.state, Delayed):
                    left_ms = followed.follower.state.until_ms - self._context.world.clock.now_ms()
                    self._delay_ms = max(1, left_ms if self._delay_ms is None else min(self._delay_ms, left_ms))

    async def _prepare(self, followed: FollowedPartition) -> FetchPartition | None:
        """What to fetch next, after everything that has to be done before."""
        if not followed.started:
            followed.started = True
            await self._perform(followed, followed.follower.start())
        if followed.partition.is_truncating:
            return None
        if followed.log.damaged_at is not None:
            await self._perform(followed, followed.follower.truncate_damage())
        if followed.follower.must_flush:
            await self._flush(followed)
        return followed.follower.next_fetch(followed.key[1], self._context.world.clock.now_ms())

    async def _wait_for_changes(self) -> None:
        """Waits until something changed, or a delayed partition may be fetched again."""
        try:
            async with asyncio.timeout((self._delay_ms or self._context.settings.fetch_backoff_ms) / 1000):
                await self._woken.wait()
        except TimeoutError:
            return

    async def _fetch(self, endpoint: Endpoint) -> FetchResponse | None:
        """Sends a fetch; None when it failed."""
        self._in_flight = endpoint, self._context.registered_epoch(self._leader_id)
        try:
            response = await self._call(endpoint, self._request())
            assert isinstance(response, FetchResponse)
            self._session.on_response(response)
            if response.error_code not in (ErrorCode.NONE, *_SESSION_LOST):
                raise KafkaError(code_of(response.error_code), "the leader rejected the fetch")
        except (OSError, KafkaError) as error:
            self._session.reset()
            if not self._failing:
                self._failing = True
                if isinstance(error, (ConnectionLost, BrokerUnreachable, ConnectionError)):
                    self._context.connection_lost(self._leader_id)
                logger.warning("fetching from leader %d fails: %s", self._leader_id, error)
            return None
        finally:
            self._in_flight = None
        self._failing = False
        return response

    def _request(self) -> FetchRequest:
        context, settings = self._context, self._context.settings
        broker_epoch = context.registered_epoch(context.broker_id)
        request = FetchRequest(
            replica_state=ReplicaState(replica_id=context.broker_id, replica_epoch=broker_epoch),
            max_wait_ms=min(settings.fetch_wait_max_ms, self._delay_ms or settings.fetch_wait_max_ms),
            min_bytes=settings.fetch_min_bytes,
            max_bytes=settings.fetch_response_max_bytes,
        )
        self._session.fill(request)
        return request

    async def _call(self, endpoint: Endpoint, request: Message) -> Message:
        return await self._context.peers.call(endpoint, request, timeout_ms=self._context.settings.socket_timeout_ms)

    async def _process(self, response: FetchResponse) -> None:
        to_flush: list[FollowedPartition] = []
        yields = YieldCounter()
        for topic_id, data in ((topic.topic_id, data) for topic in response.responses for data in topic.partitions):
            if yields.due():
                await yield_to_loop()
            followed = self._followed.get((topic_id, data.partition_index))
            if followed is None:
                continue
            self._changed[followed.key] = None
            # A partition that was added while the response was awaited has not fetched yet, and ignores the response.
            now_ms = self._context.world.clock.now_ms()
            await self._perform(followed, followed.follower.on_response(data, now_ms))
            if followed.follower.must_flush:
                to_flush.append(followed)
        # In parallel, which is faster than one by one before each one's next fetch.
        await asyncio.gather(*(self._flush(followed) for followed in to_flush))

    def _is_current(self, followed: FollowedPartition) -> bool:
        return self._followed.get(followed.key) is followed

    async def _perform(self, followed: FollowedPartition, effects: list[Effect]) -> None:
        try:
            for effect in effects:
                if not self._is_current(followed):
                    return
                await self._perform_one(followed, effect)
        except (OSError, KafkaError) as error:
            if not self._is_current(followed):
                return
            if followed.log.health.is_online:
                logger.warning("%r cannot follow broker %d for now: %s", followed.log, self._leader_id, error)
                followed.follower.on_fetch_failed(self._context.world.clock.now_ms())
            else:
                followed.follower.on_log_failed(str(error))

    async def _perform_one(self, followed: FollowedPartition, effect: Effect) -> None:
        world, log = self._context.world, followed.log
        match effect:
            case Append(records, offset):
                followed.partition.append_as_follower(
                    memoryview(records),
                    leader_epoch=followed.follower.leader_epoch,
                    offset=offset,
                    wall_ms=world.clock.wall_ms(),
                    now_ms=world.clock.now_ms(),
                )
                self._bytes_since_yield += len(records)
                if self._bytes_since_yield >= _BYTES_PER_YIELD:
                    self._bytes_since_yield = 0
                    await yield_to_loop()
            case RaiseHighWatermark(offset):
                log.advance_high_watermark(offset)
            case RaiseLogStart(offset):
                log.delete_records_before(min(offset, log.high_watermark))
            case Truncate(offset):
                level = logging.WARNING if offset < log.high_watermark else logging.INFO
                logger.log(level, "%r with high watermark %d is truncated to %d", log, log.high_watermark, offset)
                await self._truncate(followed, lambda log: log.begin_truncation(offset))
            case TruncateFully(offset):
                logger.warning("%r is truncated fully and starts at %d", log, offset)
                await self._truncate(followed, lambda log: log.begin_full_truncation(offset))
            case FetchLeaderOffsets():
                await self._fetch_leader_offsets(followed)

    async def _truncate(self, followed: FollowedPartition, begin: BeginTruncation) -> None:
        follower, offload = followed.follower, self._context.world.offload
        self._context.removed(await followed.partition.truncate(begin, offload, follower.leader_epoch))
        follower.on_truncated()

    async def _fetch_leader_offsets(self, followed: FollowedPartition) -> None:
        earliest = await self._list_offset(followed, EARLIEST)
        latest = await self._list_offset(followed, LATEST)
        if self._is_current(followed):
            await self._perform(followed, followed.follower.on_leader_offsets(earliest, latest))

    async def _list_offset(self, followed: FollowedPartition, timestamp: int) -> int:
        endpoint = self._context.endpoint(self._leader_id)
        if endpoint is None:
            raise KafkaError(ErrorCode.BROKER_NOT_AVAILABLE, f"broker {self._leader_id} has no endpoint")
        topic_partition = followed.partition.topic_partition
        wanted = ListOffsetsPartition(
            partition_index=topic_partition.partition,
            current_leader_epoch=followed.follower.leader_epoch,
            timestamp=timestamp,
        )
        topic = ListOffsetsTopic(name=topic_partition.topic, partitions=[wanted])
        request = ListOffsetsRequest(replica_id=self._context.broker_id, topics=[topic])
        response = await self._call(endpoint, request)
        assert isinstance(response, ListOffsetsResponse)
        listed = response.topics[0].partitions[0]
        if listed.error_code != ErrorCode.NONE:
            raise KafkaError(code_of(listed.error_code), f"the leader rejected ListOffsets for {topic_partition}")
        return listed.offset

    async def _flush(self, followed: FollowedPartition) -> None:
        try:
            await self._context.world.offload.run(followed.log.flush)
        except KafkaError as error:
            followed.follower.on_log_failed(str(error))

    async def _on_fetch_failed(self) -> None:
        yields = YieldCounter()
        for topic_id, _, index in list(self._session.wanted):
            if yields.due():
                await yield_to_loop()
            followed = self._followed.get((topic_id, index))
            if followed is not None and followed.follower.last_fetch is not None:
                followed.follower.on_fetch_failed(self._context.world.clock.now_ms())
                self._changed[followed.key] = None
