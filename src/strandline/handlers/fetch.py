"""Fetch (1), versions 4-18, for consumers and for followers. Left out: fetching from followers (KIP-392), and
throttling.

A request that finds fewer bytes than it wants waits on the watermarks of its partitions, without polling, and reads
again when they have risen by enough bytes, when one is lost, or when `max_wait_ms` has passed. A fetch in a follower's
session looks only at partitions with news (`replication/fetch_sessions`), however many the session has. Records are
slices of segment files: no byte of them is in memory before the socket sends it.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from strandline.handlers.context import BrokerContext, Call
from strandline.handlers.reachable_leaders import election_decided, leader_addresses
from strandline.log.cold_reads import ColdRead
from strandline.log.partition_log import PartitionLog
from strandline.log.reading import Read
from strandline.log.transaction_index import AbortedTransaction as Aborted
from strandline.model.errors import ErrorCode, KafkaError
from strandline.protocol.messages.fetch import (
    AbortedTransaction,
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionData,
)
from strandline.replication.fetch_sessions import FetchSession, RequestedPartition, requested_partitions
from strandline.replication.leader import Leader
from strandline.runtime.tasks import YieldCounter, yield_to_loop
from strandline.runtime.watermark import Wait, Watermark

_READ_UNCOMMITTED = 0
_READ_COMMITTED = 1
_CONSUMER = -1
# Kafka detects these before it reads the partition, and then leaves the list of aborted transactions empty.
_UNKNOWN = (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID)
_LEADER_HINT_ERRORS = (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH)


class Reader(msgspec.Struct):
    """How one request reads: up to which offset, and how many more bytes."""

    version: int
    replica_id: int
    replica_epoch: int
    isolation_level: int
    bytes_left: int
    after_wait: bool = False
    """The request reads again after its wait: the leaders have counted its offsets already."""
    session: FetchSession | None = None
    """The session of an incremental fetch of a follower, which skips partitions without news."""
    bytes_read: int = 0
    respond_now: bool = False

    @property
    def is_follower(self) -> bool:
        return self.replica_id >= 0

    def upper_offset(self, leader: Leader, log: PartitionLog) -> int:
        if self.replica_id != _CONSUMER:
            return log.log_end_offset
        if self.isolation_level == _READ_COMMITTED:
            return leader.last_stable_offset.value
        return leader.high_watermark.value

    def watermark(self, leader: Leader) -> Watermark:
        """What must rise before there is more to read."""
        if self.is_follower:
            return leader.log_end
        return leader.last_stable_offset if self.isolation_level == _READ_COMMITTED else leader.high_watermark


async def handle_fetch(broker: BrokerContext, call: Call, request: FetchRequest) -> FetchResponse:
    if request.isolation_level not in (_READ_UNCOMMITTED, _READ_COMMITTED):
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"there is no isolation level {request.isolation_level}")
    now_ms = broker.world.clock.now_ms()
    if call.version < 7:
        request.session_epoch = -1
    if call.offload_encoding:
        named = await broker.world.offload.run(requested_partitions, request)
    else:
        named = requested_partitions(request)
    session, requested = broker.fetch_sessions.begin(request, named, call.version, now_ms)
    request.topics, request.forgotten_topics_data = [], []  # a request that waits keeps only what it waits for
    reader = _reader(broker, call, request)
    if session is not None and reader.is_follower and request.session_epoch > 0 and request.min_bytes <= 1:
        return await _fetch_news(broker, call, request, session, reader)
    results = await _read_all(broker, call, reader, requested)
    min_bytes = min(request.min_bytes, reader.bytes_left + reader.bytes_read)
    if not reader.respond_now and reader.bytes_read < min_bytes and requested and request.max_wait_ms > 0:
        call.park()
        await _wait_for_bytes(broker, call, reader, requested, min_bytes, request.max_wait_ms)
        reader = _reader(broker, call, request, after_wait=True)
        results = await _read_all(broker, call, reader, requested)
    if broker.lost_leaders and not reader.is_follower:
        leaders = (data.current_leader.leader_id for data in results)
        if await election_decided(broker, call, leaders):
            reader = _reader(broker, call, request, after_wait=True)
            results = await _read_all(broker, call, reader, requested)
    response = await _response(call, session, requested, results, full=request.session_epoch <= 0)
    if not reader.is_follower:
        _add_leader_endpoints(broker, call, response)
    return response


async def _fetch_news(
    broker: BrokerContext, call: Call, request: FetchRequest, session: FetchSession, reader: Reader
) -> FetchResponse:
    """An incremental fetch of a follower: reads the partitions with news, and waits for urgent news if they have
    none."""
    # Before the first read: news that arrive during it end the wait at once.
    seen = session.urgent_news.value
    reader.session = session
    requested = session.partitions_with_news(reader.replica_epoch)
    results = await _read_all(broker, call, reader, requested)
    if not reader.respond_now and reader.bytes_read < request.min_bytes and request.max_wait_ms > 0:
        call.park()
        wait = Wait(1)
        wait.reach(session.urgent_news, seen + 1)
        await wait.done(request.max_wait_ms)
        reader = _reader(broker, call, request, after_wait=True)
        reader.session = session
        requested = session.partitions_with_news(reader.replica_epoch)
        results = await _read_all(broker, call, reader, requested)
    return await _response(call, session, requested, results, full=False)


def _reader(broker: BrokerContext, call: Call, request: FetchRequest, *, after_wait: bool = False) -> Reader:
    if call.version >= 15:
        replica_id, replica_epoch = request.replica_state.replica_id, request.replica_state.replica_epoch
    else:
        replica_id, replica_epoch = request.replica_id, -1
    max_bytes = request.max_bytes
    if replica_id < 0:
        max_bytes = min(max_bytes, broker.config.get("fetch.max.bytes"))
    return Reader(call.version, replica_id, replica_epoch, request.isolation_level, max_bytes, after_wait)


async def _read_all(
    broker: BrokerContext, call: Call, reader: Reader, requested: list[RequestedPartition]
) -> list[PartitionData]:
    results = []
    yields = YieldCounter(call)
    for partition in requested:
        if yields.due():
            await yield_to_loop()
        try:
            results.append(await _read(broker, reader, partition))
        except KafkaError as error:
            reader.respond_now = True
            results.append(_failed(broker, reader, partition, error.code))
    return results


async def _read(broker: BrokerContext, reader: Reader, requested: RequestedPartition) -> PartitionData:
    partition, leader, log = await broker.partitions.find_leading(
        requested.topic,
        requested.topic_id,
        requested.partition,
        requested.current_leader_epoch,
        by_id=reader.version >= 13,
    )
    remote = leader.remote(reader.replica_id, reader.replica_epoch, requested.current_leader_epoch)
    diverging = leader.diverging_epoch(requested)
    if diverging is not None:
        reader.respond_now = True
    if remote is not None:
        counts = diverging is None and not reader.after_wait
        now_ms = broker.world.clock.now_ms() if counts else None
        if partition.on_follower_fetch(remote, requested, reader.replica_epoch, reader.session, now_ms):
            reader.respond_now = True
    data = PartitionData(
        partition_index=requested.partition,
        high_watermark=leader.high_watermark.value,
        last_stable_offset=leader.last_stable_offset.value,
        log_start_offset=log.log_start_offset,
        # Null, not empty, unless the client reads committed records only.
        aborted_transactions=[] if reader.isolation_level == _READ_COMMITTED else None,
        records=b"",
    )
    if diverging is not None:
        data.diverging_epoch = diverging
        return data
    upper = reader.upper_offset(leader, log)
    if requested.fetch_offset >= upper:
        if (
            remote is not None
            and reader.session is not None
            and leader.is_fully_caught_up(remote, reader.replica_epoch, requested.fetch_offset)
        ):
            reader.session.skip_until_news(requested, data)
        return data
    read = await _read_log(broker, reader, log, requested, upper)
    if read.slice is None:
        return data
    reader.bytes_read += len(read.slice)
    reader.bytes_left = max(0, reader.bytes_left - len(read.slice))
    data.records = read.slice
    if reader.isolation_level == _READ_COMMITTED:
        data.aborted_transactions = [
            AbortedTransaction(producer_id=aborted.producer_id, first_offset=aborted.first_offset)
            for aborted in await _aborted(broker, log, requested.fetch_offset, min(upper, read.upper_offset))
        ]
    return data


async def _read_log(
    broker: BrokerContext, reader: Reader, log: PartitionLog, requested: RequestedPartition, upper: int
) -> Read:
    """Records that were never checked in this process are checked first, in a thread."""
    while True:
        read = log.read(
            requested.fetch_offset,
            max_bytes=min(requested.max_bytes, reader.bytes_left),
            before_offset=upper,
            at_least_one=reader.bytes_read == 0,
        )
        if not isinstance(read, ColdRead):
            return read
        await broker.world.offload.run(read.load)


async def _aborted(broker: BrokerContext, log: PartitionLog, start: int, upper: int) -> list[Aborted]:
    while isinstance(aborted := log.aborted_transactions(start, upper), ColdRead):
        await broker.world.offload.run(aborted.load)
    return aborted


async def _wait_for_bytes(
    broker: BrokerContext,
    call: Call,
    reader: Reader,
    requested: list[RequestedPartition],
    min_bytes: int,
    max_wait_ms: int,
) -> None:
    """Waits until the partitions have `min_bytes` to read, one of them is lost, or `max_wait_ms` has passed."""
    wait = Wait(min_bytes)
    yields = YieldCounter(call)
    for each in requested:
        if yields.due():
            await yield_to_loop()
        try:
            partition = broker.partitions.find(each.topic, each.topic_id, each.partition, by_id=call.version >= 13)
            leader = partition.leading()
        except KafkaError:
            return
        log = partition.log
        if log is None:  # the topic was recreated after the read
            return
        wait.collect(reader.watermark(leader), _readable_bytes(log, each, reader, leader))
    await wait.done(max_wait_ms)


def _readable_bytes(
    log: PartitionLog, requested: RequestedPartition, reader: Reader, leader: Leader
) -> Callable[[], int]:
    def measure() -> int:
        upper = reader.upper_offset(leader, log)
        return min(requested.max_bytes, log.bytes_between(requested.fetch_offset, upper))

    return measure


def _failed(broker: BrokerContext, reader: Reader, requested: RequestedPartition, code: ErrorCode) -> PartitionData:
    if code == ErrorCode.KAFKA_STORAGE_ERROR and reader.version <= 5:
        code = ErrorCode.NOT_LEADER_OR_FOLLOWER
    data = PartitionData(
        partition_index=requested.partition,
        error_code=code,
        high_watermark=-1,
        last_stable_offset=-1,
        log_start_offset=-1,
        aborted_transactions=[] if code in _UNKNOWN else None,
        records=b"",
    )
    if code in _LEADER_HINT_ERRORS and reader.version >= 16:
        info = broker.partitions.committed_info(requested.topic, requested.topic_id, requested.partition)
        if info is not None:
            data.current_leader = LeaderIdAndEpoch(leader_id=info.leader, leader_epoch=info.leader_epoch)
    return data


async def _response(
    call: Call,
    session: FetchSession | None,
    requested: list[RequestedPartition],
    results: list[PartitionData],
    *,
    full: bool,
) -> FetchResponse:
    topics: list[FetchableTopicResponse] = []
    yields = YieldCounter(call)
    for partition, data in zip(requested, results, strict=True):
        if yields.due():
            await yield_to_loop()
        must_send = session is None or session.must_send(partition, data)
        if not full and not must_send:
            continue
        last = topics[-1] if topics else None
        if last is None or last.topic_id != partition.topic_id or last.topic != partition.topic:
            last = FetchableTopicResponse(topic=partition.topic, topic_id=partition.topic_id)
            topics.append(last)
        last.partitions.append(data)
    return FetchResponse(session_id=session.id if session is not None else 0, responses=topics)


def _add_leader_endpoints(broker: BrokerContext, call: Call, response: FetchResponse) -> None:
    """KIP-951: the endpoints of the current leaders, so that the consumer need not request metadata."""
    leaders = [
        data.current_leader.leader_id
        for topic in response.responses
        for data in topic.partitions
        if data.current_leader.leader_id >= 0
    ]
    if leaders:
        response.node_endpoints = [
            NodeEndpoint(*address) for address in leader_addresses(broker, call.listener, leaders)
        ]
