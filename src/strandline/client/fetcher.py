"""Fetches records of assigned partitions: the shell around `core/fetch_session` and `core/fetched_records`.

    async with Fetcher(router) as fetcher:
        fetcher.assign(TopicPartition("orders", 0), 0)
        for fetched in await fetcher.poll(500):
            for record in fetched.records(): ...

At most one fetch per broker is in flight, on a connection of its own. A partition is not fetched again before its
records were returned by `poll`, so a slow reader holds at most one response per broker.
"""

from __future__ import annotations

import asyncio
from collections import deque
from types import TracebackType
from typing import Self

from strandline.client.admin.offsets import list_offsets
from strandline.client.core.cluster_metadata import BrokerMetadata
from strandline.client.core.fetch_session import FetchSessionHandler, SessionKey
from strandline.client.core.fetched_records import FetchedPartition, FetchPosition, read_fetched_records
from strandline.client.errors import error_of
from strandline.client.routing import WRONG_LEADER, Router
from strandline.client.settings import FetcherSettings
from strandline.model.errors import ErrorCode, KafkaError, code_of
from strandline.model.ids import ZERO_UUID, Endpoint, TopicPartition
from strandline.protocol.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    PartitionData,
)
from strandline.protocol.messages.list_offsets import EARLIEST, LATEST
from strandline.runtime.tasks import TaskGroup

BY_TOPIC_ID = 13
"""The first version of Fetch that identifies topics by id."""
LANE = "fetch"
# The leader cannot read its log. Another leader may be elected that can, so these are retried a few times.
DAMAGED = {
    ErrorCode.CORRUPT_MESSAGE: "the broker found damaged records there and does not return them",
    ErrorCode.KAFKA_STORAGE_ERROR: "the broker cannot read them from its disk",
}
MAX_DAMAGED_ATTEMPTS = 5


class Fetcher:
    def __init__(self, router: Router, settings: FetcherSettings | None = None, lane: str = LANE) -> None:
        """Fetchers that share a lane share connections, so that their long polls wait for each other."""
        self._router = router
        self._lane = lane
        self._settings = settings or FetcherSettings()
        self._positions: dict[TopicPartition, FetchPosition] = {}
        self._sessions: dict[int, FetchSessionHandler] = {}
        self._busy: dict[int, None] = {}
        self._ready: deque[FetchedPartition] = deque()
        self._tasks = TaskGroup()
        self._arrived = asyncio.Event()
        self._interrupted = False
        self._fetch_error: KafkaError | None = None

    @property
    def last_error(self) -> KafkaError | None:
        """Why no records arrive at the moment, if there is a reason; `poll` keeps retrying."""
        return self._fetch_error or next(
            (each.last_error for each in self._positions.values() if each.last_error), None
        )

    async def __aenter__(self) -> Self:
        await self._tasks.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._tasks.cancel()
        await self._tasks.__aexit__(None, None, None)

    def assign(self, partition: TopicPartition, offset: int) -> None:
        """Fetches this partition too, from `offset`; for an assigned partition this is a seek."""
        self.unassign(partition)
        self._positions[partition] = FetchPosition(offset)

    def unassign(self, partition: TopicPartition) -> None:
        self._positions.pop(partition, None)
        self._ready = deque(each for each in self._ready if each.partition != partition)

    def position(self, partition: TopicPartition) -> FetchPosition:
        return self._positions[partition]

    @property
    def assigned(self) -> list[TopicPartition]:
        return list(self._positions)

    def interrupt(self) -> None:
        """The current or next `poll` returns at once, also without records."""
        self._interrupted = True
        self._arrived.set()

    async def poll(self, timeout_ms: int) -> list[FetchedPartition]:
        """Records that have arrived, or that arrive within the timeout. Raises errors that retries cannot solve."""
        loop = asyncio.get_running_loop()
        deadline_ms = self._router.now_ms() + timeout_ms
        while True:
            self._raise_errors()
            if self._ready:
                return self._take_ready()
            remaining_ms = deadline_ms - self._router.now_ms()
            if remaining_ms <= 0 or self._interrupted:
                self._interrupted = False
                return []
            self._arrived.clear()
            await self._fetch_from_idle_brokers()
            if self._ready or self._arrived.is_set():
                continue
            wake_ms = min(remaining_ms, self._shortest_backoff_ms())
            timer = loop.call_later(wake_ms / 1000, self._arrived.set)
            try:
                await self._arrived.wait()
            finally:
                timer.cancel()

    def _take_ready(self) -> list[FetchedPartition]:
        taken, self._ready = list(self._ready), deque()
        for fetched in taken:
            position = self._positions[fetched.partition]
            position.buffered = False
            position.offset = fetched.next_offset
        return [fetched for fetched in taken if fetched.batches]

    def _raise_errors(self) -> None:
        for position in self._positions.values():
            if position.error is not None:
                error, position.error = position.error, None
                raise error

    def _shortest_backoff_ms(self) -> int:
        now_ms = self._router.now_ms()
        waits = [each.not_before_ms - now_ms for each in self._positions.values() if each.not_before_ms > now_ms]
        return min(waits, default=1 << 30)

    async def _fetch_from_idle_brokers(self) -> None:
        now_ms = self._router.now_ms()
        idle = [
            partition
            for partition, position in self._positions.items()
            if not position.buffered and position.not_before_ms <= now_ms
        ]
        try:
            leaders = await self._router.leaders(idle)
        except KafkaError as error:
            if not error.code.retriable:
                raise
            self._fetch_error = error
            leaders = {}
        by_leader: dict[int, list[TopicPartition]] = {}
        for partition in idle:
            if partition not in leaders:
                self._without_leader(partition)
            elif leaders[partition] not in self._busy:
                by_leader.setdefault(leaders[partition], []).append(partition)
        for leader, partitions in by_leader.items():
            self._busy[leader] = None
            self._tasks.start(self._fetch(leader, partitions), name=f"fetch from {leader}")

    def _without_leader(self, partition: TopicPartition) -> None:
        topic = self._router.metadata.topics.get(partition.topic)
        if topic is None or topic.error:
            code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if topic is None else topic.error
            self._fetch_error = self._fetch_error or KafkaError(code, f"topic {partition.topic!r} does not exist")
        elif partition.partition not in topic.partitions:
            why = f"topic {partition.topic!r} has partitions 0 to {len(topic.partitions) - 1}"
            self._positions[partition].error = KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, why)
        else:
            why = f"{partition} has no leader at the moment"
            self._positions[partition].last_error = KafkaError(ErrorCode.LEADER_NOT_AVAILABLE, why)
        self._back_off(partition)

    def _back_off(self, partition: TopicPartition, attempts: int = 0) -> None:
        position = self._positions.get(partition)
        if position is not None:
            settings = self._router.settings
            pause_ms = min(settings.retry_backoff_ms << min(attempts, 16), settings.retry_backoff_max_ms)
            position.not_before_ms = self._router.now_ms() + pause_ms

    async def _fetch(self, leader: int, partitions: list[TopicPartition]) -> None:
        session = self._sessions.setdefault(leader, FetchSessionHandler(enabled=self._settings.use_sessions))
        requested = {each: self._positions[each].offset for each in partitions if each in self._positions}
        try:
            response = await self._send(leader, session, self._wanted(partitions))
        except KafkaError as error:
            session.reset()
            for partition in partitions:
                self._router.metadata.on_wrong_leader(partition.topic)
                self._back_off(partition)
            self._fetch_error = error
            if not error.code.retriable and partitions[0] in self._positions:
                self._positions[partitions[0]].error = error
        else:
            self._fetch_error = None
            await self._on_response(response, requested)
        finally:
            self._busy.pop(leader, None)
            self._arrived.set()

    def _wanted(self, partitions: list[TopicPartition]) -> dict[SessionKey, FetchPartition]:
        metadata = self._router.metadata
        wanted = {}
        for partition in partitions:
            position = self._positions.get(partition)
            leader = metadata.leader_of(partition)
            if position is not None and leader is not None:
                wanted[metadata.id_of(partition.topic), partition.topic, partition.partition] = FetchPartition(
                    partition=partition.partition,
                    current_leader_epoch=leader[1],
                    fetch_offset=position.offset,
                    partition_max_bytes=self._settings.partition_max_bytes,
                )
        return wanted

    async def _send(
        self, leader: int, session: FetchSessionHandler, wanted: dict[SessionKey, FetchPartition]
    ) -> FetchResponse:
        connection = await self._router.broker(leader, self._lane)
        by_id = all(topic_id != ZERO_UUID for topic_id, _, _ in wanted)
        version = connection.versions.newest_common_version(FetchRequest, None if by_id else BY_TOPIC_ID - 1)
        request = FetchRequest(
            max_wait_ms=self._settings.max_wait_ms,
            min_bytes=self._settings.min_bytes,
            max_bytes=self._settings.max_bytes,
            isolation_level=int(self._settings.read_committed),
        )
        session.want_only(wanted)
        session.fill(request)
        timeout_ms = self._settings.max_wait_ms + self._router.settings.request_timeout_ms
        response = await connection.call(request, FetchResponse, version=version, timeout_ms=timeout_ms)
        session.on_response(response)
        if response.error_code:
            raise error_of(response.error_code, f"fetching from broker {leader}")
        return response

    async def _on_response(self, response: FetchResponse, requested: dict[TopicPartition, int]) -> None:
        metadata = self._router.metadata
        for endpoint in response.node_endpoints:
            metadata.brokers[endpoint.node_id] = BrokerMetadata(
                endpoint.node_id, Endpoint(endpoint.host, endpoint.port), endpoint.rack
            )
        included = set()
        for topic in response.responses:
            name = topic.topic or metadata.names.get(topic.topic_id, "")
            for data in topic.partitions:
                partition = TopicPartition(name, data.partition_index)
                included.add(partition)
                position = self._positions.get(partition)
                # Ignores a response to a fetch from before the last `assign` or `unassign`.
                if position is not None and requested.get(partition) == position.offset and not position.buffered:
                    await self._on_partition_data(partition, position, data)
        for partition in requested:
            # A fetch session omits partitions without new records; errors are always included.
            if partition not in included and partition in self._positions:
                self._positions[partition].on_served()

    async def _on_partition_data(self, partition: TopicPartition, position: FetchPosition, data: PartitionData) -> None:
        code = code_of(data.error_code)
        if code != ErrorCode.NONE:
            await self._on_error(partition, position, data, code)
            return
        position.on_served()
        position.high_watermark = data.high_watermark
        position.last_stable_offset = data.last_stable_offset
        position.log_start_offset = data.log_start_offset
        try:
            fetched = read_fetched_records(
                partition,
                data,
                position.offset,
                read_committed=self._settings.read_committed,
                check_crcs=self._settings.check_crcs,
                keep_control=self._settings.keep_control_batches,
            )
        except KafkaError as error:
            position.error = error
            return
        if fetched.next_offset > position.offset:
            position.buffered = True
            self._ready.append(fetched)

    async def _on_error(
        self, partition: TopicPartition, position: FetchPosition, data: PartitionData, code: ErrorCode
    ) -> None:
        if code == ErrorCode.OFFSET_OUT_OF_RANGE:
            await self._reset(partition, position)
        elif code in DAMAGED and position.failed_attempts + 1 >= MAX_DAMAGED_ATTEMPTS:
            position.failed_attempts = 0
            position.error = KafkaError(code, f"{partition} from offset {position.offset}: {DAMAGED[code]}")
        elif code in WRONG_LEADER or code.retriable:
            leader = data.current_leader
            if not self._router.metadata.on_leader_hint(partition, leader.leader_id, leader.leader_epoch, None):
                self._router.metadata.on_wrong_leader(partition.topic)
                self._back_off(partition, position.failed_attempts)
                position.failed_attempts += 1
                why = DAMAGED.get(code, "the broker cannot serve it at the moment")
                position.last_error = KafkaError(
                    code, f"{partition} from offset {position.offset}: {why} ({code.name})"
                )
        else:
            position.error = error_of(code, f"fetching {partition} from offset {position.offset}")

    async def _reset(self, partition: TopicPartition, position: FetchPosition) -> None:
        if self._settings.out_of_range == "error":
            why = f"{partition} does not hold offset {position.offset}"
            position.error = KafkaError(ErrorCode.OFFSET_OUT_OF_RANGE, why)
            return
        timestamp = EARLIEST if self._settings.out_of_range == "earliest" else LATEST
        listed = (await list_offsets(self._router, {partition: timestamp}))[partition]
        if isinstance(listed, KafkaError):
            self._back_off(partition)
        else:
            position.offset = listed.offset
