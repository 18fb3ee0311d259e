"""The voter set, from the config (`controller.quorum.voters`) or from the log (VotersRecord, KIP-853).

The key of a replica is its node id and the id of the directory that holds its log: a node that has lost its disk is a
new replica. With configured voters (kraft.version 0) the directory ids are unknown, and the node id alone is the key.
"""

from __future__ import annotations

from typing import TypeVar

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


class ReplicaKey(msgspec.Struct, frozen=True):
    id: int
    directory_id: Uuid = ZERO_UUID

    def matches(self, known: ReplicaKey) -> bool:
        """Whether `known` is the key of this replica; it may lack the directory id."""
        return self.id == known.id and known.directory_id in (ZERO_UUID, self.directory_id)

    def __str__(self) -> str:
        return str(self.id) if self.directory_id == ZERO_UUID else f"{self.id} ({self.directory_id})"


class Voter(msgspec.Struct, frozen=True):
    id: int
    directory_id: Uuid = ZERO_UUID
    listeners: tuple[tuple[str, Endpoint], ...] = ()
    """(listener name, endpoint); the first is the default for the quorum."""
    kraft_versions: tuple[int, int] = (0, MAX_KRAFT_VERSION)

    @property
    def key(self) -> ReplicaKey:
        return ReplicaKey(self.id, self.directory_id)

    @property
    def endpoint(self) -> Endpoint | None:
        return self.listeners[0][1] if self.listeners else None

    def endpoint_for(self, listener_name: str) -> Endpoint | None:
        """The endpoint at the listener of that name, otherwise at the default listener."""
        return dict(self.listeners).get(listener_name, self.endpoint)

    def supports(self, kraft_version: int) -> bool:
        return self.kraft_versions[0] <= kraft_version <= self.kraft_versions[1]


class VoterSet(msgspec.Struct, frozen=True):
    voters: tuple[Voter, ...]
    """Sorted by id."""

    def __post_init__(self) -> None:
        ids = [voter.id for voter in self.voters]
        if ids != sorted(set(ids)):
            raise ValueError(f"voters must be unique and sorted by id: {ids}")

    def __len__(self) -> int:
        return len(self.voters)

    def voter(self, node_id: int) -> Voter | None:
        for voter in self.voters:
            if voter.id == node_id:
                return voter
        return None

    def voter_with_key(self, key: ReplicaKey) -> Voter | None:
        voter = self.voter(key.id)
        return voter if voter is not None and key.matches(voter.key) else None

    def describes(self, me: Voter) -> bool:
        """Whether the entry of this voter has its current listeners and versions; True when it is not a voter."""
        voter = self.voter_with_key(me.key)
        return voter is None or (dict(voter.listeners), voter.kraft_versions) == (dict(me.listeners), me.kraft_versions)

    def with_voter(self, added: Voter) -> VoterSet:
        """This set with a voter added, or in place of the voter with its id."""
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
    """The voter sets and kraft.versions of all parts of the log.

    The log updates it with every control record that is appended and with every truncation, so that a change of voters
    that is truncated is undone. A change counts from its record on, committed or not (KIP-853).
    """

    def __init__(self, first: VoterSet, kraft_version: int = 0) -> None:
        """`first`: from the config (kraft.version 0), or from formatting (kraft.version 1)."""
        self._configured = first
        self._voters: list[tuple[int, VoterSet]] = [(-1, first)]
        self._versions: list[tuple[int, int]] = [(-1, kraft_version)]

    @property
    def voters(self) -> VoterSet:
        return self._voters[-1][1]

    @property
    def voters_offset(self) -> int:
        """The offset of the last VotersRecord; -1 if there is none."""
        return self._voters[-1][0]

    @property
    def kraft_version(self) -> int:
        return self._versions[-1][1]

    def on_record(self, offset: int, record: Message) -> None:
        """Takes the control records of the log in order; ignores other types."""
        if isinstance(record, VotersRecord):
            self._voters.append((offset, VoterSet.of_record(record)))
        elif isinstance(record, KRaftVersionRecord):
            self._versions.append((offset, record.kraft_version))

    def on_truncated(self, end_offset: int) -> None:
        """The log now ends at `end_offset`."""
        while self._voters[-1][0] >= end_offset:
            self._voters.pop()
        while self._versions[-1][0] >= end_offset:
            self._versions.pop()

    def on_snapshot(self, end_offset: int, kraft_version: int, voters: VoterSet | None) -> None:
        """The log starts and ends where a snapshot with these voters ends."""
        last = end_offset - 1
        self._versions = [(last, kraft_version)]
        self._voters = [(-1, self._configured) if voters is None else (last, voters)]

    def before(self, offset: int) -> tuple[int, VoterSet]:
        """(kraft.version, voters) of the records below this offset: what a snapshot that ends there contains."""
        version = next(level for at, level in reversed(self._versions) if at < offset or at == self._versions[0][0])
        voters = next(voters for at, voters in reversed(self._voters) if at < offset or at == self._voters[0][0])
        return version, voters

    def forget_before(self, offset: int) -> None:
        """The log starts at this offset now and will not be truncated below it."""
        self._voters = _from(self._voters, offset)
        self._versions = _from(self._versions, offset)


def _from(entries: list[tuple[int, T]], offset: int) -> list[tuple[int, T]]:
    """The entries at or above the offset, and the last one before them."""
    above = [entry for entry in entries if entry[0] >= offset]
    below = entries[: len(entries) - len(above)]
    return below[-1:] + above
