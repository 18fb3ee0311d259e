"""OffsetCommit (8), versions 2-10; OffsetFetch (9), versions 1-10; OffsetDelete (47).

Topics are resolved here, by name or id, since only metadata knows them; a partition that does not exist gets its error
and the others are committed.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from msgspec.structs import replace

from strandline.coordinator.offset_requests import commit_offsets, delete_offsets, fetch_offsets
from strandline.handlers.context import BrokerContext, Call
from strandline.model.errors import ErrorCode, KafkaError
from strandline.protocol.messages.offsets import (
    OffsetCommitRequest,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
    OffsetDeleteRequest,
    OffsetDeleteRequestTopic,
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartition,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopic,
    OffsetFetchResponseTopics,
)
from strandline.runtime.tasks import YieldCounter, yield_to_loop

_FIRST_VERSION_WITH_TOPIC_IDS: Final = 10
_FIRST_VERSION_WITH_GROUPS: Final = 8
_FIRST_VERSION_WITH_TOP_LEVEL_ERROR: Final = 2
_PARTITIONS_PER_STEP: Final = 500


async def handle_offset_commit(broker: BrokerContext, call: Call, request: OffsetCommitRequest) -> OffsetCommitResponse:
    known, results = await _resolved(broker, call, request)
    if request.topics and not known:
        return OffsetCommitResponse(topics=results)
    call.park()
    by_name = {topic.name: topic for topic in results}
    for piece in _pieces(known):
        response = await _commit(broker, replace(request, topics=piece), call.version)
        for committed in response.topics:
            topic = by_name.get(committed.name)
            if topic is None:
                results.append(committed)
                by_name[committed.name] = committed
            else:
                topic.partitions += committed.partitions
    return OffsetCommitResponse(topics=results)


async def _resolved(
    broker: BrokerContext, call: Call, request: OffsetCommitRequest
) -> tuple[list[OffsetCommitRequestTopic], list[OffsetCommitResponseTopic]]:
    """The topics with the partitions that exist, and the results of the others."""
    known: list[OffsetCommitRequestTopic] = []
    unknown: list[OffsetCommitResponseTopic] = []
    by_id = call.version >= _FIRST_VERSION_WITH_TOPIC_IDS
    view, yields = broker.view, YieldCounter(call)
    for topic in request.topics:
        info = view.topic_by_id(topic.topic_id) if by_id else view.topic(topic.name)
        count = 0 if info is None else info.partition_count
        code = ErrorCode.UNKNOWN_TOPIC_ID if by_id and info is None else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        result = OffsetCommitResponseTopic(topic.name if info is None else info.name, topic.topic_id)
        good = []
        for each in topic.partitions:
            if yields.due():
                await yield_to_loop()
            if 0 <= each.partition_index < count:
                good.append(each)
            else:
                result.partitions.append(OffsetCommitResponsePartition(each.partition_index, code))
        if info is not None and good:
            known.append(OffsetCommitRequestTopic(info.name, info.id, good))
        if result.partitions:
            unknown.append(result)
    return known, unknown


def _pieces(topics: list[OffsetCommitRequestTopic]) -> Iterator[list[OffsetCommitRequestTopic]]:
    """A large commit in several, which are not atomic together: as many partitions as take some milliseconds. At least
    one piece, because the coordinator also checks the member."""
    piece: list[OffsetCommitRequestTopic] = []
    room = _PARTITIONS_PER_STEP
    for topic in topics:
        partitions = topic.partitions
        while len(partitions) > room:
            yield [*piece, OffsetCommitRequestTopic(topic.name, topic.topic_id, partitions[:room])]
            partitions = partitions[room:]
            piece, room = [], _PARTITIONS_PER_STEP
        piece.append(OffsetCommitRequestTopic(topic.name, topic.topic_id, partitions))
        room -= len(partitions)
    yield piece


async def _commit(broker: BrokerContext, request: OffsetCommitRequest, version: int) -> OffsetCommitResponse:
    return await broker.groups.for_key(request.group_id).write(
        lambda machine, token, now: commit_offsets(machine, request, version, now)
    )


async def handle_offset_fetch(broker: BrokerContext, call: Call, request: OffsetFetchRequest) -> OffsetFetchResponse:
    if call.version >= _FIRST_VERSION_WITH_GROUPS:
        groups, yields = [], YieldCounter(call)
        for wanted in request.groups:
            if yields.due():
                await yield_to_loop()
            groups.append(await _fetch(broker, call, wanted, require_stable=request.require_stable))
        return OffsetFetchResponse(groups=groups)
    topics = request.topics
    wanted = OffsetFetchRequestGroup(
        request.group_id,
        topics=None
        if topics is None
        else [OffsetFetchRequestTopics(each.name, partition_indexes=each.partition_indexes) for each in topics],
    )
    group = await _fetch(broker, call, wanted, require_stable=request.require_stable)
    return OffsetFetchResponse(topics=_as_single_group(group, call.version), error_code=group.error_code)


async def _fetch(
    broker: BrokerContext, call: Call, wanted: OffsetFetchRequestGroup, *, require_stable: bool
) -> OffsetFetchResponseGroup:
    unknown: list[OffsetFetchResponseTopics] = []
    if call.version >= _FIRST_VERSION_WITH_TOPIC_IDS and wanted.topics is not None:
        wanted.topics, unknown = _with_names(broker, wanted.topics)
    try:
        group = await broker.groups.for_key(wanted.group_id).read_in_steps(
            lambda machine, at: fetch_offsets(machine, at, wanted, broker.view.topic_id, require_stable=require_stable)
        )
    except KafkaError as error:
        return _failed(wanted, error.code, call.version)
    group.topics += unknown
    return group


def _with_names(
    broker: BrokerContext, topics: Sequence[OffsetFetchRequestTopics]
) -> tuple[list[OffsetFetchRequestTopics], list[OffsetFetchResponseTopics]]:
    known, unknown = [], []
    for topic in topics:
        info = broker.view.topic_by_id(topic.topic_id)
        if info is not None:
            known.append(OffsetFetchRequestTopics(info.name, info.id, topic.partition_indexes))
        else:
            results = [
                OffsetFetchResponsePartitions(index, -1, -1, "", ErrorCode.UNKNOWN_TOPIC_ID)
                for index in topic.partition_indexes
            ]
            unknown.append(OffsetFetchResponseTopics(topic.name, topic.topic_id, results))
    return known, unknown


def _failed(wanted: OffsetFetchRequestGroup, code: ErrorCode, version: int) -> OffsetFetchResponseGroup:
    """Version 1 has no error of its own: it is repeated for every partition."""
    if version >= _FIRST_VERSION_WITH_TOP_LEVEL_ERROR:
        return OffsetFetchResponseGroup(wanted.group_id, [], code)
    topics = [
        OffsetFetchResponseTopics(
            topic.name,
            partitions=[OffsetFetchResponsePartitions(index, -1, -1, "", code) for index in topic.partition_indexes],
        )
        for topic in wanted.topics or ()
    ]
    return OffsetFetchResponseGroup(wanted.group_id, topics)


def _as_single_group(group: OffsetFetchResponseGroup, version: int) -> list[OffsetFetchResponseTopic]:
    return [
        OffsetFetchResponseTopic(
            topic.name,
            [
                OffsetFetchResponsePartition(
                    each.partition_index,
                    each.committed_offset,
                    each.committed_leader_epoch,
                    each.metadata,
                    each.error_code,
                )
                for each in topic.partitions
            ],
        )
        for topic in group.topics
    ]


async def handle_offset_delete(broker: BrokerContext, call: Call, request: OffsetDeleteRequest) -> OffsetDeleteResponse:
    call.park()
    known: list[OffsetDeleteRequestTopic] = []
    results: dict[str, OffsetDeleteResponseTopic] = {}
    for topic in request.topics:
        info = broker.view.topic(topic.name)
        count = 0 if info is None else info.partition_count
        good = []
        for each in topic.partitions:
            if 0 <= each.partition_index < count:
                good.append(each)
            else:
                result = results.setdefault(topic.name, OffsetDeleteResponseTopic(topic.name))
                code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                result.partitions.append(OffsetDeleteResponsePartition(each.partition_index, code))
        if good:
            known.append(OffsetDeleteRequestTopic(topic.name, good))
    request.topics = known
    response = await broker.groups.for_key(request.group_id).write(
        lambda machine, token, now: delete_offsets(machine, request, now)
    )
    for deleted in response.topics:
        results.setdefault(deleted.name, OffsetDeleteResponseTopic(deleted.name)).partitions += deleted.partitions
    response.topics = list(results.values())
    return response
