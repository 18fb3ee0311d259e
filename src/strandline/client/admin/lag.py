"""How far a group is behind, in records and in time, asked of the partition leaders by ListOffsets and Fetch.

Exact: the age is that of the oldest unread record itself (`core/unread`), not an estimate from samples. A result that
was found for a committed offset stays valid while that offset is committed, unless retention or compaction removes the
record; so callers that ask repeatedly hand in `cached` results, and only partitions whose offset has moved are read.
"""

from __future__ import annotations

from collections.abc import Mapping

from strandline.client.admin.committed_offsets import CommittedOffset
from strandline.client.admin.offsets import list_offsets
from strandline.client.connection import Connection
from strandline.client.core.unread import Lag, UnreadSearch
from strandline.client.routing import Router
from strandline.model.errors import ErrorCode, KafkaError, code_of
from strandline.model.ids import ZERO_UUID, TopicPartition
from strandline.protocol.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic, PartitionData
from strandline.protocol.messages.list_offsets import EARLIEST, LATEST

_BY_TOPIC_ID = 13
_PARTITION_BYTES = 64 << 10
_MAX_FETCHES = 200
"""Of one partition; more are needed only if a long run of aborted or emptied batches follows the committed offset."""


async def group_lag(
    router: Router,
    committed: Mapping[TopicPartition, CommittedOffset],
    *,
    cached: Mapping[TopicPartition, Lag] | None = None,
    timeout_ms: int | None = None,
) -> dict[TopicPartition, Lag]:
    """Of every partition with a committed offset. Partitions that cannot be asked have an `error`."""
    ends = await list_offsets(router, dict.fromkeys(committed, LATEST), timeout_ms=timeout_ms)
    starts = await list_offsets(router, dict.fromkeys(committed, EARLIEST), timeout_ms=timeout_ms)
    found: dict[TopicPartition, Lag] = {}
    for partition, offset in committed.items():
        end, start = ends[partition], starts[partition]
        if isinstance(end, KafkaError) or isinstance(start, KafkaError):
            error = end if isinstance(end, KafkaError) else start
            found[partition] = Lag(offset.offset, offset.offset, None, str(error))
            continue
        known = None if cached is None else cached.get(partition)
        if known is not None and known.oldest_ms is not None and known.committed == offset.offset >= start.offset:
            found[partition] = Lag(offset.offset, end.offset, known.oldest_ms)
            continue
        search = UnreadSearch(partition, max(offset.offset, start.offset), end.offset)
        try:
            await _search(router, search, timeout_ms)
        except KafkaError as failed:
            found[partition] = Lag(offset.offset, end.offset, None, str(failed))
        else:
            found[partition] = Lag(offset.offset, end.offset, search.timestamp_ms)
    return found


async def _search(router: Router, search: UnreadSearch, timeout_ms: int | None) -> None:
    """One partition per request: a leader returns at least one whole batch then, however large it is."""
    for _ in range(_MAX_FETCHES):
        if search.is_done:
            return

        async def attempt(
            connection: Connection, partitions: list[TopicPartition]
        ) -> dict[TopicPartition, PartitionData | KafkaError]:
            return {search.partition: await _fetch(router, connection, search)}

        data = (await router.per_leader([search.partition], attempt, timeout_ms))[search.partition]
        if isinstance(data, KafkaError):
            raise data
        if not search.on_data(data):
            raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, f"{search.partition} has no batch at {search.offset}")
    raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, f"{search.partition}: no data record up to {search.offset}")


async def _fetch(router: Router, connection: Connection, search: UnreadSearch) -> PartitionData | KafkaError:
    topic, index = search.partition
    topic_id = router.metadata.id_of(topic)
    leader = router.metadata.leader_of(search.partition)
    newest = None if topic_id != ZERO_UUID else _BY_TOPIC_ID - 1
    wanted = FetchPartition(
        partition=index,
        current_leader_epoch=leader[1] if leader is not None else -1,
        fetch_offset=search.offset,
        partition_max_bytes=_PARTITION_BYTES,
    )
    request = FetchRequest(
        max_wait_ms=0,
        min_bytes=0,
        max_bytes=_PARTITION_BYTES,
        isolation_level=int(search.read_committed),
        session_epoch=-1,
        topics=[FetchTopic(topic=topic, topic_id=topic_id, partitions=[wanted])],
    )
    version = connection.versions.newest_common_version(FetchRequest, newest)
    response = await connection.call(request, FetchResponse, version=version)
    codes = [response.error_code, *(each.error_code for found in response.responses for each in found.partitions)]
    for number in codes:
        if number:
            return KafkaError(code_of(number), f"fetching {search.partition} from offset {search.offset}")
    for found in response.responses:
        for each in found.partitions:
            return each
    return KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, f"the response lacks {search.partition}")
