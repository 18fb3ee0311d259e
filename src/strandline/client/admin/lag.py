"""How far groups are behind, in records and in time, asked of the partition leaders by ListOffsets and Fetch.

Exact: the age is that of the oldest unread record itself (`core/unread`), not an estimate from samples. The timestamp
found for a committed offset stays valid while that offset is committed, unless retention or compaction removes the
record; so callers that ask repeatedly hand in what they know, and only offsets that have moved are looked up.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from strandline.client.admin.committed_offsets import CommittedOffset
from strandline.client.admin.offsets import list_offsets
from strandline.client.admin.raw_fetch import RawFetchSettings, fetch_raw
from strandline.client.core.unread import Lag, UnreadSearch
from strandline.client.routing import Router
from strandline.model.errors import ErrorCode, KafkaError
from strandline.model.ids import TopicPartition
from strandline.protocol.messages.list_offsets import EARLIEST, LATEST

_FETCH_BYTES = 64 << 10
_MAX_FETCHES = 200
"""Of one partition; more are needed only if a long run of aborted or emptied batches follows the committed offset."""

Position = tuple[TopicPartition, int]
"""A partition and a committed offset."""


async def group_lag(
    router: Router, committed: Mapping[TopicPartition, CommittedOffset], *, timeout_ms: int | None = None
) -> dict[TopicPartition, Lag]:
    """Of every partition with a committed offset. Partitions that cannot be asked have an `error`."""
    positions = [(partition, each.offset) for partition, each in committed.items()]
    found = await find_lags(router, positions, {}, timeout_ms=timeout_ms)
    return {partition: lag for (partition, _), lag in found.items()}


async def find_lags(
    router: Router,
    positions: Collection[Position],
    known: Mapping[Position, int],
    *,
    max_lookups: int | None = None,
    timeout_ms: int | None = None,
) -> dict[Position, Lag]:
    """`known` are timestamps of oldest unread records found before. Beyond `max_lookups` searches the age is left
    unknown, with an `error`."""
    partitions = list(dict.fromkeys(partition for partition, _ in positions))
    ends = await list_offsets(router, dict.fromkeys(partitions, LATEST), timeout_ms=timeout_ms)
    starts = await list_offsets(router, dict.fromkeys(partitions, EARLIEST), timeout_ms=timeout_ms)
    lookups = 0
    found: dict[Position, Lag] = {}
    for position in positions:
        partition, offset = position
        end, start = ends[partition], starts[partition]
        if isinstance(end, KafkaError) or isinstance(start, KafkaError):
            error = end if isinstance(end, KafkaError) else start
            found[position] = Lag(offset, offset, None, str(error))
        elif position in known and offset >= start.offset:
            found[position] = Lag(offset, end.offset, known[position])
        elif max_lookups is not None and lookups >= max_lookups and offset < end.offset:
            found[position] = Lag(offset, end.offset, None, "not looked up yet")
        else:
            search = UnreadSearch(partition, max(offset, start.offset), end.offset)
            lookups += not search.is_done
            try:
                await _search(router, search, timeout_ms)
            except KafkaError as failed:
                found[position] = Lag(offset, end.offset, None, str(failed))
            else:
                found[position] = Lag(offset, end.offset, search.timestamp_ms)
    return found


async def _search(router: Router, search: UnreadSearch, timeout_ms: int | None) -> None:
    """One partition per request: a leader returns at least one whole batch then, however large it is."""
    for _ in range(_MAX_FETCHES):
        if search.is_done:
            return
        settings = RawFetchSettings(0, 0, _FETCH_BYTES, _FETCH_BYTES, search.read_committed)
        fetched = await fetch_raw(router, {search.partition: search.offset}, settings, timeout_ms=timeout_ms)
        found = fetched[search.partition]
        if isinstance(found, KafkaError):
            raise found
        if not search.on_data(found.data):
            raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, f"{search.partition} has no batch at {search.offset}")
    raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, f"{search.partition}: no data record up to {search.offset}")
