"""What the machine, its disk and its shell hand to one another."""

from __future__ import annotations

from typing import NamedTuple

import msgspec

from strandline.model.ids import ZERO_UUID, Endpoint, Uuid
from strandline.protocol.messages.control_records import (
    KRaftVersionRecord,
    LeaderChangeMessage,
    SnapshotFooterRecord,
    SnapshotHeaderRecord,
    VotersRecord,
)

NO_NODE = -1
LAST_EPOCH = 2**31 - 2**20
"""No quorum has had so many elections: a larger number is damage, and soon the protocol would have no more of them."""

ControlRecord = LeaderChangeMessage | SnapshotHeaderRecord | SnapshotFooterRecord | KRaftVersionRecord | VotersRecord
"""What the quorum tells itself, in its own log."""


class QuorumState(msgspec.Struct, frozen=True):
    """What a replica must never forget: its epoch, its vote, the leader it follows."""

    epoch: int = 0
    leader_id: int = NO_NODE
    voted_id: int = NO_NODE
    voted_directory_id: Uuid = ZERO_UUID


class KnownLeader(NamedTuple):
    """Who leads which epoch (-1: nobody is known to), and where, as far as this replica knows."""

    epoch: int
    id: int
    endpoint: Endpoint | None


class FormerLeader(msgspec.Struct, frozen=True):
    """Who led an epoch, and when this replica, which followed it, last heard from it."""

    id: int
    epoch: int
    heard_ms: int


class SnapshotId(msgspec.Struct, frozen=True, order=True):
    end_offset: int
    epoch: int

    @property
    def file_name(self) -> str:
        return f"{self.end_offset:020d}-{self.epoch:010d}.checkpoint"

    @property
    def is_bootstrap(self) -> bool:
        """The one that formatting makes: voters only, no metadata."""
        return self.end_offset == 0 and self.epoch == 0
