"""`range`: each topic's partitions in contiguous ranges, one for each of its members in order.

Static members come first, by instance id, the others by member id; the first members get one partition more when the
numbers do not divide. Topics with equally many partitions and the same members get equal ranges, so that records with
equal keys meet in one member.
"""

from __future__ import annotations

from strandline.coordinator.consumer.assignors.specification import SLICE, GroupAssignment, GroupSpec, Sliced
from strandline.model.ids import Uuid


def assign(spec: GroupSpec) -> Sliced:
    ordered = sorted(spec.members, key=lambda member_id: _order(spec, member_id))
    subscribers: dict[Uuid, int] = {}
    work = 0
    for member in spec.members.values():
        for topic in member.topics:
            subscribers[topic] = subscribers.get(topic, 0) + 1
        work += len(member.topics)
        if work >= SLICE:
            work = 0
            yield
    next_partition = dict.fromkeys(subscribers, 0)
    remainder = {topic: spec.partition_counts[topic] % count for topic, count in subscribers.items()}
    assignments: GroupAssignment = {}
    for member_id in ordered:
        assigned = {}
        for topic in sorted(spec.members[member_id].topics):
            start = next_partition[topic]
            size = spec.partition_counts[topic] // subscribers[topic]
            if remainder[topic] > 0:
                remainder[topic] -= 1
                size += 1
            if size:
                assigned[topic] = frozenset(range(start, start + size))
                next_partition[topic] = start + size
            work += 1 + size
        assignments[member_id] = assigned
        if work >= SLICE:
            work = 0
            yield
    return assignments


def _order(spec: GroupSpec, member_id: str) -> tuple[bool, str]:
    instance_id = spec.members[member_id].instance_id
    return (True, member_id) if instance_id is None else (False, instance_id)
