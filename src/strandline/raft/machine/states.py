"""The states of a replica within an epoch, and which may follow which.

    from \\ to       Unattached  Prospective  Candidate  Follower  Leader  Resigned
    (start)             *            -            *          *        4        *
    Unattached          1            2            -          3        -        -
    Prospective         1            -            5          3        -        -
    Candidate           1            6            -          3        7        -
    Follower            1            2            -          3        -        -
    Leader              1            -            -          3        -        8
    Resigned            1            2            -          3        -        -

    *  as the quorum-state of an earlier life says
    1  a higher epoch is heard of; a vote is given; a Prospective is not wanted; an observer loses sight of its leader
    2  a voter's patience is over: an election timeout, or nothing fetched from the leader for too long
    3  a leader is heard of, in a higher epoch or in this one; a Prospective that is not wanted follows its leader again
    4  the only voter needs nobody else's vote
    5  a majority would vote for it: the epoch rises, and it votes for itself (KIP-996)
    6  it cannot win any more, or has not won in time
    7  a majority has voted for it
    8  it was asked to, or has not heard from a majority for too long, or is no longer a voter

Epoch, leader and vote are not in here: they outlive the process and belong to the `RaftState`. What a state holds is
forgotten when it is left. Observers are Unattached or Followers only: they never stand for election.
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
    """Knows the epoch, but no leader that it could fetch from."""

    deadline_ms: int | None
    """When it stands for election; None for an observer, which asks around for a leader."""


class Prospective(msgspec.Struct):
    """Asks whether it would be voted for, before it disturbs anybody with a higher epoch (KIP-996)."""

    deadline_ms: int
    tally: Tally


class Candidate(msgspec.Struct):
    """Has voted for itself in a new epoch and asks the others to."""

    deadline_ms: int
    tally: Tally
    is_beaten: bool = False
    """It cannot win any more: at the deadline it begins again."""


class IncomingSnapshot(msgspec.Struct):
    """A snapshot that is being fetched because the leader's log no longer reaches back to the end of this one."""

    id: SnapshotId
    position: int = 0
    is_finishing: bool = False


class Follower(msgspec.Struct):
    """Fetches from the leader of its epoch."""

    deadline_ms: int
    """Without a successful fetch by then, the leader is given up."""
    has_fetched: bool = False
    has_caught_up: bool = False
    """It once had everything that the leader had committed in this epoch."""
    leader_has_failed: bool = False
    """Nobody is where it was. A fetch that succeeds after all disproves it."""
    leader_has_resigned: bool = False
    """It said so itself."""
    is_failing: bool = False
    """The last fetch failed: an observer asks around meanwhile."""
    snapshot: IncomingSnapshot | None = None
    failed_snapshot: SnapshotId | None = None
    """The last that came to nothing."""
    failed_snapshots: int = 0
    """Since one came whole."""
    check_voters_at_ms: int = 0
    checked_voters_offset: int | None = None
    """Which voter set was last compared with what is true of this node."""
    has_sent_voter_update: bool = False
    """To this leader, which takes note for as long as voters are configured."""


class Progress(msgspec.Struct):
    """What a leader knows of one replica that fetches from it."""

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
    """As the fetcher knows it (KIP-1166)."""
    max_bytes: int
    deadline_ms: int


class VoterChange(msgspec.Struct):
    """The one change of voters, or of their kind, that may be under way."""

    token: object | None
    """None once it is answered, though not yet committed."""
    response: type[AddRaftVoterResponse | RemoveRaftVoterResponse | UpdateFeaturesResponse]
    deadline_ms: int
    joining: Voter | None = None
    """A voter to be added, while it is asked which versions it speaks."""
    probe: Send | None = None
    answers_early: bool = False
    offset: int | None = None
    """Of the record that makes the change, once there is one."""


class Leader(msgspec.Struct):
    """Writes the log of its epoch, and knows how far each replica has it."""

    epoch_start: int
    """Where its first record stands. What came before is committed only together with that (Raft, section 5.4.2)."""
    announce_at_ms: int
    check_quorum_at_ms: int | None
    high_watermark: int | None = None
    """Unknown until a record of this very epoch is held by a majority."""
    progress: dict[ReplicaKey, Progress] = msgspec.field(default_factory=dict)
    heard_from: dict[int, None] = msgspec.field(default_factory=dict)
    """Voters that have fetched since a majority of them last had."""
    parked: list[ParkedFetch] = msgspec.field(default_factory=list)
    change: VoterChange | None = None
    former_leader: FormerLeader | None = None
    """Of the epoch right before this one, if this replica has followed it."""
    described: dict[int, Voter] = msgspec.field(default_factory=dict)
    """What configured voters have told of themselves (UpdateRaftVoter), for when they are written into the log."""

    def progress_of(self, replica: ReplicaKey) -> Progress:
        """Of somebody who has never fetched: none."""
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
    """Led this epoch, does not any more, and will not vote for anybody in it."""

    deadline_ms: int
    successors: tuple[ReplicaKey, ...] = ()
    """Those who have most of its log first."""
    unacknowledged: dict[int, None] = msgspec.field(default_factory=dict)
    """Voters that have not acknowledged the resignation; nobody after a mere restart."""


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
