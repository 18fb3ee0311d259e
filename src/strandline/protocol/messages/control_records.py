"""Control records: transaction markers, and the control records of the metadata log."""

from __future__ import annotations

from typing import Annotated

from strandline.model.ids import ZERO_UUID
from strandline.protocol.types import Message, Struct, Value, i16, i32, i64, since, string, u16, uuid


class ControlRecordTypeSchema(Message, versions=(0, 0)):
    """The key of a control record, after its version."""

    type: i16 = 0


class EndTxnMarker(Message, versions=(0, 0)):
    """The value of a commit or abort marker."""

    coordinator_epoch: i32 = 0


class LeaderChangeMessage(Message, versions=(0, 1), flexible=0):
    """The first record of a quorum leader's epoch. v1 directory ids (KIP-853)."""

    version: i16 = 0
    leader_id: i32 = 0
    voters: list[LeaderChangeMessageVoter] = []
    granting_voters: list[LeaderChangeMessageVoter] = []


class LeaderChangeMessageVoter(Struct):
    voter_id: i32 = 0
    voter_directory_id: Annotated[uuid, since(1)] = ZERO_UUID


class SnapshotHeaderRecord(Message, versions=(0, 0), flexible=0):
    """The first record of a snapshot."""

    version: i16 = 0
    last_contained_log_timestamp: i64 = 0


class SnapshotFooterRecord(Message, versions=(0, 0), flexible=0):
    """The last record of a snapshot: without it the file is incomplete."""

    version: i16 = 0


class KRaftVersionRecord(Message, versions=(0, 0), flexible=0):
    """kraft.version (KIP-853)."""

    version: i16 = 0
    kraft_version: i16 = 0


class VotersRecord(Message, versions=(0, 0), flexible=0):
    """The complete set of voters (KIP-853)."""

    version: i16 = 0
    voters: list[VotersRecordVoter] = []


class KRaftVersionFeature(Value):
    min_supported_version: i16 = 0
    max_supported_version: i16 = 0


class VotersRecordVoter(Struct):
    voter_id: i32 = 0
    voter_directory_id: uuid = ZERO_UUID
    endpoints: list[Endpoint] = []
    kraft_version_feature: KRaftVersionFeature = KRaftVersionFeature()


class Endpoint(Struct):
    name: string = ""
    host: string = ""
    port: u16 = 0
