"""Values that the machine, the disk and the shell share."""

from __future__ import annotations

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
"""No quorum reaches this many epochs: a higher one is corrupt, and the epoch field would soon overflow."""

ControlRecord = LeaderChangeMessage | SnapshotHeaderRecord | SnapshotFooterRecord | KRaftVersionRecord | VotersRecord
"""Records that the quorum writes for itself into the metadata log and its snapshots."""


class QuorumState(msgspec.Struct, frozen=True):
    """What a replica persists: its epoch, its vote, the leader it follows."""

    epoch: int = 0
    leader_id: int = NO_NODE
    voted_id: int = NO_NODE
    voted_directory_id: Uuid = ZERO_UUID


class KnownLeader(msgspec.Struct, frozen=True):
    """The leader of an epoch (-1: unknown) and its endpoint, as far as this replica knows."""

    epoch: int
    id: int
    endpoint: Endpoint | None


class FormerLeader(msgspec.Struct, frozen=True):
    """The leader of an earlier epoch, and when this replica, then its follower, last had contact with it."""

    id: int
    epoch: int
    last_contact_ms: int


class SnapshotId(msgspec.Struct, frozen=True, order=True):
    end_offset: int
    epoch: int

    @property
    def file_name(self) -> str:
        return f"{self.end_offset:020d}-{self.epoch:010d}.checkpoint"

    @property
    def is_bootstrap(self) -> bool:
        """The snapshot 0-0 that formatting writes: the first voters, no metadata."""
        return self.end_offset == 0 and self.epoch == 0
