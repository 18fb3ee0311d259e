"""The target assignment of a group: which member should own which partitions, in which group epoch.

Computed when the group epoch is above the assignment epoch, at most once per `group.consumer.assignment.interval.ms`:
at once for a small group, while the heartbeat is decided; for a large one in slices, on a timer, while members keep the
last target. Only members whose assignment changed get a record; the record of the assignment epoch is the last one, so
a target that is written in slices takes effect at its end.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Generator, Mapping
from typing import Final

import msgspec

from strandline.coordinator.consumer.assignors import range_assignor, uniform
from strandline.coordinator.consumer.assignors.specification import GroupAssignment, GroupSpec, MemberSpec, Sliced
from strandline.coordinator.consumer.context import ConsumerContext, TargetSlice
from strandline.coordinator.consumer.group import ConsumerGroup
from strandline.coordinator.consumer.group_records import target_epoch_record, target_record
from strandline.coordinator.consumer.member import Assignment, Member
from strandline.coordinator.consumer.topics import Topics
from strandline.coordinator.decision import Decision, Now, nothing
from strandline.coordinator.records import CoordinatorRecord
from strandline.model.errors import ErrorCode
from strandline.model.ids import Uuid

ASSIGNORS: Final[Mapping[str, Callable[[GroupSpec], Sliced]]] = {
    "uniform": uniform.assign,
    "range": range_assignor.assign,
}
_AT_ONCE: Final = 4000
"""The most that may be done in one step: a partition counts one, a member (with its record) ten, twenty subscriptions
one."""
_RECORDS_PER_SLICE: Final = 100
_MEMBERS_PER_SLICE: Final = 500


class TargetJob(msgspec.Struct):
    """A target assignment that is being computed in slices."""

    group: ConsumerGroup
    epoch: int
    steps: Generator[list[CoordinatorRecord], None, None]


def may_compute(context: ConsumerContext, group: ConsumerGroup, now: Now) -> bool:
    interval_ms = context.settings(group.group_id).assignment_interval_ms
    last_ms = group.assignment_timestamp_ms
    return interval_ms == 0 or last_ms == 0 or now.wall_ms >= last_ms + interval_ms


def is_large(context: ConsumerContext, group: ConsumerGroup) -> bool:
    """The first target is always computed at once: a member must not stay in epoch 0."""
    if group.assignment_epoch() == 0:
        return False
    members = len(group.members)
    names = group.subscribed_topics()
    partitions = sum(0 if (topic := context.topics.by_name(name)) is None else topic.partition_count for name in names)
    return 10 * members + members * len(names) // 20 + partitions > _AT_ONCE


def compute_at_once(
    context: ConsumerContext, group: ConsumerGroup, epoch: int, replaced: Member | None, updated: Member, now: Now
) -> tuple[list[CoordinatorRecord], Assignment]:
    """Records of the new target, and what it says of `updated`, which takes the place of `replaced` in the group."""
    members = {member.member_id: member for member in group.members.values()}
    inherited = group.static_member(updated.instance_id)
    for gone in (replaced, inherited):
        if gone is not None:
            members.pop(gone.member_id, None)
    members[updated.member_id] = updated
    current = {member_id: group.target(member) for member_id, member in members.items()}
    steps = assign(context, group, members, current)
    while True:
        try:
            next(steps)
        except StopIteration as end:
            assignment: GroupAssignment = end.value
            break
    records = [
        target_record(group.group_id, member_id, assignment.get(member_id, {}))
        for member_id in members
        if group.targets.get(member_id) != assignment.get(member_id, {})
    ]
    records.append(target_epoch_record(group.group_id, epoch, now.wall_ms))
    return records, assignment.get(updated.member_id, {})


def start_job(context: ConsumerContext, jobs: dict[str, TargetJob], group: ConsumerGroup, now: Now) -> None:
    """The job begins after the heartbeat that asks for it, so its change of the group is seen."""
    if group.group_id not in jobs:
        jobs[group.group_id] = TargetJob(group, 0, _steps(context, jobs, group))
        context.timers.schedule(TargetSlice(group.group_id), now.ms)


def on_target_slice(
    context: ConsumerContext, jobs: dict[str, TargetJob], group: ConsumerGroup | None, group_id: str, now: Now
) -> Decision[None]:
    job = jobs.get(group_id)
    if job is None or job.group is not group:
        jobs.pop(group_id, None)
        return nothing()
    try:
        records = next(job.steps)
    except StopIteration:
        del jobs[group_id]
        records = [target_epoch_record(group_id, job.epoch, now.wall_ms)]
    else:
        # A millisecond later: requests that wait are served between slices.
        context.timers.schedule(TargetSlice(group_id), now.ms + 1)
    if not records:
        return nothing()

    def on_append_failed(code: ErrorCode, now: Now) -> Decision[None]:
        """The records of a slice are missing: the next heartbeat starts again."""
        if jobs.get(group_id) is job:
            del jobs[group_id]
            context.timers.cancel(TargetSlice(group_id))
        return nothing()

    return Decision(None, records, on_append_failed=on_append_failed)


def _steps(
    context: ConsumerContext, jobs: dict[str, TargetJob], group: ConsumerGroup
) -> Generator[list[CoordinatorRecord], None, None]:
    """Yields the records of each slice; slices of the computation have none."""
    jobs[group.group_id].epoch = group.epoch()
    members = {member.member_id: member for member in group.members.values()}
    current = {member_id: group.target(member) for member_id, member in members.items()}
    yield []
    steps = assign(context, group, members, current)
    while True:
        try:
            next(steps)
        except StopIteration as end:
            assignment: GroupAssignment = end.value
            break
        yield []
    records: list[CoordinatorRecord] = []
    for member_id in members:
        # A member that has left meanwhile gets no record, which nothing would delete.
        target = assignment.get(member_id, {})
        if member_id in group.members and group.targets.get(member_id) != target:
            records.append(target_record(group.group_id, member_id, target))
        if len(records) >= _RECORDS_PER_SLICE:
            yield records
            records = []
    yield records


def assign(
    context: ConsumerContext, group: ConsumerGroup, members: Mapping[str, Member], current: Mapping[str, Assignment]
) -> Sliced:
    assignor = _preferred_assignor(members) or context.settings(group.group_id).default_assignor
    topics = context.topics
    specs: dict[str, MemberSpec] = {}
    shared: dict[tuple[tuple[str, ...], str | None], frozenset[Uuid]] = {}
    for count, member_id in enumerate(sorted(members), 1):
        member = members[member_id]
        key = (member.subscribed_topics, member.subscribed_regex)
        if key not in shared:
            shared[key] = _existing(topics, group.topics_of(member))
        specs[member_id] = MemberSpec(member.instance_id, shared[key], current[member_id])
        if count % _MEMBERS_PER_SLICE == 0:
            yield
    counts = {
        topic_id: found.partition_count
        for topic_ids in shared.values()
        for topic_id in topic_ids
        if (found := topics.by_id(topic_id)) is not None
    }
    return (yield from ASSIGNORS[assignor](GroupSpec(specs, counts)))


def _existing(topics: Topics, names: frozenset[str]) -> frozenset[Uuid]:
    return frozenset(found.topic_id for name in names if (found := topics.by_name(name)) is not None)


def _preferred_assignor(members: Mapping[str, Member]) -> str | None:
    """The assignor that most members ask for; of several, the first by name."""
    votes = Counter(member.server_assignor for member in members.values() if member.server_assignor in ASSIGNORS)
    return min(votes, key=lambda name: (-votes[name], name or ""), default=None)


def preferred_assignor(group: ConsumerGroup, at: int) -> str | None:
    return _preferred_assignor({member.member_id: member for member in group.members.values(at)})
