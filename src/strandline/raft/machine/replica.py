"""One replica of the metadata quorum, as a machine: inputs in, effects out, no IO (KIP-595).

The driver passes one input at a time and performs the returned effects, in order, before the next (see `effects`). It
calls `on_time` at `next_deadline_ms` or whenever it likes: every input ends with a check of the time. A `token` belongs
to the driver and comes back in a `Reply`; a request whose token has not come back is parked. NodeFault means that an
invariant is broken: the node stops.

Every input has the same shape: the module of one exchange (`election`, `leader`, `replication`, `snapshot`,
`membership`) handles it and may change the `RaftState`; then the module of the current role sends what is due
(`poll_*`), again if that changed the role. Requests are sent by no other code, so the order in which things become due
does not matter.

Requests and responses are passed decoded; requests are built in their newest version, and the codec drops what an older
version cannot carry. When a peer does not support a request, or its version, the input is a response of the right type
with the error code UNSUPPORTED_VERSION.
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
from strandline.raft.machine import election, leader, membership, replication, snapshot
from strandline.raft.machine.describe_quorum import describe_quorum
from strandline.raft.machine.effects import Effect, Flush, Send
from strandline.raft.machine.log_port import ReplicaLog
from strandline.raft.machine.raft_state import RaftState
from strandline.raft.machine.settings import QuorumSettings
from strandline.raft.machine.states import Candidate, Follower, Leader, Prospective, Resigned, Role, Unattached
from strandline.raft.machine.values import FormerLeader, KnownLeader, QuorumState, SnapshotId
from strandline.raft.machine.voters import Voter

QuorumRequest = (
    VoteRequest
    | BeginQuorumEpochRequest
    | EndQuorumEpochRequest
    | FetchRequest
    | FetchSnapshotRequest
    | DescribeQuorumRequest
    | AddRaftVoterRequest
    | RemoveRaftVoterRequest
    | UpdateRaftVoterRequest
)
"""The requests that other nodes and administrators send to a replica."""


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
        """`me`: this node's entry for a VotersRecord (a broker has one too); its first listener is the one that other
        nodes use. `committed`: the log is known to be committed below this offset, from before the restart (the end of
        the snapshot, or the committed-offset file), so it is never truncated below it."""
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
        """No node if its endpoint is unknown, or if it is this replica and has resigned. While this replica leads, at
        its own first listener."""
        return self._raft.active_leader

    @property
    def leader_id(self) -> int:
        return self._raft.active_leader.id

    @property
    def is_leader(self) -> bool:
        return isinstance(self._raft.role, Leader)

    @property
    def former_leader(self) -> FormerLeader | None:
        """The leader of the epoch before, while this replica leads, if this replica followed it."""
        role = self._raft.role
        return role.former_leader if isinstance(role, Leader) else None

    @property
    def is_voter(self) -> bool:
        """Whether this replica is in the last voter set of the log, committed or not."""
        return self._raft.is_voter

    @property
    def high_watermark(self) -> int | None:
        """Everything below it is committed; None while unknown. It never decreases."""
        return self._raft.high_watermark

    @property
    def role(self) -> Role:
        return self._raft.role

    @property
    def state(self) -> QuorumState:
        """What is on disk once the returned effects are performed."""
        return self._raft.quorum

    def next_deadline_ms(self) -> int | None:
        """The latest time for the next call of `on_time`, which may be past; None: nothing is waited for."""
        raft = self._raft
        # After a truncation no other input continues the work: it is due as soon as the Truncate is performed.
        deadlines = [raft.role.deadline_ms, raft.in_flight.deadline_ms, 0 if raft.is_truncating else None]
        return min((deadline_ms for deadline_ms in deadlines if deadline_ms is not None), default=None)

    def start(self, now_ms: int) -> list[Effect]:
        """The first input. A sole voter leads at once, with one Persist."""
        election.start(self._begin_input(), now_ms)
        return self._end_input(now_ms)

    def on_time(self, now_ms: int) -> list[Effect]:
        self._begin_input()
        return self._end_input(now_ms)

    def on_request(
        self, token: object, request: QuorumRequest, version: int, now_ms: int, wall_ms: int
    ) -> list[Effect]:
        """Replies at once, or parks the request."""
        raft = self._begin_input()
        match request:
            case FetchRequest():
                replication.on_fetch(raft, token, request, now_ms)
            case VoteRequest():
                election.on_vote(raft, token, request, now_ms)
            case BeginQuorumEpochRequest():
                leader.on_begin_epoch(raft, token, request, now_ms)
            case EndQuorumEpochRequest():
                leader.on_end_epoch(raft, token, request, now_ms)
            case FetchSnapshotRequest():
                snapshot.on_fetch_snapshot(raft, token, request, now_ms)
            case DescribeQuorumRequest():
                raft.reply(token, describe_quorum(raft, request, version, now_ms, wall_ms))
            case AddRaftVoterRequest():
                membership.on_add_voter(raft, token, request, now_ms)
            case RemoveRaftVoterRequest():
                membership.on_remove_voter(raft, token, request, now_ms)
            case UpdateRaftVoterRequest():
                membership.on_update_voter(raft, token, request, now_ms)
        return self._end_input(now_ms)

    def upgrade_kraft_version(self, token: object, level: int, now_ms: int) -> list[Effect]:
        """Changes from configured voters to voters in the log (kraft.version 0 to 1)."""
        membership.upgrade_kraft_version(self._begin_input(), token, level, now_ms)
        return self._end_input(now_ms)

    def on_response(self, send: Send, response: Message | None, refused: bool, now_ms: int) -> list[Effect]:
        """The outcome of a `Send`; None: it failed. `refused`: the connection was lost or could not be made, *and* a
        probe of the endpoint was refused, which is evidence that no process listens there; a timeout never is."""
        raft = self._begin_input()
        if send in raft.in_flight:
            self._on_outcome(send, response, refused, now_ms)
        return self._end_input(now_ms)

    def on_appended(self, now_ms: int) -> list[Effect]:
        """The driver of a leader has appended the controller's records to the page cache."""
        self._begin_input().emit(Flush())
        return self._end_input(now_ms)

    def on_flushed(self, end_offset: int, now_ms: int) -> list[Effect]:
        """The log is synced up to `end_offset`; not, however, records appended after a truncation during the sync."""
        raft = self._begin_input()
        raft.flushed_offset = max(raft.flushed_offset, min(end_offset, raft.log.end_offset))
        return self._end_input(now_ms)

    def on_snapshot_loaded(self, snapshot_id: SnapshotId, now_ms: int) -> list[Effect]:
        """`FinishSnapshot` is performed: the log starts and ends where the snapshot ends."""
        snapshot.on_snapshot_loaded(self._begin_input(), snapshot_id, now_ms)
        return self._end_input(now_ms)

    def on_snapshot_failed(self, snapshot_id: SnapshotId, why: str, now_ms: int) -> list[Effect]:
        """The fetched file is not a whole snapshot, or the disk is full: it is discarded, and the log is fetched
        again."""
        snapshot.on_snapshot_failed(self._begin_input(), snapshot_id, why, now_ms)
        return self._end_input(now_ms)

    def resign(self, now_ms: int) -> list[Effect]:
        """The node of the leader stops, or its controller failed: the other voters should elect another leader at
        once. Does nothing when this replica does not lead."""
        raft = self._begin_input()
        if isinstance(raft.role, Leader):
            leader.resign(raft, raft.role, now_ms)
        return self._end_input(now_ms)

    def _begin_input(self) -> RaftState:
        """All effects of the last input have been performed."""
        self._raft.is_truncating = False
        return self._raft

    def _end_input(self, now_ms: int) -> list[Effect]:
        """Sends and replies what is due, until the role no longer changes."""
        raft = self._raft
        for send in raft.in_flight.expired(now_ms):
            if send in raft.in_flight:
                self._on_outcome(send, None, False, now_ms)
        polled: Role | None = None
        while polled is not raft.role:
            polled = raft.role
            _poll(raft, now_ms)
        return raft.take_effects()

    def _on_outcome(self, send: Send, response: Message | None, refused: bool, now_ms: int) -> None:
        raft = self._raft
        succeeded = False
        if response is not None:
            succeeded = _on_response(raft, send, response, now_ms)
        elif isinstance(send.request, VoteRequest):
            election.on_vote_failed(raft, send, refused)
        elif isinstance(send.request, FetchRequest | FetchSnapshotRequest):
            replication.on_fetch_failed(raft, send, refused, now_ms)
        elif isinstance(send.request, ApiVersionsRequest):
            membership.on_api_versions_response(raft, send, None, now_ms)
        if send in raft.in_flight:
            raft.in_flight.on_completed(send, now_ms, succeeded=succeeded)


def _on_response(raft: RaftState, send: Send, response: Message, now_ms: int) -> bool:
    """Returns whether the response could be used; otherwise the endpoint gets a backoff."""
    match response:
        case VoteResponse():
            return election.on_vote_response(raft, send, response, now_ms)
        case FetchResponse():
            return replication.on_fetch_response(raft, send, response, now_ms)
        case FetchSnapshotResponse():
            return snapshot.on_fetch_snapshot_response(raft, response, now_ms)
        case BeginQuorumEpochResponse():
            return leader.on_begin_epoch_response(raft, response, now_ms)
        case EndQuorumEpochResponse():
            return leader.on_end_epoch_response(raft, send, response, now_ms)
        case UpdateRaftVoterResponse():
            return membership.on_update_voter_response(raft, response, now_ms)
        case AddRaftVoterResponse() | RemoveRaftVoterResponse():
            return membership.on_change_response(raft, response, now_ms)
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
            replication.poll_follower(raft, role, now_ms)
        case Leader() as role:
            leader.poll_leader(raft, role, now_ms)
        case Resigned() as role:
            leader.poll_resigned(raft, role, now_ms)
