"""A member of a consumer group as its records say: subscription (record 5) and current assignment (record 8)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import IntEnum
from typing import Final

import msgspec

from strandline.model.ids import Uuid
from strandline.protocol.messages.group_records import (
    ClassicMemberMetadata,
    ConsumerGroupCurrentMemberAssignmentValue,
    ConsumerGroupMemberMetadataValue,
    TopicPartitions,
)

LEAVE_EPOCH: Final = -1
STATIC_LEAVE_EPOCH: Final = -2
"""Of a static member that is expected back within its session timeout."""

OwnedPartitions = Mapping[Uuid, Mapping[int, int]]
"""By topic: the member epoch in which each partition was assigned."""
Assignment = Mapping[Uuid, frozenset[int]]
"""Partitions by topic; topics without partitions are left out."""

NO_PARTITIONS: Final[OwnedPartitions] = {}
NO_ASSIGNMENT: Final[Assignment] = {}


class MemberState(IntEnum):
    """Values are those of the record."""

    STABLE = 0
    UNREVOKED_PARTITIONS = 1
    UNRELEASED_PARTITIONS = 2
    UNKNOWN = 127
    """Written by a coordinator that knows more states."""


class Member(msgspec.Struct, frozen=True, kw_only=True):
    member_id: str
    instance_id: str | None = None
    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    subscribed_topics: tuple[str, ...] = ()
    """Sorted."""
    subscribed_regex: str | None = ""
    """Empty or None: no regular expression."""
    rebalance_timeout_ms: int = -1
    server_assignor: str | None = None
    classic: ClassicMemberMetadata | None = None
    """Of a member that uses the classic protocol."""
    member_epoch: int = 0
    previous_member_epoch: int = 0
    state: MemberState = MemberState.STABLE
    assigned: OwnedPartitions = NO_PARTITIONS
    pending_revocation: OwnedPartitions = NO_PARTITIONS
    """Partitions that the member still owns and has been asked to revoke."""

    @property
    def uses_classic_protocol(self) -> bool:
        return self.classic is not None

    def is_reconciled_to(self, assignment_epoch: int) -> bool:
        return self.state is MemberState.STABLE and self.member_epoch == assignment_epoch

    def with_subscription(self, value: ConsumerGroupMemberMetadataValue) -> Member:
        return msgspec.structs.replace(
            self,
            instance_id=value.instance_id,
            rack_id=value.rack_id,
            client_id=value.client_id,
            client_host=value.client_host,
            subscribed_topics=tuple(sorted(value.subscribed_topic_names)),
            subscribed_regex=value.subscribed_topic_regex,
            rebalance_timeout_ms=value.rebalance_timeout_ms,
            server_assignor=value.server_assignor,
            classic=value.classic_member_metadata,
        )

    def with_current_assignment(self, value: ConsumerGroupCurrentMemberAssignmentValue) -> Member:
        known = value.state in (0, 1, 2)
        return msgspec.structs.replace(
            self,
            member_epoch=value.member_epoch,
            previous_member_epoch=value.previous_member_epoch,
            state=MemberState(value.state) if known else MemberState.UNKNOWN,
            assigned=_owned(value.assigned_partitions, value.member_epoch),
            pending_revocation=_owned(value.partitions_pending_revocation, value.member_epoch),
        )

    def at_epoch(self, member_epoch: int) -> Member:
        """In the next epoch, or once more in this one."""
        return msgspec.structs.replace(self, member_epoch=member_epoch, previous_member_epoch=self.member_epoch)


def _owned(topics: Iterable[TopicPartitions], member_epoch: int) -> OwnedPartitions:
    """Records of older coordinators do not say in which epoch a partition was assigned: this one, at the latest."""
    owned: dict[Uuid, dict[int, int]] = {}
    for topic in topics:
        epochs = topic.assignment_epochs
        if epochs is None or len(epochs) != len(topic.partitions):
            epochs = [member_epoch] * len(topic.partitions)
        owned[topic.topic_id] = dict(zip(topic.partitions, epochs, strict=True))
    return owned


def owns_any(owned: Assignment | None, partitions: OwnedPartitions) -> bool:
    """Whether a member that reports `owned` may still own one of `partitions`. None: it did not report."""
    if owned is None:
        return True
    return any(partition in partitions.get(topic, ()) for topic, indexes in owned.items() for partition in indexes)


def is_subset(owned: Assignment | None, partitions: OwnedPartitions) -> bool:
    """False for a member that did not report what it owns."""
    if owned is None:
        return False
    return all(
        topic in partitions and all(partition in partitions[topic] for partition in indexes)
        for topic, indexes in owned.items()
    )
