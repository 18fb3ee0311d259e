"""Requests of the clients and the responses they received, each with the number of disk operations done by then.

Disk operations serve as the clock: a response received after c of them is a promise for every power loss at operation c
or later.
"""

from __future__ import annotations

import msgspec

from strandline.model.ids import TopicPartition, Uuid

NEVER = 1 << 60


class TopicState(msgspec.Struct, frozen=True):
    id: Uuid | None
    """None until a response has named it."""
    partitions: int
    configs: tuple[tuple[str, str], ...]

    def like(self, other: TopicState) -> bool:
        same_id = self.id is None or other.id is None or self.id == other.id
        return same_id and (self.partitions, self.configs) == (other.partitions, other.configs)


class TopicChange(msgspec.Struct):
    doing: str
    after: TopicState | None
    """None: the topic does not exist."""
    sent_at: int
    acknowledged_at: int = NEVER


class Sent(msgspec.Struct):
    topic: str
    value: bytes
    idempotent: bool
    sent_at: int
    acknowledged_at: int = NEVER
    partition: int = -1
    offset: int = -1
    topic_id: Uuid | None = None


class Deletion(msgspec.Struct):
    """DeleteRecords of everything before an offset."""

    topic_id: Uuid | None
    partition: TopicPartition
    before: int
    sent_at: int


class History(msgspec.Struct):
    formatted_at: int = 0
    topics: dict[str, list[TopicChange]] = msgspec.field(default_factory=dict)
    sent: list[Sent] = msgspec.field(default_factory=list)
    deletions: list[Deletion] = msgspec.field(default_factory=list)
    producer_ids: list[tuple[int, int]] = msgspec.field(default_factory=list)
    """(Received at, id)."""

    def possible(self, topic: str, operation: int) -> list[TopicState | None]:
        """Allowed states of the topic after a power loss at this operation: as last acknowledged, or requested
        since."""
        states: list[TopicState | None] = [None]
        for change in self.topics.get(topic, []):
            if change.acknowledged_at <= operation:
                states = [change.after]
            elif change.sent_at <= operation:
                states.append(change.after)
        return states
