"""One replica of the metadata quorum, as a machine: inputs in, effects out, nothing of the outside world (KIP-595).

The driver hands in whatever happens, one input at a time, and performs the effects that come back, in order, before it
hands in the next (see `effects`). It calls `on_time` when `next_deadline_ms` has come, and whenever it likes: every
input ends with a look at what time it is. A `token` is the driver's own and comes back in a `Reply`; a request whose
token has not come back is parked. NodeFault means that an invariant is broken: the node stops.

Every input has the same shape: one conversation hears it (`election`, `announcements`, `replication`, `following`,
`snapshot`, `membership`, `joining`), and may change the `RaftState`; then whatever state the replica is in now does
what the moment asks of it (`pursue_*`), again if that led to another state. Nothing else ever sends anything, so
nothing depends on the order in which things became due.

A request or a response is handed in as decoded; requests are built in their newest version, and what an older version
cannot carry is dropped on the way (the codec's business). That a peer does not know a request, or not in this version,
is told as a response of the right type whose error code is UNSUPPORTED_VERSION.
"""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

from strandline.model.ids import Endpoint
from strandline.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from strandline.protocol.messages.fetch import FetchRequest, FetchResponse
from strandline.protocol.messages.quorum import (
    AddRaftVoterRequest,
    AddRaftVoterResponse,
    BeginQuorumEpochRequest,
    BeginQuorumEpochResponse,
    DescribeQuorumRequest,
    EndQuorumEpochRequest,
    EndQuorumEpochResponse,
    FetchSnapshotRequest,
    FetchSnapshotResponse,
    RemoveRaftVoterRequest,
    RemoveRaftVoterResponse,
    UpdateRaftVoterRequest,
    UpdateRaftVoterResponse,
    VoteRequest,
    VoteResponse,
)
from strandline.protocol.types import Message
from strandline.raft.machine import (
    announcements,
    election,
    following,
    joining,
    leader,
    membership,
    replication,
    snapshot,
)
from strandline.raft.machine.describe_quorum import describe
from strandline.raft.machine.effects import Effect, Flush, Send
from strandline.raft.machine.log_port import ReplicaLog
from strandline.raft.machine.raft_state import RaftState
from strandline.raft.machine.settings import QuorumSettings
from strandline.raft.machine.states import Candidate, Follower, Leader, Prospective, Resigned, Role, Unattached
from strandline.raft.machine.values import FormerLeader, KnownLeader, QuorumState, SnapshotId
from strandline.raft.machine.voters import Voter


class Replica:
    def __init__(
        self,
        me: Voter,
        cluster_id: str,
        log: ReplicaLog,
        state: QuorumState,
        settings: QuorumSettings,
        random: Random,
        *,
        is_controller: bool,
        bootstrap: Sequence[Endpoint],
        committed: int = 0,
    ) -> None:
        """`me` is what would stand of this node in a VotersRecord, also of a broker; its first listener is the one
        that others are asked to use. `committed`: below this offset the log is known to be committed from an earlier
        life (the snapshot's end, or a note), so it is never truncated there."""
        self._raft = RaftState(
            me,
            cluster_id,
            log,
            state,
            settings,
            random,
            is_controller=is_controller,
            bootstrap=bootstrap,
            committed=committed,
        )

    @property
    def epoch(self) -> int:
        return self._raft.epoch

    @property
    def leader(self) -> KnownLeader:
        """Nobody when it cannot be reached, or when it was this replica and it has resigned. At our own first listener
        when we lead."""
        return self._raft.active_leader

    @property
    def leader_id(self) -> int:
        """Who leads this epoch; -1 when nobody is known to, or when it was this replica and it has resigned."""
        return self._raft.active_leader.id

    @property
    def is_leader(self) -> bool:
        return isinstance(self._raft.role, Leader)

    @property
    def former_leader(self) -> FormerLeader | None:
        """Of a leader: who led the epoch right before, if it has followed that one."""
        role = self._raft.role
        return role.former_leader if isinstance(role, Leader) else None

    @property
    def is_voter(self) -> bool:
        """By the voters at the end of the log, committed or not."""
        return self._raft.is_voter

    @property
    def high_watermark(self) -> int | None:
        """Everything below it is committed; None when this replica has not heard of any. It never falls."""
        return self._raft.high_watermark

    @property
    def role(self) -> Role:
        return self._raft.role

    @property
    def state(self) -> QuorumState:
        """What is on disk once the effects handed out are performed."""
        return self._raft.quorum

    def next_deadline_ms(self) -> int | None:
        """When `on_time` must be called at the latest; it may be past. None: there is nothing to wait for."""
        raft = self._raft
        # After a cut there is no other input to go on with: it is overdue as soon as the Truncate is performed.
        deadlines = [raft.role.deadline_ms, raft.in_flight.deadline_ms, 0 if raft.is_truncating else None]
        return min((deadline_ms for deadline_ms in deadlines if deadline_ms is not None), default=None)

    def start(self, now_ms: int) -> list[Effect]:
        """The first input. A sole voter leads at once, with one Persist."""
        election.begin(self._listen(), now_ms)
        return self._settle(now_ms)

    def on_time(self, now_ms: int) -> list[Effect]:
        self._listen()
        return self._settle(now_ms)

    def on_vote(self, token: object, request: VoteRequest, now_ms: int) -> list[Effect]:
        election.on_vote(self._listen(), token, request, now_ms)
        return self._settle(now_ms)

    def on_begin_quorum_epoch(self, token: object, request: BeginQuorumEpochRequest, now_ms: int) -> list[Effect]:
        announcements.on_begin(self._listen(), token, request, now_ms)
        return self._settle(now_ms)

    def on_end_quorum_epoch(self, token: object, request: EndQuorumEpochRequest, now_ms: int) -> list[Effect]:
        announcements.on_end(self._listen(), token, request, now_ms)
        return self._settle(now_ms)

    def on_fetch(self, token: object, request: FetchRequest, now_ms: int) -> list[Effect]:
        """Answered at once, or parked until there is something to tell or its `max_wait_ms` is over."""
        replication.on_fetch(self._listen(), token, request, now_ms)
        return self._settle(now_ms)

    def on_fetch_snapshot(self, token: object, request: FetchSnapshotRequest, now_ms: int) -> list[Effect]:
        snapshot.on_fetch_snapshot(self._listen(), token, request, now_ms)
        return self._settle(now_ms)

    def on_describe_quorum(
        self, token: object, request: DescribeQuorumRequest, version: int, now_ms: int, wall_ms: int
    ) -> list[Effect]:
        raft = self._listen()
        raft.reply(token, describe(raft, request, version, now_ms, wall_ms))
        return self._settle(now_ms)

    def on_add_voter(self, token: object, request: AddRaftVoterRequest, now_ms: int) -> list[Effect]:
        """Parked until the new voter has been asked, found to be caught up, and the new voters are committed."""
        membership.on_add_voter(self._listen(), token, request, now_ms)
        return self._settle(now_ms)

    def on_remove_voter(self, token: object, request: RemoveRaftVoterRequest, now_ms: int) -> list[Effect]:
        """Parked until the remaining voters are committed."""
        membership.on_remove_voter(self._listen(), token, request, now_ms)
        return self._settle(now_ms)

    def on_update_voter(self, token: object, request: UpdateRaftVoterRequest, now_ms: int) -> list[Effect]:
        membership.on_update_voter(self._listen(), token, request, now_ms)
        return self._settle(now_ms)

    def upgrade_kraft_version(self, token: object, level: int, now_ms: int) -> list[Effect]:
        """From voters that are configured to voters that are in the log (kraft.version 0 to 1).

        Parked until it is committed; the Reply is an UpdateFeaturesResponse.
        """
        membership.upgrade_kraft_version(self._listen(), token, level, now_ms)
        return self._settle(now_ms)

    def on_response(self, send: Send, response: Message | None, refused: bool, now_ms: int) -> list[Effect]:
        """How a `Send` ended. None: it failed. `refused`: the connection ended or could not be made, *and* a fresh dial
        of that endpoint was refused, which is evidence that nobody is there; a timeout or silence never is."""
        self._listen()
        if self._raft.in_flight.is_awaited(send):
            self._on_outcome(send, response, refused, now_ms)
        return self._settle(now_ms)

    def on_appended(self, now_ms: int) -> list[Effect]:
        """As leader the driver has appended the controller's records to the page cache."""
        self._listen().emit(Flush())
        return self._settle(now_ms)

    def on_flushed(self, end_offset: int, now_ms: int) -> list[Effect]:
        """The log as it is now is synced up to `end_offset`. (A sync does not cover what replaced what was cut off.)"""
        raft = self._listen()
        raft.flushed_offset = max(raft.flushed_offset, min(end_offset, raft.log.end_offset))
        return self._settle(now_ms)

    def on_snapshot_loaded(self, snapshot_id: SnapshotId, now_ms: int) -> list[Effect]:
        """`FinishSnapshot` is done: the log begins and ends where the snapshot ends."""
        snapshot.on_snapshot_loaded(self._listen(), snapshot_id, now_ms)
        return self._settle(now_ms)

    def on_snapshot_failed(self, snapshot_id: SnapshotId, why: str, now_ms: int) -> list[Effect]:
        """What was fetched is not a whole snapshot, or there is no room for it: it is given up, and the log is
        fetched again."""
        snapshot.on_snapshot_failed(self._listen(), snapshot_id, why, now_ms)
        return self._settle(now_ms)

    def resign(self, now_ms: int) -> list[Effect]:
        """The leader's node stops, or its controller gave up: the others are asked to elect somebody else at once.

        Nothing happens when this replica does not lead.
        """
        raft = self._listen()
        if isinstance(raft.role, Leader):
            announcements.resign(raft, raft.role, now_ms)
        return self._settle(now_ms)

    def _listen(self) -> RaftState:
        """An input begins: what the last one asked for has been done."""
        self._raft.is_truncating = False
        return self._raft

    def _settle(self, now_ms: int) -> list[Effect]:
        """An input ends: whatever the state and the time call for is done, until there is nothing more."""
        raft = self._raft
        for send in raft.in_flight.expired(now_ms):
            if raft.in_flight.is_awaited(send):
                self._on_outcome(send, None, False, now_ms)
        settled: Role | None = None
        while settled is not raft.role:
            settled = raft.role
            _poll(raft, now_ms)
        return raft.take_effects()

    def _on_outcome(self, send: Send, response: Message | None, refused: bool, now_ms: int) -> None:
        raft = self._raft
        was_of_use = False
        if response is not None:
            was_of_use = _hear_answer(raft, send, response, now_ms)
        elif isinstance(send.request, VoteRequest):
            election.on_vote_failed(raft, send, refused)
        elif isinstance(send.request, FetchRequest | FetchSnapshotRequest):
            following.on_fetch_failed(raft, send, refused, now_ms)
        elif isinstance(send.request, ApiVersionsRequest):
            membership.on_api_versions_response(raft, send, None, now_ms)
        if raft.in_flight.is_awaited(send):
            raft.in_flight.ended(send, now_ms, was_of_use=was_of_use)


def _hear_answer(raft: RaftState, send: Send, response: Message, now_ms: int) -> bool:
    """Whether the answer was of use; if not, that address rests a little before it is asked again."""
    match response:
        case VoteResponse():
            return election.on_vote_response(raft, send, response, now_ms)
        case FetchResponse():
            return following.on_fetch_response(raft, send, response, now_ms)
        case FetchSnapshotResponse():
            return snapshot.on_fetch_snapshot_response(raft, response, now_ms)
        case BeginQuorumEpochResponse():
            return announcements.on_begin_response(raft, response, now_ms)
        case EndQuorumEpochResponse():
            return announcements.on_end_response(raft, send, response, now_ms)
        case UpdateRaftVoterResponse():
            return joining.on_update_voter_response(raft, response, now_ms)
        case AddRaftVoterResponse() | RemoveRaftVoterResponse():
            return joining.on_change_response(raft, response, now_ms)
        case ApiVersionsResponse():
            return membership.on_api_versions_response(raft, send, response, now_ms)
        case _:
            return False


def _poll(raft: RaftState, now_ms: int) -> None:
    match raft.role:
        case Unattached() as role:
            election.poll_unattached(raft, role, now_ms)
        case Prospective() as role:
            election.poll_prospective(raft, role, now_ms)
        case Candidate() as role:
            election.poll_candidate(raft, role, now_ms)
        case Follower() as role:
            following.poll_follower(raft, role, now_ms)
        case Leader() as role:
            leader.poll_leader(raft, role, now_ms)
        case Resigned() as role:
            announcements.poll_resigned(raft, role, now_ms)
