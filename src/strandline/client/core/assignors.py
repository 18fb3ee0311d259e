"""Partition assignors of classic groups, run by the member that leads the group: `range` and `cooperative-sticky`.

A core; `core/group_member` calls it. Both assign every partition of a topic to exactly one member that subscribes to
it. `range` is Kafka's, partition by partition. `cooperative-sticky` follows KIP-429: a partition that has to move is
first taken from its owner and assigned in the next rebalance, so that no two members ever own it. Members are ordered
as Kafka orders them: static members by instance id, then the others by member id.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import msgspec

from strandline.model.ids import TopicPartition

RANGE = "range"
COOPERATIVE_STICKY = "cooperative-sticky"

Assignment = dict[str, list[TopicPartition]]


class Subscriber(msgspec.Struct, frozen=True):
    """A member as the group leader sees it."""

    member_id: str
    topics: tuple[str, ...]
    owned: tuple[TopicPartition, ...] = ()
    generation: int = -1
    """The generation in which it received `owned`."""
    instance_id: str | None = None

    @property
    def rank(self) -> tuple[bool, str]:
        return self.instance_id is None, self.instance_id or self.member_id


def assign(name: str, members: Sequence[Subscriber], partition_counts: Mapping[str, int]) -> Assignment:
    """Topics without a partition count do not exist and are left out."""
    if name == RANGE:
        return assign_range(members, partition_counts)
    return assign_cooperatively(members, partition_counts)


def assign_range(members: Sequence[Subscriber], partition_counts: Mapping[str, int]) -> Assignment:
    result: Assignment = {each.member_id: [] for each in members}
    ordered = sorted(members, key=lambda each: each.rank)
    for topic in _topics(members, partition_counts):
        subscribed = [each for each in ordered if topic in each.topics]
        share, extra = divmod(partition_counts[topic], len(subscribed))
        first = 0
        for index, each in enumerate(subscribed):
            count = share + (index < extra)
            result[each.member_id] += [TopicPartition(topic, number) for number in range(first, first + count)]
            first += count
    return result


def assign_cooperatively(members: Sequence[Subscriber], partition_counts: Mapping[str, int]) -> Assignment:
    """The balanced assignment, without the partitions that another member still owns."""
    balanced = assign_sticky(members, partition_counts)
    owners = _owners(members, partition_counts)
    return {
        member_id: [each for each in partitions if owners.get(each, member_id) == member_id]
        for member_id, partitions in balanced.items()
    }


def assign_sticky(members: Sequence[Subscriber], partition_counts: Mapping[str, int]) -> Assignment:
    """Assigns as evenly as the subscriptions allow; among such assignments, members keep what they own."""
    ordered = sorted(members, key=lambda each: each.rank)
    result: Assignment = {each.member_id: [] for each in ordered}
    eligible = {
        topic: [each.member_id for each in ordered if topic in each.topics]
        for topic in _topics(members, partition_counts)
    }
    owners = _owners(members, partition_counts)
    unassigned = []
    for topic in eligible:
        for number in range(partition_counts[topic]):
            partition = TopicPartition(topic, number)
            owner = owners.get(partition)
            if owner is not None:
                result[owner].append(partition)
            else:
                unassigned.append(partition)
    # Partitions with few possible members first: those with many can still be used to balance.
    for partition in sorted(unassigned, key=lambda each: len(eligible[each.topic])):
        result[min(eligible[partition.topic], key=lambda each: len(result[each]))].append(partition)
    _balance(result, eligible)
    return {member_id: sorted(partitions) for member_id, partitions in result.items()}


def _balance(result: Assignment, eligible: Mapping[str, list[str]]) -> None:
    """Moves partitions until no move makes the counts of two members more equal.

    Every move lowers the sum of the squared counts, so this ends."""
    moved = True
    while moved:
        moved = False
        for source in sorted(result, key=lambda each: -len(result[each])):
            for partition in reversed(list(result[source])):
                target = min(eligible[partition.topic], key=lambda each: len(result[each]))
                if len(result[target]) + 1 < len(result[source]):
                    result[source].remove(partition)
                    result[target].append(partition)
                    moved = True


def _owners(members: Iterable[Subscriber], partition_counts: Mapping[str, int]) -> dict[TopicPartition, str]:
    """The valid owner of each partition: of two that claim it, the one of the later generation; none of equals."""
    claims: dict[TopicPartition, tuple[int, str | None]] = {}
    for each in members:
        for partition in each.owned:
            if partition.topic not in each.topics or partition.partition >= partition_counts.get(partition.topic, 0):
                continue
            generation, _ = claims.get(partition, (-2, None))
            if each.generation > generation:
                claims[partition] = each.generation, each.member_id
            elif each.generation == generation:
                claims[partition] = generation, None
    return {partition: owner for partition, (_, owner) in claims.items() if owner is not None}


def _topics(members: Iterable[Subscriber], partition_counts: Mapping[str, int]) -> list[str]:
    return sorted({topic for each in members for topic in each.topics if partition_counts.get(topic, 0) > 0})
