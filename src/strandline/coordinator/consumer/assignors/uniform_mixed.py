"""`uniform`, for members that subscribe to different topics: as balanced as subscriptions allow, sticky.

1. Each member keeps the partitions that it still subscribes to.
2. Partitions without a member go, topic by topic, to the member with the fewest among the topic's subscribers. Topics
   with many partitions per subscriber come first.
3. Topic by topic, partitions move from the members with the most to those with the fewest, until the subscribers of
   every topic differ by one at most, or after sixteen rounds: overlapping subscriptions converge slowly.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import Final

from strandline.coordinator.consumer.assignors.specification import SLICE, GroupAssignment, GroupSpec, Sliced
from strandline.model.ids import Uuid

_MOST_ROUNDS: Final = 16
_NOBODY: Final = -1


def assign_mixed(spec: GroupSpec) -> Sliced:
    assignment = _Balance(spec)
    yield from assignment.keep_current()
    yield from assignment.assign_free_partitions()
    yield from assignment.balance()
    return (yield from assignment.result())


class _Balance:
    """Members are numbered in the order of the specification."""

    def __init__(self, spec: GroupSpec) -> None:
        self._spec = spec
        self._member_ids = list(spec.members)
        self.sizes = [0] * len(self._member_ids)
        self._subscribers: dict[Uuid, list[int]] = {}
        self._owners: dict[Uuid, list[int]] = {}

    def keep_current(self) -> Generator[None, None, None]:
        work = 0
        for number, member in enumerate(self._spec.members.values()):
            for topic in sorted(member.topics):
                self._subscribers.setdefault(topic, []).append(number)
            work += len(member.topics)
            if work >= SLICE:
                work = 0
                yield
        self._owners = {topic: [_NOBODY] * self._spec.partition_counts[topic] for topic in self._subscribers}
        for number, member in enumerate(self._spec.members.values()):
            for topic, partitions in member.current.items():
                if topic in member.topics:
                    self._keep(number, topic, partitions)
                    work += len(partitions)
            if work >= SLICE:
                work = 0
                yield

    def _keep(self, number: int, topic: Uuid, partitions: frozenset[int]) -> None:
        owners = self._owners[topic]
        for partition in partitions:
            if partition < len(owners) and owners[partition] == _NOBODY:
                owners[partition] = number
                self.sizes[number] += 1

    def _ordered_topics(self) -> list[Uuid]:
        """By partitions per subscriber, most first; then by fewest subscribers."""
        counts = self._spec.partition_counts

        def order(topic: Uuid) -> tuple[float, int, Uuid]:
            subscribers = len(self._subscribers[topic])
            return (-counts[topic] / subscribers, subscribers, topic)

        return sorted(self._subscribers, key=order)

    def _move(self, topic: Uuid, partition: int, number: int) -> None:
        owners = self._owners[topic]
        if owners[partition] != _NOBODY:
            self.sizes[owners[partition]] -= 1
        owners[partition] = number
        self.sizes[number] += 1

    def assign_free_partitions(self) -> Generator[None, None, None]:
        work = 0
        for topic in self._ordered_topics():
            free = [partition for partition, owner in enumerate(self._owners[topic]) if owner == _NOBODY]
            levels = _Levels(self._subscribers[topic], self.sizes)
            for partition in free:
                self._move(topic, partition, levels.next_least_loaded())
                work += 1
                if work >= SLICE:
                    work = 0
                    yield

    def balance(self) -> Generator[None, None, None]:
        topics = [topic for topic in self._ordered_topics() if len(self._subscribers[topic]) > 1]
        last_changed = None
        for _ in range(_MOST_ROUNDS):
            for topic in topics:
                if topic == last_changed:
                    return  # every other topic was looked at since, and nothing moved
                has_moved = yield from self._balance_topic(topic)
                if has_moved or last_changed is None:
                    last_changed = topic

    def _balance_topic(self, topic: Uuid) -> Generator[None, None, bool]:
        yield
        levels = _Levels(self._subscribers[topic], self.sizes)
        if levels.imbalance <= 1:
            return False
        owned: dict[int, list[int]] = {}
        for partition, owner in enumerate(self._owners[topic]):
            owned.setdefault(owner, []).append(partition)
        has_moved = False
        work = 0
        while True:
            giver = levels.next_most_loaded()
            while giver is not None and not owned.get(giver):
                levels.exclude_most_loaded()
                giver = levels.next_most_loaded()
            if giver is None:
                break
            partition = owned[giver].pop()
            taker = levels.next_least_loaded()
            if levels.is_balanced():
                break
            self._move(topic, partition, taker)
            has_moved = True
            work += 1
            if work >= SLICE:
                work = 0
                yield
        return has_moved

    def result(self) -> Sliced:
        grown: list[dict[Uuid, set[int]]] = [{} for _ in self._member_ids]
        work = 0
        for topic, owners in self._owners.items():
            for partition, owner in enumerate(owners):
                grown[owner].setdefault(topic, set()).add(partition)
            work += len(owners)
            if work >= SLICE:
                work = 0
                yield
        assignments: GroupAssignment = {}
        for member_id, topics in zip(self._member_ids, grown, strict=True):
            assignments[member_id] = {topic: frozenset(partitions) for topic, partitions in topics.items()}
            work += len(topics)
            if work >= SLICE:
                work = 0
                yield
        return assignments


class _Levels:
    """Subscribers of a topic by how many partitions they have: the next one to give to, and the next to take from.

    Each call counts on the move being made: the level of the fewest rises when each of its members was given one, and
    then includes the members that already were on that level; the level of the most falls likewise.
    """

    def __init__(self, members: list[int], sizes: list[int]) -> None:
        self._sizes = sizes
        self._members = sorted(members, key=lambda number: (sizes[number], number))
        self._least_end = 0
        self._least_size = sizes[self._members[0]] - 1
        self._next_least = 0
        self._most_start = self._most_end = len(self._members)
        self._most_size = sizes[self._members[-1]] + 1
        self._next_most = len(self._members) - 1
        self.imbalance = sizes[self._members[-1]] - sizes[self._members[0]]

    def is_balanced(self) -> bool:
        return self._most_size - self._least_size <= 1

    def next_least_loaded(self) -> int:
        members = self._members
        if self._next_least >= self._least_end:
            self._least_size += 1
            while self._least_end < len(members) and self._sizes[members[self._least_end]] == self._least_size:
                self._least_end += 1
            self._next_least = 0
        found = members[self._next_least]
        self._next_least += 1
        return found

    def next_most_loaded(self) -> int | None:
        members = self._members
        if self._next_most < self._most_start:
            if self._most_end <= self._most_start and self._most_start > 0:
                self._most_size = self._sizes[members[self._most_start - 1]]
            else:
                self._most_size -= 1
            while self._most_start > 0 and self._sizes[members[self._most_start - 1]] == self._most_size:
                self._most_start -= 1
            self._next_most = self._most_end - 1
        if self._next_most < 0:
            return None
        found = members[self._next_most]
        self._next_most -= 1
        return found

    def exclude_most_loaded(self) -> None:
        """The member returned last has no partition of the topic to give."""
        members, last, end = self._members, self._next_most + 1, self._most_end - 1
        members[last], members[end] = members[end], members[last]
        self._most_end = end
