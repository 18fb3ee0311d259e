"""How the partitions of a group member change: what both membership protocols report to their shell."""

from __future__ import annotations

import msgspec

from strandline.model.ids import TopicPartition


class Change(msgspec.Struct, frozen=True):
    """What the application has to give up, then what it receives."""

    revoked: tuple[TopicPartition, ...] = ()
    assigned: tuple[TopicPartition, ...] = ()
    is_lost: bool = False
    """`revoked` may have been assigned to other members already: their offsets cannot be committed any more."""
