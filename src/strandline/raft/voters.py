"""Who votes: the voter set, as configured (`controller.quorum.voters`) or as the log says (VotersRecord, KIP-853)."""

from __future__ import annotations

from dataclasses import dataclass

from strandline.model.ids import ZERO_UUID, Endpoint, Uuid
from strandline.protocol.messages.control_records import (
    Endpoint as EndpointData,
)
from strandline.protocol.messages.control_records import (
    KRaftVersionFeature,
    VotersRecord,
    VotersRecordVoter,
)

KRAFT_VERSION = "kraft.version"
MAX_KRAFT_VERSION = 1


@dataclass(frozen=True, slots=True)
class Voter:
    id: int
    directory_id: Uuid = ZERO_UUID
    listeners: tuple[tuple[str, Endpoint], ...] = ()
    """(listener name, endpoint), the first of them the default for the quorum."""
    kraft_versions: tuple[int, int] = (0, MAX_KRAFT_VERSION)


@dataclass(frozen=True, slots=True)
class VoterSet:
    """By id."""

    voters: tuple[Voter, ...]

    def __post_init__(self) -> None:
        ids = [voter.id for voter in self.voters]
        if ids != sorted(set(ids)):
            raise ValueError(f"voters must be given once each, by id: {ids}")

    def voter(self, node_id: int) -> Voter | None:
        for voter in self.voters:
            if voter.id == node_id:
                return voter
        return None

    def record(self) -> VotersRecord:
        return VotersRecord(
            version=0,
            voters=[
                VotersRecordVoter(
                    voter_id=voter.id,
                    voter_directory_id=voter.directory_id,
                    endpoints=[EndpointData(name=name, host=at.host, port=at.port) for name, at in voter.listeners],
                    kraft_version_feature=KRaftVersionFeature(
                        min_supported_version=voter.kraft_versions[0], max_supported_version=voter.kraft_versions[1]
                    ),
                )
                for voter in self.voters
            ],
        )

    @classmethod
    def of_record(cls, record: VotersRecord) -> VoterSet:
        voters = (
            Voter(
                voter.voter_id,
                voter.voter_directory_id,
                tuple((at.name, Endpoint(at.host, at.port)) for at in voter.endpoints),
                (
                    voter.kraft_version_feature.min_supported_version,
                    voter.kraft_version_feature.max_supported_version,
                ),
            )
            for voter in record.voters
        )
        return cls(tuple(sorted(voters, key=lambda voter: voter.id)))
