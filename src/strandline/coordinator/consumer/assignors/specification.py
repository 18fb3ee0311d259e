"""What an assignor is given, and how it works: a generator that yields between slices and returns all assignments."""

from __future__ import annotations

from collections.abc import Generator, Mapping
from typing import Final

import msgspec

from strandline.coordinator.consumer.member import Assignment
from strandline.model.ids import Uuid

SLICE: Final = 1000
"""Members or partitions per slice: a few milliseconds of work."""

GroupAssignment = dict[str, Assignment]
Sliced = Generator[None, None, GroupAssignment]


class MemberSpec(msgspec.Struct, frozen=True):
    instance_id: str | None
    topics: frozenset[Uuid]
    """That exist and that the member subscribes to."""
    current: Assignment
    """Of the last target assignment."""


class GroupSpec(msgspec.Struct, frozen=True):
    members: Mapping[str, MemberSpec]
    """By member id, in ascending order: the result must not depend on the order in which members were loaded."""
    partition_counts: Mapping[Uuid, int]
    """Of every topic that a member subscribes to."""

    @property
    def is_homogeneous(self) -> bool:
        """Whether all members subscribe to the same topics."""
        subscriptions = iter(self.members.values())
        first = next(subscriptions, None)
        if first is None:
            return True
        topics = first.topics
        # Members with the same subscription mostly share one set, which saves the comparison.
        return all(member.topics is topics or member.topics == topics for member in subscriptions)
