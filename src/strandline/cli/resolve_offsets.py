"""Offsets of `cli/offset_range` as offsets of partitions, by ListOffsets: for `consume -o` and `group reset --to`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from strandline.cli.offset_range import AfterStart, AtOffset, AtTime, BeforeEnd, OffsetSpec
from strandline.model.errors import KafkaError

if TYPE_CHECKING:
    from strandline.client.client import Client
    from strandline.model.ids import TopicPartition

Offsets = dict["TopicPartition", int]


async def resolve_start(client: Client, partitions: list[TopicPartition], place: OffsetSpec) -> Offsets:
    """An offset that each partition has, or its end."""
    starts, ends = await list_bounds(client, partitions, read_committed=False)
    found = await resolve_offset(client, partitions, place, starts, ends, read_committed=False)
    return {each: min(max(found[each], starts[each]), ends[each]) for each in partitions}


async def list_bounds(
    client: Client, partitions: list[TopicPartition], *, read_committed: bool
) -> tuple[Offsets, Offsets]:
    """The first and the next offset of each partition."""
    from strandline.protocol.messages.list_offsets import EARLIEST, LATEST

    starts = await _listed(client, partitions, EARLIEST, read_committed)
    return starts, await _listed(client, partitions, LATEST, read_committed)


async def resolve_offset(
    client: Client,
    partitions: list[TopicPartition],
    place: OffsetSpec,
    starts: Offsets,
    ends: Offsets,
    *,
    read_committed: bool,
) -> Offsets:
    match place:
        case AfterStart(count):
            return {each: min(starts[each] + count, ends[each]) for each in partitions}
        case BeforeEnd(count):
            return {each: max(ends[each] - count, starts[each]) for each in partitions}
        case AtOffset(offset):
            return dict.fromkeys(partitions, offset)
        case AtTime(timestamp_ms):
            listed = await _listed(client, partitions, max(0, timestamp_ms), read_committed)
            return {each: ends[each] if offset < 0 else offset for each, offset in listed.items()}


async def _listed(client: Client, partitions: list[TopicPartition], timestamp: int, read_committed: bool) -> Offsets:
    offsets = {}
    listed = await client.list_offsets(dict.fromkeys(partitions, timestamp), read_committed=read_committed)
    for partition, offset in listed.items():
        if isinstance(offset, KafkaError):
            raise offset
        offsets[partition] = offset.offset
    return offsets
