"""Whether a member of a consumer group may commit or fetch offsets.

A member commits with its member epoch. An older epoch is accepted for partitions that the member has owned since that
epoch or before (KIP-1251): the commit may have overtaken the heartbeat that raised it.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from strandline.coordinator.consumer.group import ConsumerGroup
from strandline.coordinator.consumer.member import Member
from strandline.model.errors import ErrorCode, KafkaError
from strandline.model.ids import Uuid

_FIRST_VERSION_WITH_MEMBER_EPOCHS: Final = 9


def check_commit(
    group: ConsumerGroup,
    member_id: str,
    epoch: int,
    partitions: Iterable[tuple[str, Uuid, int]],
    version: int,
) -> Member | None:
    """The member; None for a commit from outside of an empty group. `partitions`: topic, topic id and partition."""
    if epoch < 0 and not group.has_members:
        return None
    member = group.member(member_id)
    if not member.uses_classic_protocol and version < _FIRST_VERSION_WITH_MEMBER_EPOCHS:
        raise KafkaError(
            ErrorCode.UNSUPPORTED_VERSION,
            "OffsetCommit version 9 or above must be used by members using the consumer group protocol",
        )
    _check_epoch(member, epoch, partitions)
    return member


def check_transactional_commit(
    group: ConsumerGroup,
    member_id: str,
    instance_id: str | None,
    epoch: int,
    partitions: Iterable[tuple[str, Uuid, int]],
) -> None:
    """Member id and epoch are optional in TxnOffsetCommit."""
    is_anonymous = epoch == -1 and not member_id and instance_id is None
    if is_anonymous or (epoch < 0 and not group.has_members):
        return
    _check_epoch(group.member(member_id), epoch, partitions)


def _check_epoch(member: Member, epoch: int, partitions: Iterable[tuple[str, Uuid, int]]) -> None:
    if epoch == member.member_epoch:
        return
    if epoch > member.member_epoch:
        raise _stale(member, f"Received member epoch {epoch} is newer than current member epoch {member.member_epoch}.")
    for topic, topic_id, partition in partitions:
        since = member.assigned.get(topic_id, {}).get(partition)
        if since is None:
            since = member.pending_revocation.get(topic_id, {}).get(partition)
        if since is None:
            raise _stale(member, f"Partition {topic}-{partition} is not assigned or pending revocation for member.")
        if epoch < since:
            raise _stale(
                member,
                f"Received member epoch {epoch} is older than assignment epoch {since} for partition "
                f"{topic}-{partition}.",
            )


def check_fetch(group: ConsumerGroup, at: int, member_id: str | None, epoch: int) -> None:
    """Clients that are not members name neither."""
    if member_id is None and epoch < 0:
        return
    member = group.members.get(member_id or "", at)
    if member is None:
        raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID, f"Member {member_id} is not a member of group {group.group_id}.")
    if epoch != member.member_epoch:
        raise _stale(
            member,
            f"The received member epoch {epoch} does not match the expected member epoch {member.member_epoch}.",
        )


def _stale(member: Member, why: str) -> KafkaError:
    code = ErrorCode.ILLEGAL_GENERATION if member.uses_classic_protocol else ErrorCode.STALE_MEMBER_EPOCH
    return KafkaError(code, why)
