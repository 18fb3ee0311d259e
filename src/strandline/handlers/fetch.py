"""Fetch (1), versions 4-18, for consumers and for followers. Left out: reading from followers (KIP-392), and throttles.

A request that finds too little is parked on the watermarks of its partitions, without polling, and reads again when
they have risen by enough bytes, when one is lost, or when its time is up. Of a follower's session only those partitions
are looked at that may have news (`replication/fetch_sessions`), however many it has. Records are slices of segment
files: no
byte of them is in memory before the socket wants it.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from strandline.handlers.context import BrokerContext, Call
from strandline.handlers.reachable_leaders import leader_addresses
from strandline.log.cold_reads import ColdRead
from strandline.log.partition_log import PartitionLog
from strandline.log.reading import Read
from strandline.log.transaction_index import AbortedTransaction as Aborted
from strandline.model.errors import ErrorCode, KafkaError
from strandline.protocol.messages.fetch import (
    AbortedTransaction,
    EpochEndOffset,
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionData,
)
from strandline.replication.fetch_sessions import FetchSession, Wanted, wanted_by
from strandline.replication.leader import Leader
from strandline.replication.partition import Partition
from strandline.replication.remote import RemoteReplica
from strandline.runtime.tasks import YieldCounter, yield_to_loop
from strandline.runtime.watermark import Wait, Watermark

_READ_UNCOMMITTED = 0
_READ_COMMITTED = 1
_CONSUMER = -1
# Kafka refuses these before it looks at the partition, and then leaves the list of aborted transactions empty.
_UNKNOWN = (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID)
_LEADER_HINT_ERRORS = (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH)


class Reader(msgspec.Struct):
    """How one request reads: what it may see, and how many bytes are left for it."""

    version: int
    replica_id: int
    replica_epoch: int
    isolation_level: int
    bytes_left: int
    # The same request, after it has waited: what it says about its sender is known already.
    again: bool = False
    # Of a follower that asks for what has changed: where those rest that have nothing to say or to hear.
    session: FetchSession | None = None
    bytes_read: int = 0
    must_answer: bool = False

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
        """What must rise before there is more to see."""
        if self.is_follower:
            return leader.log_end
        return leader.last_stable_offset if self.isolation_level == _READ_COMMITTED else leader.high_watermark


async def handle_fetch(broker: BrokerContext, call: Call, request: FetchRequest) -> FetchResponse:
    if request.isolation_level not in (_READ_UNCOMMITTED, _READ_COMMITTED):
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"there is no isolation level {request.isolation_level}")
    now_ms = broker.world.clock.now_ms()
    if call.version < 7:
        request.session_epoch = -1
    named = await broker.world.offload.run(wanted_by, request) if call.offload_encoding else wanted_by(request)
    session, wanted = broker.fetch_sessions.begin(request, named, call.version, now_ms)
    request.topics, request.forgotten_topics_data = [], []  # a request that waits keeps no more than it waits for
    reader = _reader(broker, call, request)
    if session is not None and reader.is_follower and request.session_epoch > 0 and request.min_bytes <= 1:
        return await _tell_follower(broker, call, request, session, reader)
    answers = await _read_all(broker, call, reader, wanted)
    min_bytes = min(request.min_bytes, reader.bytes_left + reader.bytes_read)
    if not reader.must_answer and reader.bytes_read < min_bytes and wanted and request.max_wait_ms > 0:
        call.park()
        await _until_enough(broker, call, reader, wanted, min_bytes, request.max_wait_ms)
        reader = _reader(broker, call, request, again=True)
        answers = await _read_all(broker, call, reader, wanted)
    response = await _response(call, session, wanted, answers, full=request.session_epoch <= 0)
    if not reader.is_follower:
        _tell_leaders(broker, call, response)
    return response


async def _tell_follower(
    broker: BrokerContext, call: Call, request: FetchRequest, session: FetchSession, reader: Reader
) -> FetchResponse:
    """Of its session a follower hears what is news. Only those are looked at that may have any."""
    # Before they are looked at: what moves meanwhile is not to be waited for.
    calls = session.calls.value
    reader.session = session
    wanted = session.partitions_with_news(reader.replica_epoch)
    answers = await _read_all(broker, call, reader, wanted)
    if not reader.must_answer and reader.bytes_read < request.min_bytes and request.max_wait_ms > 0:
        call.park()
        await session.called(calls, request.max_wait_ms)
        reader = _reader(broker, call, request, again=True)
        reader.session = session
        wanted = session.partitions_with_news(reader.replica_epoch)
        answers = await _read_all(broker, call, reader, wanted)
    return await _response(call, session, wanted, answers, full=False)


def _reader(broker: BrokerContext, call: Call, request: FetchRequest, *, again: bool = False) -> Reader:
    if call.version >= 15:
        replica_id, replica_epoch = request.replica_state.replica_id, request.replica_state.replica_epoch
    else:
        replica_id, replica_epoch = request.replica_id, -1
    max_bytes = request.max_bytes
    if replica_id < 0:
        max_bytes = min(max_bytes, broker.settings.get("fetch.max.bytes"))
    return Reader(call.version, replica_id, replica_epoch, request.isolation_level, max_bytes, again)


async def _read_all(broker: BrokerContext, call: Call, reader: Reader, wanted: list[Wanted]) -> list[PartitionData]:
    answers = []
    yields = YieldCounter(call)
    for one in wanted:
        if yields.due():
            await yield_to_loop()
        try:
            answers.append(await _read(broker, reader, one))
        except KafkaError as error:
            reader.must_answer = True
            answers.append(_refused(broker, reader, one, error.code))
    return answers


async def _read(broker: BrokerContext, reader: Reader, wanted: Wanted) -> PartitionData:
    partition, leader, log = await _leading(broker, reader, wanted)
    remote = leader.remote(reader.replica_id, reader.replica_epoch, wanted.current_leader_epoch)
    diverging = _divergence(log, wanted)
    if diverging is None:
        _check_range(partition, log, wanted)
    else:
        reader.must_answer = True
    if remote is not None:
        _account(broker, reader, partition, leader, remote, wanted, in_order=diverging is None)
    answer = PartitionData(
        partition_index=wanted.partition,
        high_watermark=leader.high_watermark.value,
        last_stable_offset=leader.last_stable_offset.value,
        log_start_offset=log.log_start_offset,
        # Null, not empty, tells a client that it did not ask for committed records only.
        aborted_transactions=[] if reader.isolation_level == _READ_COMMITTED else None,
        records=b"",
    )
    if diverging is not None:
        answer.diverging_epoch = diverging
        return answer
    upper = reader.upper_offset(leader, log)
    if wanted.fetch_offset >= upper:
        if remote is not None:
            _let_rest(reader, leader, remote, wanted, answer)
        return answer
    read = await _warm_read(broker, reader, log, wanted, upper)
    if read.slice is None:
        return answer
    reader.bytes_read += len(read.slice)
    reader.bytes_left = max(0, reader.bytes_left - len(read.slice))
    answer.records = read.slice
    if reader.isolation_level == _READ_COMMITTED:
        answer.aborted_transactions = [
            AbortedTransaction(producer_id=aborted.producer_id, first_offset=aborted.first_offset)
            for aborted in await _aborted(broker, log, wanted.fetch_offset, min(upper, read.upper_offset))
        ]
    return answer


async def _leading(broker: BrokerContext, reader: Reader, wanted: Wanted) -> tuple[Partition, Leader, PartitionLog]:
    partition = broker.partitions.find(wanted.topic, wanted.topic_id, wanted.partition, by_id=reader.version >= 13)
    log = partition.log or await partition.ready()
    return partition, partition.leading(wanted.current_leader_epoch), log


def _divergence(log: PartitionLog, wanted: Wanted) -> EpochEndOffset | None:
    """Where the history of this log left that of who asks; None when his is a beginning of this one."""
    if wanted.last_fetched_epoch < 0:
        return None
    epoch, end_offset = log.epochs.end_offset_for(wanted.last_fetched_epoch, log.log_end_offset)
    if epoch < 0 or end_offset < 0:
        raise KafkaError(ErrorCode.OFFSET_OUT_OF_RANGE, f"epoch {wanted.last_fetched_epoch} is not known here")
    if epoch < wanted.last_fetched_epoch or end_offset < wanted.fetch_offset:
        return EpochEndOffset(epoch=epoch, end_offset=end_offset)
    return None


def _check_range(partition: Partition, log: PartitionLog, wanted: Wanted) -> None:
    if not log.log_start_offset <= wanted.fetch_offset <= log.log_end_offset:
        held = f"{partition.topic_partition} holds {log.log_start_offset} up to {log.log_end_offset}"
        raise KafkaError(ErrorCode.OFFSET_OUT_OF_RANGE, f"{wanted.fetch_offset} was asked for, {held}")


def _account(
    broker: BrokerContext,
    reader: Reader,
    partition: Partition,
    leader: Leader,
    remote: RemoteReplica,
    wanted: Wanted,
    *,
    in_order: bool,
) -> None:
    """What a follower's fetch says about the follower; and it is told at once when the high watermark has risen."""
    if reader.session is not None:
        reader.session.listen(wanted, remote)
    if in_order and not reader.again:
        now_ms = broker.world.clock.now_ms()
        partition.on_fetch(remote, reader.replica_epoch, wanted.fetch_offset, wanted.log_start_offset, now_ms)
    if remote.sent_high_watermark < leader.high_watermark.value:
        remote.sent_high_watermark = leader.high_watermark.value
        reader.must_answer = True


def _let_rest(reader: Reader, leader: Leader, remote: RemoteReplica, wanted: Wanted, answer: PartitionData) -> None:
    """Of one that has nothing to say and nothing to hear the next fetches need not think."""
    if reader.session is not None and leader.is_fully_caught_up(remote, reader.replica_epoch, wanted.fetch_offset):
        reader.session.rest(wanted, answer)


async def _warm_read(broker: BrokerContext, reader: Reader, log: PartitionLog, wanted: Wanted, upper: int) -> Read:
    """Reads; what was never checked in this process is checked first, off the event loop."""
    while True:
        read = log.read(
            wanted.fetch_offset,
            max_bytes=min(wanted.max_bytes, reader.bytes_left),
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


async def _until_enough(
    broker: BrokerContext, call: Call, reader: Reader, wanted: list[Wanted], min_bytes: int, max_wait_ms: int
) -> None:
    wait = Wait(min_bytes)
    yields = YieldCounter(call)
    for one in wanted:
        if yields.due():
            await yield_to_loop()
        try:
            partition = broker.partitions.find(one.topic, one.topic_id, one.partition, by_id=call.version >= 13)
            leader = partition.leading()
        except KafkaError:
            return
        log = partition.log
        if log is None:  # deleted and made anew since it was read
            return
        wait.collect(reader.watermark(leader), _measure(log, one, reader, leader))
    await wait.done(max_wait_ms)


def _measure(log: PartitionLog, wanted: Wanted, reader: Reader, leader: Leader) -> Callable[[], int]:
    def readable_bytes() -> int:
        upper = reader.upper_offset(leader, log)
        return min(wanted.max_bytes, log.bytes_between(wanted.fetch_offset, upper))

    return readable_bytes


def _refused(broker: BrokerContext, reader: Reader, wanted: Wanted, code: ErrorCode) -> PartitionData:
    if code == ErrorCode.KAFKA_STORAGE_ERROR and reader.version <= 5:
        code = ErrorCode.NOT_LEADER_OR_FOLLOWER
    answer = PartitionData(
        partition_index=wanted.partition,
        error_code=code,
        high_watermark=-1,
        last_stable_offset=-1,
        log_start_offset=-1,
        aborted_transactions=[] if code in _UNKNOWN else None,
        records=b"",
    )
    if code in _LEADER_HINT_ERRORS and reader.version >= 16:
        info = broker.partitions.info(broker.view, wanted.topic, wanted.topic_id, wanted.partition)
        if info is not None:
            answer.current_leader = LeaderIdAndEpoch(leader_id=info.leader, leader_epoch=info.leader_epoch)
    return answer


async def _response(
    call: Call, session: FetchSession | None, wanted: list[Wanted], answers: list[PartitionData], *, full: bool
) -> FetchResponse:
    topics: list[FetchableTopicResponse] = []
    yields = YieldCounter(call)
    for one, answer in zip(wanted, answers, strict=True):
        if yields.due():
            await yield_to_loop()
        has_news = session is None or session.has_news(one, answer)
        if not full and not has_news:
            continue
        last = topics[-1] if topics else None
        if last is None or last.topic_id != one.topic_id or last.topic != one.topic:
            last = FetchableTopicResponse(topic=one.topic, topic_id=one.topic_id)
            topics.append(last)
        last.partitions.append(answer)
    return FetchResponse(session_id=session.id if session is not None else 0, responses=topics)


def _tell_leaders(broker: BrokerContext, call: Call, response: FetchResponse) -> None:
    """KIP-951: where the leaders are that partitions name, so that a consumer need not ask."""
    leaders = [
        answer.current_leader.leader_id
        for topic in response.responses
        for answer in topic.partitions
        if answer.current_leader.leader_id >= 0
    ]
    if leaders:
        response.node_endpoints = [
            NodeEndpoint(*address) for address in leader_addresses(broker, call.listener, leaders)
        ]
