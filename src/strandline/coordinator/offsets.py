"""Committed offsets of the groups of one shard, with those of open transactions beside them.

Owned by the group machine. An offset of a transaction is kept per producer until the transaction's marker: COMMIT moves
it into the group's offsets, unless a later record has been written for the partition; ABORT drops it. All maps are on
the shard's timeline, so a read at the committed moment never shows an offset that could still be reverted.
"""

from __future__ import annotations

import msgspec

from strandline.coordinator.machine import Producer
from strandline.coordinator.records import CoordinatorRecord
from strandline.model.ids import ZERO_UUID, Uuid
from strandline.model.timeline import LATEST, Timeline, TimelineMap
from strandline.protocol.messages.group_records import OffsetCommitKey, OffsetCommitValue

OffsetKey = tuple[str, int]
"""Topic and partition."""


class CommittedOffset(msgspec.Struct, frozen=True):
    offset: int
    leader_epoch: int
    metadata: str
    commit_timestamp_ms: int
    expire_timestamp_ms: int = -1
    """Only where an old client asked for a retention of its own (OffsetCommit 2-4)."""
    topic_id: Uuid = ZERO_UUID
    """Zero in records that were written before offsets had topic ids."""
    record_offset: int = -1
    """Where it was written in the log of the internal topic: of two commits the later one counts."""

    def belongs_to(self, topic_id: Uuid) -> bool:
        """Whether it was committed for this topic, and not for a deleted one of the same name."""
        return self.topic_id in (topic_id, ZERO_UUID)


class Offsets:
    def __init__(self, timeline: Timeline) -> None:
        self._timeline = timeline
        self._committed: dict[str, TimelineMap[OffsetKey, CommittedOffset]] = {}
        self._pending: dict[int, dict[str, TimelineMap[OffsetKey, CommittedOffset]]] = {}
        """By producer id and group."""
        self._producers: dict[str, dict[int, None]] = {}
        """Of each group: producers that may have pending offsets."""
        self._groups: dict[str, dict[str, None]] = {}
        """Of each topic: groups that may have offsets of it."""

    def replay(
        self, group_id: str, topic: str, partition: int, value: CommittedOffset | None, producer_id: int
    ) -> None:
        """`value` None deletes the offset; `producer_id` -1 outside of transactions."""
        if producer_id == -1:
            offsets = self._of(group_id)
        else:
            groups = self._pending.setdefault(producer_id, {})
            if group_id not in groups:
                groups[group_id] = TimelineMap(self._timeline)
                self._producers.setdefault(group_id, {})[producer_id] = None
            offsets = groups[group_id]
        if value is not None:
            offsets[topic, partition] = value
            self._groups.setdefault(topic, {})[group_id] = None
            return
        if (topic, partition) in offsets:
            del offsets[topic, partition]
        if producer_id == -1:
            # A deletion also drops what transactions have written: the topic or the group is gone.
            for pending in self._pending_maps(group_id):
                if (topic, partition) in pending:
                    del pending[topic, partition]

    def replay_marker(self, producer: Producer, *, commit: bool) -> None:
        groups = self._pending.get(producer.producer_id, {})
        for group_id, pending in groups.items():
            for key, value in list(pending.items()):
                if commit:
                    known = self._of(group_id).get(key)
                    if known is None or known.record_offset < value.record_offset:
                        self._of(group_id)[key] = value
                del pending[key]

    def get(self, group_id: str, topic: str, partition: int, at: int = LATEST) -> CommittedOffset | None:
        offsets = self._committed.get(group_id)
        return None if offsets is None else offsets.get((topic, partition), at)

    def all_of(self, group_id: str, at: int = LATEST) -> list[tuple[OffsetKey, CommittedOffset]]:
        offsets = self._committed.get(group_id)
        return [] if offsets is None else list(offsets.items(at))

    def count(self) -> int:
        """Of all groups, without those of open transactions."""
        return sum(len(offsets) for offsets in self._committed.values())

    def is_pending(self, group_id: str, topic: str, partition: int, at: int = LATEST) -> bool:
        """Whether an open transaction has written an offset of this partition."""
        return any(pending.get((topic, partition), at) is not None for pending in self._pending_maps(group_id))

    def pending_of(self, group_id: str, at: int = LATEST) -> list[OffsetKey]:
        """Partitions with an offset of an open transaction."""
        return [key for pending in self._pending_maps(group_id) for key in pending.keys(at)]

    def keys_of(self, group_id: str) -> list[OffsetKey]:
        """Partitions with an offset, committed or of an open transaction."""
        committed = [key for key, _ in self.all_of(group_id)]
        return list(dict.fromkeys((*committed, *self.pending_of(group_id))))

    def groups_of(self, topic: str) -> list[str]:
        """Groups that may have offsets of this topic."""
        return list(self._groups.get(topic, ()))

    def forget_empty(self) -> None:
        """Frees what groups and producers without offsets have left. Called now and then; nothing depends on it."""
        self._committed = {group_id: offsets for group_id, offsets in self._committed.items() if not offsets.is_blank}
        self._pending = {
            producer_id: kept
            for producer_id, groups in self._pending.items()
            if (kept := {group_id: offsets for group_id, offsets in groups.items() if not offsets.is_blank})
        }
        self._producers = {}
        for producer_id, groups in self._pending.items():
            for group_id in groups:
                self._producers.setdefault(group_id, {})[producer_id] = None
        kept_groups = {
            topic: {group_id: None for group_id in groups if group_id in self._committed or group_id in self._producers}
            for topic, groups in self._groups.items()
        }
        self._groups = {topic: groups for topic, groups in kept_groups.items() if groups}

    def _pending_maps(self, group_id: str) -> list[TimelineMap[OffsetKey, CommittedOffset]]:
        return [self._pending[producer_id][group_id] for producer_id in self._producers.get(group_id, ())]

    def _of(self, group_id: str) -> TimelineMap[OffsetKey, CommittedOffset]:
        offsets = self._committed.get(group_id)
        if offsets is None:
            offsets = self._committed[group_id] = TimelineMap(self._timeline)
        return offsets


def offset_record(group_id: str, topic: str, partition: int, committed: CommittedOffset) -> CoordinatorRecord:
    value = OffsetCommitValue(
        offset=committed.offset,
        leader_epoch=committed.leader_epoch,
        metadata=committed.metadata,
        commit_timestamp=committed.commit_timestamp_ms,
        expire_timestamp=committed.expire_timestamp_ms,
        topic_id=committed.topic_id,
    )
    # Version 1 is the only one with an expiry.
    version = 1 if committed.expire_timestamp_ms != -1 else None
    return CoordinatorRecord(OffsetCommitKey(group_id, topic, partition), value, version)


def offset_tombstone(group_id: str, topic: str, partition: int) -> CoordinatorRecord:
    return CoordinatorRecord(OffsetCommitKey(group_id, topic, partition), None)
