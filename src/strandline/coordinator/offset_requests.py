"""OffsetCommit (8), TxnOffsetCommit (28), OffsetFetch (9), OffsetDelete (47), and groups deleted with their offsets
(42).

An offset belongs to a topic id: that of a deleted topic is never served to its successor of the same name. The handlers
have checked that the topics exist; here the group decides whether the member may commit, and offsets
become records. Reads are made at the committed moment; an offset that an open transaction is about to replace is
reported unstable to clients that want stable ones (KIP-447).
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Mapping

from strandline.coordinator.classic.group import ClassicGroup, State
from strandline.coordinator.classic.rebalance import restart_session
from strandline.coordinator.consumer.commits import check_commit, check_fetch, check_transactional_commit
from strandline.coordinator.consumer.group import ConsumerGroup
from strandline.coordinator.consumer.leaving import restart_session as restart_consumer_session
from strandline.coordinator.decision import Decision, Now
from strandline.coordinator.groups import GroupMachine
from strandline.coordinator.offsets import CommittedOffset, offset_record, offset_tombstone
from strandline.coordinator.records import CoordinatorRecord
from strandline.model.errors import ErrorCode, KafkaError
from strandline.model.ids import ZERO_UUID, Uuid
from strandline.protocol.messages.offsets import (
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
    OffsetDeleteRequest,
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopics,
)
from strandline.protocol.messages.transactions import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)

TopicIds = Callable[[str], Uuid]
"""The id of the topic that has this name now; zero when there is none."""

_NO_OFFSET = -1
_FETCHED_PER_YIELD = 1_000
_GROUP_NOT_FOUND_SINCE = 9
"""OffsetCommit tells an unknown group apart from an old generation from this version on."""


def commit_offsets(
    machine: GroupMachine, request: OffsetCommitRequest, version: int, now: Now
) -> Decision[OffsetCommitResponse | None]:
    _check_commit(machine, request, version, now)
    expire_ms = -1 if request.retention_time_ms == -1 else now.wall_ms + request.retention_time_ms
    longest_metadata = machine.settings.offset_metadata_max_bytes
    decision: Decision[OffsetCommitResponse | None] = Decision(None)
    topics = []
    for topic in request.topics:
        results = []
        for each in topic.partitions:
            metadata = each.committed_metadata or ""
            code = _check_metadata(metadata, longest_metadata)
            if code is ErrorCode.NONE:
                committed = CommittedOffset(
                    each.committed_offset,
                    each.committed_leader_epoch,
                    metadata,
                    now.wall_ms,
                    expire_ms,
                    topic.topic_id,
                )
                decision.records.append(offset_record(request.group_id, topic.name, each.partition_index, committed))
            results.append(OffsetCommitResponsePartition(each.partition_index, code))
        topics.append(OffsetCommitResponseTopic(topic.name, topic.topic_id, results))
    machine.counts.offset_commits += len(decision.records)
    decision.too_large = ErrorCode.INVALID_COMMIT_OFFSET_SIZE
    decision.response = OffsetCommitResponse(topics=topics)
    return decision


def _check_commit(machine: GroupMachine, request: OffsetCommitRequest, version: int, now: Now) -> None:
    generation = request.generation_id_or_member_epoch
    group = machine.group(request.group_id)
    if group is None:
        if generation < 0:
            return
        code = ErrorCode.GROUP_ID_NOT_FOUND if version >= _GROUP_NOT_FOUND_SINCE else ErrorCode.ILLEGAL_GENERATION
        raise KafkaError(code, f"there is no group {request.group_id!r}")
    if isinstance(group, ConsumerGroup):
        partitions = (
            (topic.name, topic.topic_id, each.partition_index) for topic in request.topics for each in topic.partitions
        )
        committing = check_commit(group, request.member_id, generation, partitions, version)
        if committing is not None and committing.uses_classic_protocol:
            restart_consumer_session(machine.consumer, group, committing, now)
        return
    check_member_may_commit(group, request.member_id, request.group_instance_id, generation, is_transactional=False)
    member = group.members.get(request.member_id)
    if member is not None:
        restart_session(machine.classic, group, member, now)


def check_member_may_commit(
    group: ClassicGroup, member_id: str, instance_id: str | None, generation: int, *, is_transactional: bool
) -> None:
    if group.state is State.DEAD:
        raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, f"{group.group_id} is being removed")
    if generation < 0 and group.state is State.EMPTY:
        return  # an administrator, or a consumer that assigns its partitions itself
    if generation >= 0 or member_id or instance_id is not None:
        group.check_member(member_id, instance_id)
        group.check_generation(generation)
    elif not is_transactional:
        # Without member id and generation, while the group has members: this commit would overwrite theirs.
        raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID, f"{group.group_id} has members; commit as one of them")
    if group.state is State.COMPLETING_REBALANCE and not is_transactional:
        # Members commit before they rejoin; in this state they have rejoined and wait for the assignment.
        raise KafkaError(ErrorCode.REBALANCE_IN_PROGRESS, f"{group.group_id} is rebalancing")


def _check_metadata(metadata: str, longest: int) -> ErrorCode:
    # Kafka counts characters.
    if len(metadata) > longest:
        return ErrorCode.OFFSET_METADATA_TOO_LARGE
    return ErrorCode.NONE


def commit_transactional_offsets(
    machine: GroupMachine, request: TxnOffsetCommitRequest, now: Now, topic_id: TopicIds = lambda name: ZERO_UUID
) -> Decision[TxnOffsetCommitResponse]:
    group = machine.group(request.group_id)
    if isinstance(group, ConsumerGroup):
        partitions = (
            (topic.name, _topic_id(machine, topic.name), each.partition_index)
            for topic in request.topics
            for each in topic.partitions
        )
        check_transactional_commit(
            group, request.member_id, request.group_instance_id, request.generation_id, partitions
        )
    elif group is not None:
        check_member_may_commit(
            group, request.member_id, request.group_instance_id, request.generation_id, is_transactional=True
        )
    elif request.generation_id >= 0:
        raise KafkaError(ErrorCode.ILLEGAL_GENERATION, f"there is no group {request.group_id!r}")
    longest_metadata = machine.settings.offset_metadata_max_bytes
    records = []
    topics = []
    for topic in request.topics:
        results = []
        for each in topic.partitions:
            metadata = each.committed_metadata or ""
            code = _check_metadata(metadata, longest_metadata)
            if code is ErrorCode.NONE:
                committed = CommittedOffset(
                    each.committed_offset,
                    each.committed_leader_epoch,
                    metadata,
                    now.wall_ms,
                    topic_id=topic_id(topic.name),
                )
                records.append(offset_record(request.group_id, topic.name, each.partition_index, committed))
            results.append(TxnOffsetCommitResponsePartition(each.partition_index, code))
        topics.append(TxnOffsetCommitResponseTopic(topic.name, results))
    machine.counts.offset_commits += len(records)
    return Decision(TxnOffsetCommitResponse(topics=topics), records, too_large=ErrorCode.INVALID_COMMIT_OFFSET_SIZE)


def _topic_id(machine: GroupMachine, name: str) -> Uuid:
    topic = machine.consumer.topics.by_name(name)
    return ZERO_UUID if topic is None else topic.topic_id


def fetch_offsets(
    machine: GroupMachine, at: int, wanted: OffsetFetchRequestGroup, topic_id: TopicIds, *, require_stable: bool
) -> Generator[None, None, OffsetFetchResponseGroup]:
    """Offsets of one group; of all its partitions when `topics` is None. Unknown groups have none, without an error.

    Yields where the event loop may run."""
    group_id = wanted.group_id
    group = machine.group(group_id, at)
    if isinstance(group, ConsumerGroup):
        check_fetch(group, at, wanted.member_id, wanted.member_epoch)
    if wanted.topics is None:
        by_topic: dict[str, list[int]] = {}
        for (topic, partition), committed in sorted(machine.offsets.all_of(group_id, at), key=lambda each: each[0]):
            if committed.belongs_to(topic_id(topic)):
                by_topic.setdefault(topic, []).append(partition)
        asked = [OffsetFetchRequestTopics(name, partition_indexes=indexes) for name, indexes in by_topic.items()]
    else:
        asked = wanted.topics
    topics = []
    count = 0
    for each in asked:
        current_id = topic_id(each.name)
        results = []
        for index in each.partition_indexes:
            results.append(_fetched(machine, at, group_id, each.name, current_id, index, require_stable=require_stable))
            count += 1
            if count % _FETCHED_PER_YIELD == 0:
                yield
        topics.append(OffsetFetchResponseTopics(each.name, current_id, results))
    return OffsetFetchResponseGroup(group_id, topics)


def _fetched(
    machine: GroupMachine,
    at: int,
    group_id: str,
    topic: str,
    topic_id: Uuid,
    partition: int,
    *,
    require_stable: bool,
) -> OffsetFetchResponsePartitions:
    if require_stable and machine.offsets.is_pending(group_id, topic, partition, at):
        return OffsetFetchResponsePartitions(partition, _NO_OFFSET, -1, "", ErrorCode.UNSTABLE_OFFSET_COMMIT)
    committed = machine.offsets.get(group_id, topic, partition, at)
    if committed is None or not committed.belongs_to(topic_id):
        return OffsetFetchResponsePartitions(partition, _NO_OFFSET, -1, "")
    return OffsetFetchResponsePartitions(partition, committed.offset, committed.leader_epoch, committed.metadata)


def delete_offsets(
    machine: GroupMachine, request: OffsetDeleteRequest, now: Now
) -> Decision[OffsetDeleteResponse | None]:
    if not request.group_id:
        raise KafkaError(ErrorCode.INVALID_GROUP_ID, "the group id is empty")
    group = machine.existing(request.group_id)
    if group.has_members and not group.uses_consumer_protocol:
        raise KafkaError(ErrorCode.NON_EMPTY_GROUP, f"{request.group_id} has members")
    records: list[CoordinatorRecord] = []
    topics = []
    for topic in request.topics:
        is_subscribed = group.is_subscribed_to(topic.name)
        results = []
        for each in topic.partitions:
            code = ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC if is_subscribed else ErrorCode.NONE
            if (
                not is_subscribed
                and machine.offsets.get(request.group_id, topic.name, each.partition_index) is not None
            ):
                records.append(offset_tombstone(request.group_id, topic.name, each.partition_index))
            results.append(OffsetDeleteResponsePartition(each.partition_index, code))
        topics.append(OffsetDeleteResponseTopic(topic.name, results))
    machine.counts.offset_deletions += len(records)
    return Decision(OffsetDeleteResponse(topics=topics), records)


def delete_group(machine: GroupMachine, group_id: str) -> list[CoordinatorRecord]:
    """Tombstones of a group and its offsets, the group's last. Raises GROUP_ID_NOT_FOUND or NON_EMPTY_GROUP."""
    group = machine.existing(group_id)
    if group.has_members if isinstance(group, ConsumerGroup) else group.state is not State.EMPTY:
        raise KafkaError(ErrorCode.NON_EMPTY_GROUP, f"{group_id} has members")
    records = [offset_tombstone(group_id, topic, partition) for topic, partition in machine.offsets.keys_of(group_id)]
    machine.counts.offset_deletions += len(records)
    return [*records, *group.tombstones()]


def delete_offsets_of_topics(machine: GroupMachine, topics: Mapping[str, Uuid]) -> Decision[None]:
    """Topics were deleted. Offsets of open transactions go with them."""
    group_ids = dict.fromkeys(group_id for topic in topics for group_id in machine.offsets.groups_of(topic))
    records = [
        offset_tombstone(group_id, topic, partition)
        for group_id in group_ids
        for topic, partition in machine.offsets.keys_of(group_id)
        if topic in topics and _is_of(machine, group_id, topic, partition, topics[topic])
    ]
    return Decision(None, records, is_atomic=False)


def _is_of(machine: GroupMachine, group_id: str, topic: str, partition: int, topic_id: Uuid) -> bool:
    committed = machine.offsets.get(group_id, topic, partition)
    return committed is None or committed.belongs_to(topic_id)


def delete_offsets_of_former_topics(
    machine: GroupMachine, group_ids: Iterable[str], topic_id: TopicIds
) -> Decision[None]:
    """After a partition was loaded: its former leader may not have deleted the offsets of a topic before it failed."""
    records = [
        offset_tombstone(group_id, topic, partition)
        for group_id in group_ids
        for (topic, partition), committed in machine.offsets.all_of(group_id)
        if not committed.belongs_to(topic_id(topic))
    ]
    return Decision(None, records, is_atomic=False)
