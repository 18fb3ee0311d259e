"""Who votes: the voter set, as configured (`controller.quorum.voters`) or as the log says (VotersRecord, KIP-853).

A replica is known by its key: the node's id and the id of the directory that holds its log, so that a node which has
lost its disk is somebody new. While voters are configured (kraft.version 0) nobody knows their directories, and a voter
is known by its id alone.
"""

from __future__ import annotations

from typing import NamedTuple, TypeVar

import msgspec

from strandline.metadata.features import KRAFT_VERSION, SUPPORTED_FEATURES
from strandline.model.ids import ZERO_UUID, Endpoint, Uuid
from strandline.protocol.messages.control_records import (
    Endpoint as EndpointData,
)
from strandline.protocol.messages.control_records import (
    KRaftVersionFeature,
    KRaftVersionRecord,
    VotersRecord,
    VotersRecordVoter,
)
from strandline.protocol.types import Message

MAX_KRAFT_VERSION = SUPPORTED_FEATURES[KRAFT_VERSION][1]

T = TypeVar("T")


class ReplicaKey(NamedTuple):
    id: int
    directory_id: Uuid = ZERO_UUID

    def matches(self, known: ReplicaKey) -> bool:
        """Whether this is the replica that is `known`, perhaps by its id alone."""
        return self.id == known.id and known.directory_id in (ZERO_UUID, self.directory_id)

    def __str__(self) -> str:
        return str(self.id) if self.directory_id == ZERO_UUID else f"{self.id} ({self.directory_id})"


class Voter(msgspec.Struct, frozen=True):
    id: int
    directory_id: Uuid = ZERO_UUID
    listeners: tuple[tuple[str, Endpoint], ...] = ()
    """(listener name, endpoint), the first of them the default for the quorum."""
    kraft_versions: tuple[int, int] = (0, MAX_KRAFT_VERSION)

    @property
    def key(self) -> ReplicaKey:
        return ReplicaKey(self.id, self.directory_id)

    @property
    def endpoint(self) -> Endpoint | None:
        return self.listeners[0][1] if self.listeners else None

    def endpoint_for(self, listener_name: str) -> Endpoint | None:
        """At the listener of that name, otherwise at the default one."""
        return dict(self.listeners).get(listener_name, self.endpoint)

    def supports(self, kraft_version: int) -> bool:
        return self.kraft_versions[0] <= kraft_version <= self.kraft_versions[1]


class VoterSet(msgspec.Struct, frozen=True):
    """By id."""

    voters: tuple[Voter, ...]

    def __post_init__(self) -> None:
        ids = [voter.id for voter in self.voters]
        if ids != sorted(set(ids)):
            raise ValueError(f"voters must be given once each, by id: {ids}")

    def __len__(self) -> int:
        return len(self.voters)

    def voter(self, node_id: int) -> Voter | None:
        for voter in self.voters:
            if voter.id == node_id:
                return voter
        return None

    def voter_with_key(self, key: ReplicaKey) -> Voter | None:
        """The voter that this replica is."""
        voter = self.voter(key.id)
        return voter if voter is not None and key.matches(voter.key) else None

    def describes(self, me: Voter) -> bool:
        """Whether what is said of this voter is so. Nothing is said of somebody else."""
        voter = self.voter_with_key(me.key)
        return voter is None or (dict(voter.listeners), voter.kraft_versions) == (dict(me.listeners), me.kraft_versions)

    def with_voter(self, added: Voter) -> VoterSet:
        """Added, or in place of the one with its id."""
        others = [voter for voter in self.voters if voter.id != added.id]
        return VoterSet(tuple(sorted([*others, added], key=lambda voter: voter.id)))

    def without(self, node_id: int) -> VoterSet:
        return VoterSet(tuple(voter for voter in self.voters if voter.id != node_id))

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


class VoterHistory:
    """Which voters, and which kraft.version, each part of the log was written under.

    Kept by whoever keeps a log, along with it: told of every control record that is appended, by whichever way, and of
    every truncation, so that a change of voters which is cut off has never been. A change counts from its record on,
    whether or not it is committed (KIP-853).
    """

    def __init__(self, first: VoterSet, kraft_version: int = 0) -> None:
        """`first`: configured (kraft.version 0), or as formatting named them (kraft.version 1)."""
        self._configured = first
        self._voters: list[tuple[int, VoterSet]] = [(-1, first)]
        self._versions: list[tuple[int, int]] = [(-1, kraft_version)]

    @property
    def voters(self) -> VoterSet:
        return self._voters[-1][1]

    @property
    def voters_offset(self) -> int:
        """Where the record stands that names them, -1 when none does."""
        return self._voters[-1][0]

    @property
    def kraft_version(self) -> int:
        return self._versions[-1][1]

    def on_record(self, offset: int, record: Message) -> None:
        """A record of the log, in order; other kinds are passed over."""
        if isinstance(record, VotersRecord):
            self._voters.append((offset, VoterSet.of_record(record)))
        elif isinstance(record, KRaftVersionRecord):
            self._versions.append((offset, record.kraft_version))

    def on_truncated(self, end_offset: int) -> None:
        """The log now ends there."""
        while self._voters[-1][0] >= end_offset:
            self._voters.pop()
        while self._versions[-1][0] >= end_offset:
            self._versions.pop()

    def on_snapshot(self, end_offset: int, kraft_version: int, voters: VoterSet | None) -> None:
        """The log begins, and ends, where a snapshot ends that was written under these."""
        last = end_offset - 1
        self._versions = [(last, kraft_version)]
        self._voters = [(-1, self._configured) if voters is None else (last, voters)]

    def before(self, offset: int) -> tuple[int, VoterSet]:
        """(kraft.version, voters) as the records below this offset say: what a snapshot that ends there tells."""
        version = next(level for at, level in reversed(self._versions) if at < offset or at == self._versions[0][0])
        voters = next(voters for at, voters in reversed(self._voters) if at < offset or at == self._voters[0][0])
        return version, voters

    def forget_before(self, offset: int) -> None:
        """The log no longer reaches back below this offset, nor will it be truncated there."""
        self._voters = _from(self._voters, offset)
        self._versions = _from(self._versions, offset)


def _from(entries: list[tuple[int, T]], offset: int) -> list[tuple[int, T]]:
    """Those at or above the offset, and the last before them."""
    above = [entry for entry in entries if entry[0] >= offset]
    below = entries[: len(entries) - len(above)]
    return below[-1:] + above
