"""The states of a replica within an epoch, and which may follow which.

    from \\ to       Unattached  Prospective  Candidate  Follower  Leader  Resigned
    (start)             *            -            *          *        4        *
    Unattached          1            2            -          3        -        -
    Prospective         1            -            5          3        -        -
    Candidate           1            6            -          3        7        -
    Follower            1            2            -          3        -        -
    Leader              1            -            -          3        -        8
    Resigned            1            2            -          3        -        -

    *  as quorum-state says after a restart
    1  a higher epoch is observed; a vote is granted; a pre-vote is lost; an observer's fetch timeout expires
    2  a voter's election timeout or fetch timeout expires
    3  a leader is observed, in a higher or the same epoch; a pre-vote is lost and the leader is followed again
    4  a sole voter needs no election
    5  a majority granted its pre-vote: the epoch is raised, and it votes for itself (KIP-996)
    6  it cannot win the election any more, or has not won it in time
    7  a majority has voted for it
    8  its node stops, or it has lost contact with the majority, or is no longer a voter

Epoch, leader and vote are not in here: they are persistent and belong to `RaftState`. The fields of a state are dropped
when it is left. Observers are Unattached or Followers only: they never become candidates.
"""

from __future__ import annotations

from typing import Final

import msgspec

from strandline.protocol.messages.cluster import UpdateFeaturesResponse
from strandline.protocol.messages.quorum import AddRaftVoterResponse, RemoveRaftVoterResponse
from strandline.raft.machine.effects import Send
from strandline.raft.machine.majorities import Tally
from strandline.raft.machine.values import FormerLeader, SnapshotId
from strandline.raft.machine.voters import ReplicaKey, Voter


class Unattached(msgspec.Struct):
    """Knows the epoch, but no leader to fetch from."""

    deadline_ms: int | None
    """The time at which it becomes Prospective; None for an observer, which looks for the leader."""


class Prospective(msgspec.Struct):
    """Sends pre-votes, before a higher epoch would disturb a working leader (KIP-996)."""

    deadline_ms: int
    tally: Tally


class Candidate(msgspec.Struct):
    """A voter that has voted for itself in a new epoch and requests the votes of the others."""

    deadline_ms: int
    tally: Tally
    has_lost: bool = False
    """The candidate cannot win any more: at the deadline it becomes Prospective again."""


class IncomingSnapshot(msgspec.Struct):
    """A snapshot that is being fetched because the leader's log starts after the end of this log."""

    id: SnapshotId
    position: int = 0
    is_finishing: bool = False


class Follower(msgspec.Struct):
    """A replica that fetches from the leader of its epoch."""

    deadline_ms: int
    """The fetch timeout: without a successful fetch by then, this replica leaves the leader."""
    has_fetched: bool = False
    has_caught_up: bool = False
    """The follower has once had everything that the leader had committed in this epoch."""
    leader_has_failed: bool = False
    """The leader's endpoint refuses connections. A fetch that succeeds resets this."""
    leader_has_resigned: bool = False
    """The leader has sent EndQuorumEpoch."""
    is_failing: bool = False
    """The last fetch failed: an observer looks for the leader meanwhile."""
    snapshot: IncomingSnapshot | None = None
    failed_snapshot: SnapshotId | None = None
    """The last snapshot that was discarded."""
    failed_snapshots: int = 0
    """The number of snapshots discarded since the last one that was loaded."""
    check_voters_at_ms: int = 0
    checked_voters_offset: int | None = None
    """The offset of the voter set that this controller last compared with its own entry."""
    has_sent_voter_update: bool = False
    """The update was sent to this leader, which keeps it while the voters are configured (kraft.version 0)."""


class Progress(msgspec.Struct):
    """The progress of one replica that fetches from the leader."""

    end_offset: int = -1
    last_fetch_ms: int | None = None
    last_caught_up_ms: int | None = None
    leader_end_at_last_fetch: int = -1


class ParkedFetch(msgspec.Struct, frozen=True):
    token: object
    replica: ReplicaKey
    offset: int
    last_fetched_epoch: int
    high_watermark: int
    """The fetcher's own high watermark (KIP-1166)."""
    max_bytes: int
    deadline_ms: int


class VoterChange(msgspec.Struct):
    """The one change of the voters, or of kraft.version, that may be in progress."""

    token: object | None
    """None once the response is sent, even if the change is not committed yet."""
    response: type[AddRaftVoterResponse | RemoveRaftVoterResponse | UpdateFeaturesResponse]
    deadline_ms: int
    joining: Voter | None = None
    """The voter to be added, until it has named its supported versions."""
    versions_request: Send | None = None
    acknowledge_early: bool = False
    """Respond when the record is appended, before it is committed."""
    offset: int | None = None
    """The offset of the record that makes the change, once it is appended."""


class Leader(msgspec.Struct):
    """Appends to the log in its epoch and tracks the progress of each replica."""

    epoch_start: int
    """The offset of its first record. Earlier records are committed only together with it (Raft, section 5.4.2)."""
    announce_at_ms: int
    check_quorum_at_ms: int | None
    high_watermark: int | None = None
    """None until a majority holds a record of this epoch."""
    progress: dict[ReplicaKey, Progress] = msgspec.field(default_factory=dict)
    contacts: dict[int, None] = msgspec.field(default_factory=dict)
    """Voters that have fetched since the check-quorum timeout last started."""
    parked: list[ParkedFetch] = msgspec.field(default_factory=list)
    change: VoterChange | None = None
    former_leader: FormerLeader | None = None
    """The leader of the epoch before, if this replica followed it."""
    voter_updates: dict[int, Voter] = msgspec.field(default_factory=dict)
    """The entries that configured voters have sent (UpdateRaftVoter), to be written when kraft.version is raised."""

    def progress_of(self, replica: ReplicaKey) -> Progress:
        return self.progress.get(replica) or Progress()

    @property
    def deadline_ms(self) -> int:
        deadlines = [self.announce_at_ms, *(fetch.deadline_ms for fetch in self.parked)]
        if self.check_quorum_at_ms is not None:
            deadlines.append(self.check_quorum_at_ms)
        if self.change is not None:
            deadlines.append(self.change.deadline_ms)
        return min(deadlines)


class Resigned(msgspec.Struct):
    """Led this epoch, has resigned, and grants no vote in it."""

    deadline_ms: int
    successors: tuple[ReplicaKey, ...] = ()
    """The other voters, most up to date first."""
    unacknowledged: dict[int, None] = msgspec.field(default_factory=dict)
    """Voters that have not acknowledged EndQuorumEpoch; empty after a restart."""


Role = Unattached | Prospective | Candidate | Follower | Leader | Resigned

FIRST: Final = frozenset({Unattached, Candidate, Follower, Leader, Resigned})
TRANSITIONS: Final[dict[type[Role], frozenset[type[Role]]]] = {
    Unattached: frozenset({Unattached, Prospective, Follower}),
    Prospective: frozenset({Unattached, Candidate, Follower}),
    Candidate: frozenset({Unattached, Prospective, Follower, Leader}),
    Follower: frozenset({Unattached, Prospective, Follower}),
    Leader: frozenset({Unattached, Follower, Resigned}),
    Resigned: frozenset({Unattached, Prospective, Follower}),
}
