"""Groups as their coordinators describe them: the results of `admin/groups`."""

from __future__ import annotations

import msgspec

from strandline.model.ids import TopicPartition


class GroupListing(msgspec.Struct, frozen=True):
    group_id: str
    type: str
    """`classic` or `consumer`; empty for brokers older than KIP-848."""
    protocol_type: str
    state: str
    coordinator: int


class MemberDescription(msgspec.Struct, frozen=True):
    member_id: str
    instance_id: str | None
    client_id: str
    host: str
    topics: tuple[str, ...]
    assigned: tuple[TopicPartition, ...]
    epoch: int | None = None
    """The member epoch in consumer groups (KIP-848)."""
    target: tuple[TopicPartition, ...] | None = None


class GroupDescription(msgspec.Struct, frozen=True):
    group_id: str
    type: str
    protocol_type: str
    state: str
    assignor: str
    coordinator: int
    members: tuple[MemberDescription, ...]
    epoch: int | None = None

    @property
    def is_active(self) -> bool:
        """Whether it has members, so that its offsets belong to them."""
        return self.state not in ("Empty", "Dead")
