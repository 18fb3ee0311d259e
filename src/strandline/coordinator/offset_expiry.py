"""Offsets that are no longer kept (`offsets.retention.minutes`), by Kafka's rules.

- A group that only commits offsets: each offset, counted from its commit.
- A group with a protocol that is empty: each offset, counted from when the group became empty.
- A consumer group (KIP-848): offsets of topics that no member subscribes to, counted from their commit.
- A classic group of consumers with members: offsets of topics that no member subscribes to, counted from their commit.
- Other groups with members keep everything. An offset with an expiry of its own (OffsetCommit 2-4) goes by that.

Offsets of partitions with an open transaction stay. An empty group without offsets is removed.
"""

from __future__ import annotations

from collections.abc import Iterable

from strandline.coordinator.classic.group import ClassicGroup, State
from strandline.coordinator.consumer.group import ConsumerGroup
from strandline.coordinator.decision import Decision, Now
from strandline.coordinator.offsets import CommittedOffset, Offsets, offset_tombstone

Group = ClassicGroup | ConsumerGroup


def expire_offsets(offsets: Offsets, groups: Iterable[Group], retention_ms: int, now: Now) -> Decision[None]:
    decision = Decision(None, is_atomic=False)
    for group in groups:
        pending = frozenset(offsets.pending_of(group.group_id))
        kept = bool(pending)
        for (topic, partition), committed in offsets.all_of(group.group_id):
            if (topic, partition) not in pending and _is_expired(group, topic, committed, retention_ms, now.wall_ms):
                decision.records.append(offset_tombstone(group.group_id, topic, partition))
            else:
                kept = True
        if not kept and _is_empty(group):
            decision.records += group.tombstones()
    return decision


def _is_empty(group: Group) -> bool:
    return group.state is State.EMPTY if isinstance(group, ClassicGroup) else not group.has_members


def _is_expired(group: Group, topic: str, committed: CommittedOffset, retention_ms: int, wall_ms: int) -> bool:
    if not group.may_expire_offsets_of(topic):
        return False
    if committed.expire_timestamp_ms != -1:
        return wall_ms >= committed.expire_timestamp_ms
    since_ms = committed.commit_timestamp_ms
    if isinstance(group, ClassicGroup) and group.state is State.EMPTY and group.protocol_type is not None:
        since_ms = since_ms if group.state_timestamp_ms == -1 else group.state_timestamp_ms
    return wall_ms - since_ms >= retention_ms
