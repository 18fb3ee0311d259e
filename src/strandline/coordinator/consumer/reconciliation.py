"""The next step of a member from its current assignment to its target assignment.

    state                   leaves it when                                         to
    STABLE                  the target has another epoch                           any of the three
    UNREVOKED_PARTITIONS    the member no longer reports a partition that it       any of the three
                            was asked to revoke
    UNRELEASED_PARTITIONS   at every heartbeat                                     any of the three

From the current and the target assignment: `assigned` keeps what is in both; what is only in the current one is to be
revoked; what is only in the target is assigned unless another member still owns it.

    to revoke, and the member may still own it     UNREVOKED_PARTITIONS in its current epoch, without those partitions
    owned by others, otherwise                     UNRELEASED_PARTITIONS in the target epoch
    otherwise                                      STABLE in the target epoch

So a member moves to the target epoch only after it has revoked everything, and commits with its former epoch are valid
until then.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import msgspec

from strandline.coordinator.consumer.member import (
    NO_PARTITIONS,
    Assignment,
    Member,
    MemberState,
    OwnedPartitions,
    owns_any,
)
from strandline.model.errors import ErrorCode, KafkaError
from strandline.model.ids import Uuid

ANY: Final = frozenset({MemberState.STABLE, MemberState.UNREVOKED_PARTITIONS, MemberState.UNRELEASED_PARTITIONS})
LEGAL_MOVES: Final = {state: ANY for state in MemberState}
"""Every state can follow every state: the target may have changed meanwhile."""


class Target(msgspec.Struct, frozen=True):
    """What a member is reconciled with."""

    epoch: int
    assignment: Assignment
    owner: Callable[[Uuid, int], str | None]
    """The member that owns a partition now."""
    is_subscribed_to: Callable[[Uuid], bool]
    """Whether the member subscribes to a topic, which may have changed since the target was computed."""


def reconcile(member: Member, target: Target, owned: Assignment | None, *, has_subscription_changed: bool) -> Member:
    """The member after its next step, or the same member. `owned`: what it reports to own; None: it did not say."""
    if member.state is MemberState.STABLE:
        if member.member_epoch != target.epoch:
            return _next(member, target, owned, member.member_epoch)
        return _without_unsubscribed(member, target, owned) if has_subscription_changed else member
    if member.state is MemberState.UNREVOKED_PARTITIONS:
        if owns_any(owned, member.pending_revocation):
            return _without_unsubscribed(member, target, owned) if has_subscription_changed else member
        return _next(member, target, owned, member.member_epoch)
    if member.state is MemberState.UNRELEASED_PARTITIONS:
        return _next(member, target, owned, member.member_epoch)
    if owned is None or owned:
        raise KafkaError(
            ErrorCode.FENCED_MEMBER_EPOCH,
            "The consumer group member is in a unknown state. The member must abandon all its partitions and rejoin.",
        )
    return _next(member, target, owned, target.epoch)


def _next(member: Member, target: Target, owned: Assignment | None, member_epoch: int) -> Member:
    kept: dict[Uuid, dict[int, int]] = {}
    to_revoke: dict[Uuid, dict[int, int]] = {}
    to_add: dict[Uuid, list[int]] = {}
    is_waiting = False
    for topic in {**target.assignment, **member.assigned}:
        wanted = target.assignment.get(topic, frozenset()) if target.is_subscribed_to(topic) else frozenset()
        current = member.assigned.get(topic, {})
        _put(kept, topic, {each: epoch for each, epoch in current.items() if each in wanted})
        _put(to_revoke, topic, {each: epoch for each, epoch in current.items() if each not in wanted})
        missing = [each for each in sorted(wanted) if each not in current]
        released = [each for each in missing if _is_released(member, target, topic, each)]
        is_waiting |= len(released) < len(missing)
        if released:
            to_add[topic] = released
    if to_revoke and owns_any(owned, to_revoke):
        return _become(member, MemberState.UNREVOKED_PARTITIONS, member_epoch, kept, to_revoke)
    for topic, partitions in to_add.items():
        kept.setdefault(topic, {}).update(dict.fromkeys(partitions, target.epoch))
    state = MemberState.UNRELEASED_PARTITIONS if is_waiting else MemberState.STABLE
    return _become(member, state, target.epoch, kept, NO_PARTITIONS)


def _is_released(member: Member, target: Target, topic: Uuid, partition: int) -> bool:
    """A partition that the member itself has revoked can be given back to it."""
    is_own = partition in member.pending_revocation.get(topic, ())
    return is_own or target.owner(topic, partition) is None


def _without_unsubscribed(member: Member, target: Target, owned: Assignment | None) -> Member:
    """Takes away the topics that the member no longer subscribes to, before a new target says so."""
    gone = {topic: epochs for topic, epochs in member.assigned.items() if not target.is_subscribed_to(topic)}
    if not gone:
        return member
    kept = {topic: epochs for topic, epochs in member.assigned.items() if topic not in gone}
    pending = {topic: dict(epochs) for topic, epochs in member.pending_revocation.items()}
    for topic, epochs in gone.items():
        pending.setdefault(topic, {}).update(epochs)
    if owns_any(owned, pending):
        return _become(member, MemberState.UNREVOKED_PARTITIONS, member.member_epoch, kept, pending)
    return msgspec.structs.replace(member.at_epoch(member.member_epoch), assigned=kept)


def _become(
    member: Member, state: MemberState, epoch: int, assigned: OwnedPartitions, pending: OwnedPartitions
) -> Member:
    assert state in LEGAL_MOVES[member.state], f"{member.member_id}: {member.state.name} to {state.name}"
    return msgspec.structs.replace(member.at_epoch(epoch), state=state, assigned=assigned, pending_revocation=pending)


def _put(topics: dict[Uuid, dict[int, int]], topic: Uuid, partitions: dict[int, int]) -> None:
    if partitions:
        topics[topic] = partitions
