"""`uniform`, for members that subscribe to the same topics: equally many partitions for every member, sticky.

Every member gets the total divided by the number of members; when that does not divide, some get one more, first of all
those that have it already. A member keeps what it has up to its quota; the rest goes to the members below theirs. At
most as many partitions move as the quotas require.
"""

from __future__ import annotations

from collections.abc import Generator

from strandline.coordinator.consumer.assignors.specification import SLICE, GroupAssignment, GroupSpec, Sliced
from strandline.coordinator.consumer.assignors.uniform_mixed import assign_mixed
from strandline.coordinator.consumer.member import Assignment
from strandline.model.ids import Uuid

_Partition = tuple[Uuid, int]


def assign(spec: GroupSpec) -> Sliced:
    if spec.is_homogeneous:
        return (yield from _assign_homogeneous(spec))
    return (yield from assign_mixed(spec))


def _assign_homogeneous(spec: GroupSpec) -> Sliced:
    first = next(iter(spec.members.values()), None)
    topics = [] if first is None else sorted(first.topics)
    if not topics:
        return {}
    total = sum(spec.partition_counts[topic] for topic in topics)
    quota, extra = divmod(total, len(spec.members))
    free = yield from _free_partitions(spec, topics)
    kept: GroupAssignment = {}
    unfilled: list[tuple[str, int]] = []
    owned: set[_Partition] = set()
    work = 0
    left = len(spec.members)
    for member_id, member in spec.members.items():
        room = quota + (extra > 0)
        kept[member_id], size = _keep(member.current, spec, topics, room, owned, free)
        if size < room and 0 < extra < left:
            room -= 1  # one more goes to a later member, which may have it already
        if size < room:
            unfilled.append((member_id, room - size))
        extra -= room > quota
        left -= 1
        work += 1 + size
        if work >= SLICE:
            work = 0
            yield
    yield from _fill(kept, unfilled, [each for each in dict.fromkeys(free) if each not in owned])
    return kept


def _keep(
    current: Assignment, spec: GroupSpec, topics: list[Uuid], room: int, owned: set[_Partition], free: list[_Partition]
) -> tuple[Assignment, int]:
    """What a member keeps of its partitions, at most `room` of them; the others become free."""
    kept: dict[Uuid, frozenset[int]] = {}
    size = 0
    for topic in sorted(current):
        count = spec.partition_counts.get(topic, 0) if topic in topics else 0
        partitions = [each for each in sorted(current[topic]) if each < count and (topic, each) not in owned]
        fitting = partitions[: room - size]
        free += [(topic, each) for each in partitions[len(fitting) :]]
        if not fitting:
            continue
        kept[topic] = current[topic] if len(fitting) == len(current[topic]) else frozenset(fitting)
        owned.update((topic, each) for each in fitting)
        size += len(fitting)
    return kept, size


def _free_partitions(spec: GroupSpec, topics: list[Uuid]) -> Generator[None, None, list[_Partition]]:
    """Partitions that no member has."""
    taken: set[_Partition] = set()
    work = 0
    for member in spec.members.values():
        for topic, indexes in member.current.items():
            taken.update((topic, each) for each in indexes)
            work += len(indexes)
        if work >= SLICE:
            work = 0
            yield
    free: list[_Partition] = []
    for topic in topics:
        count = spec.partition_counts[topic]
        for start in range(0, count, SLICE):
            partitions = range(start, min(start + SLICE, count))
            free += [(topic, each) for each in partitions if (topic, each) not in taken]
            work += len(partitions)
            if work >= SLICE:
                work = 0
                yield
    return free


def _fill(
    kept: GroupAssignment, unfilled: list[tuple[str, int]], free: list[_Partition]
) -> Generator[None, None, None]:
    position = work = 0
    for member_id, room in unfilled:
        given = free[position : position + room]
        position += len(given)
        grown = {topic: set(partitions) for topic, partitions in kept[member_id].items()}
        for topic, partition in given:
            grown.setdefault(topic, set()).add(partition)
        kept[member_id] = {topic: frozenset(partitions) for topic, partitions in grown.items()}
        work += 1 + len(given)
        if work >= SLICE:
            work = 0
            yield
    assert position == len(free), "partitions were left unassigned"
