"""The state of one replica of the quorum: its identity, its persistent state, its role in the epoch. All modules
of the machine (`election`, `leader`, `replication`, `snapshot`, `membership`) read and change one `RaftState`.

Invariants:
- the epoch never decreases; within an epoch neither the vote nor the leader changes: two leaders in one epoch stop the
  node, because then a majority has voted twice;
- the persistent part (`quorum`) is written before any message that may depend on it is sent: a Persist is the first
  effect of the input that changed it;
- roles follow one another as the table in `states` says: every change goes through a `become_*`;
- the high watermark never decreases.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from random import Random
from typing import TypeVar

from msgspec.structs import replace

from strandline.model.errors import ErrorCode, NodeFault
from strandline.model.ids import Endpoint
from strandline.protocol.types import Message
from strandline.raft.machine.effects import Commit, Effect, LeaderChanged, Persist, Reply, Send, StepDown
from strandline.raft.machine.in_flight import InFlightRequests
from strandline.raft.machine.log_port import ReplicaLog
from strandline.raft.machine.majorities import Tally
from strandline.raft.machine.messages import fetch_response
from strandline.raft.machine.settings import QuorumSettings
from strandline.raft.machine.states import (
    FIRST,
    TRANSITIONS,
    Candidate,
    Follower,
    Leader,
    Prospective,
    Resigned,
    Role,
    Unattached,
)
from strandline.raft.machine.values import NO_NODE, FormerLeader, KnownLeader, QuorumState
from strandline.raft.machine.voters import ReplicaKey, Voter, VoterSet

logger = logging.getLogger(__name__)

P = TypeVar("P")


class RaftState:
    def __init__(
        self,
        me: Voter,
        cluster_id: str,
        log: ReplicaLog,
        quorum: QuorumState,
        settings: QuorumSettings,
        random: Random,
        *,
        is_controller: bool,
        bootstrap: Sequence[Endpoint],
        committed: int,
    ) -> None:
        self.me = me
        self.cluster_id = cluster_id
        self.log = log
        self.quorum = quorum
        self.settings = settings
        self.random = random
        self.is_controller = is_controller
        self.bootstrap = tuple(bootstrap)
        self.role: Role = Unattached(None)
        self.leader_endpoint: Endpoint | None = None
        snapshot = log.latest_snapshot
        self.high_watermark: int | None = max(committed, 0 if snapshot is None else snapshot.end_offset) or None
        self.flushed_offset = log.end_offset
        self.failed_elections = 0
        """Elections that this replica has lost since it last had contact with a leader."""
        self.former_leader: FormerLeader | None = None
        """The leader that last responded to a fetch; its epoch is over if this replica leads now."""
        self.failed_leader_epoch: int | None = None
        """An epoch whose leader this observer found to have failed. Other nodes may still name that leader."""
        self.in_flight = InFlightRequests(settings)
        self.is_truncating = False
        """Set within an input that emitted a Truncate: the log still shows the records to be truncated."""
        self._has_started = False
        self._persisted = quorum
        self._reported_leader = KnownLeader(quorum.epoch, NO_NODE, None)
        self._effects: list[Effect] = []

    @property
    def epoch(self) -> int:
        return self.quorum.epoch

    @property
    def vote(self) -> ReplicaKey | None:
        """The vote given in this epoch."""
        if self.quorum.voted_id == NO_NODE:
            return None
        return ReplicaKey(self.quorum.voted_id, self.quorum.voted_directory_id)

    @property
    def voters(self) -> VoterSet:
        return self.log.voters

    @property
    def is_voter(self) -> bool:
        return self.is_controller and self.voters.voter_with_key(self.me.key) is not None

    @property
    def may_be_candidate(self) -> bool:
        """Voters, and a voter whose removal is not committed yet: it may be the only replica that has the record of
        its removal, and then no other voter can win before that is committed (Raft's dissertation, section 4.2.2)."""
        removal = self.log.voters_offset
        if self.is_voter or not self.is_controller or removal < (self.high_watermark or 0):
            return self.is_voter
        return self.log.history.before(removal)[1].voter_with_key(self.me.key) is not None

    @property
    def other_voters(self) -> list[Voter]:
        return [voter for voter in self.voters.voters if voter.id != self.me.id]

    @property
    def listener_name(self) -> str:
        """The listener that controllers use among themselves."""
        return self.me.listeners[0][0] if self.me.listeners else ""

    @property
    def known_leader(self) -> KnownLeader:
        """The leader as responses name it. A leader that resigned still names itself as the leader of its epoch."""
        at = self.me.endpoint if self.quorum.leader_id == self.me.id else self.leader_endpoint
        return KnownLeader(self.epoch, self.quorum.leader_id, at)

    @property
    def active_leader(self) -> KnownLeader:
        """The leader as this node uses it: none if it has no known endpoint, or is this replica and has resigned."""
        known = self.known_leader
        is_over = known.id == self.me.id and not isinstance(self.role, Leader)
        return KnownLeader(known.epoch, NO_NODE, None) if is_over or known.endpoint is None else known

    def leader_request_error(self, epoch: int) -> ErrorCode:
        """Why a request of this epoch, which only its leader can serve, is rejected; or NONE."""
        if epoch < self.epoch:
            return ErrorCode.FENCED_LEADER_EPOCH
        if epoch > self.epoch:
            return ErrorCode.UNKNOWN_LEADER_EPOCH
        return ErrorCode.NONE if isinstance(self.role, Leader) else ErrorCode.NOT_LEADER_OR_FOLLOWER

    def emit(self, effect: Effect) -> None:
        self._effects.append(effect)

    def take_effects(self) -> list[Effect]:
        """The effects of one input; a changed persistent state comes first, as one Persist."""
        if self.quorum != self._persisted:
            self._effects.insert(0, Persist(self.quorum))
            self._persisted = self.quorum
        leader, reported = self.active_leader, self._reported_leader
        if leader != reported and (leader.id, reported.id) != (NO_NODE, NO_NODE):
            self.emit(LeaderChanged())
        self._reported_leader = leader
        effects, self._effects = self._effects, []
        return effects

    def reply(self, token: object, response: Message) -> None:
        self.emit(Reply(token, response))

    def accept(
        self, token: object, cluster_id: str | None, requested: P | None, response: Callable[..., Message]
    ) -> P | None:
        """Returns the partition that a request names. Rejects a request of another cluster, and one that does not name
        the metadata partition alone (None): responds with the error and returns None."""
        if cluster_id not in (None, self.cluster_id):
            self.reply(token, response(error_code=ErrorCode.INCONSISTENT_CLUSTER_ID))
            return None
        if requested is None:
            self.reply(token, response(error_code=ErrorCode.INVALID_REQUEST))
        return requested

    def send(self, to: int, endpoint: Endpoint, request: Message, now_ms: int) -> Send:
        send = Send(to, endpoint, request)
        self.in_flight.on_sent(send, now_ms)
        self.emit(send)
        return send

    def commit(self, high_watermark: int) -> None:
        if self.high_watermark is None or high_watermark > self.high_watermark:
            self.high_watermark = high_watermark
            self.emit(Commit(high_watermark))

    def election_timeout(self, now_ms: int) -> int:
        """Drawn again for each election, so that one voter usually starts before the others."""
        timeout_ms = self.settings.election_timeout_ms
        return now_ms + timeout_ms + self.random.randrange(timeout_ms)

    def fetch_timeout(self, now_ms: int) -> int:
        """Somewhat shorter than configured, so that an unresponsive leader is replaced within the configured time; and
        random, because all followers often had their last contact with the leader at the same moment."""
        timeout_ms = self.settings.fetch_timeout_ms
        return now_ms + timeout_ms - timeout_ms // 20 - self.random.randrange(3 * timeout_ms // 20 + 1)

    def become_unattached(
        self,
        epoch: int,
        now_ms: int,
        *,
        leader_id: int = NO_NODE,
        vote: ReplicaKey | None = None,
        deadline_ms: int | None = None,
    ) -> None:
        """A higher epoch does not postpone an election that this replica already waits to start."""
        if deadline_ms is None:
            waiting = isinstance(self.role, Unattached | Prospective | Candidate) and vote is None
            deadline_ms = (self.role.deadline_ms if waiting else None) or self.election_timeout(now_ms)
        role = Unattached(deadline_ms if self.may_be_candidate else None)
        self._become(role, self._state(epoch, leader_id, vote))

    def become_prospective(self, now_ms: int) -> None:
        role = Prospective(self.election_timeout(now_ms), self._new_tally())
        self._become(role, self.quorum, self.leader_endpoint)

    def become_candidate(self, now_ms: int, epoch: int) -> None:
        role = Candidate(self.election_timeout(now_ms), self._new_tally())
        self._become(role, self._state(epoch, vote=self.me.key))

    def become_follower(self, epoch: int, leader_id: int, endpoint: Endpoint, now_ms: int) -> None:
        role = Follower(self.fetch_timeout(now_ms), check_voters_at_ms=now_ms)
        self._become(role, self._state(epoch, leader_id), endpoint)

    def become_leader(self, now_ms: int, epoch: int) -> Leader:
        former = self.former_leader
        # The leader of an epoch in between would have had later contact with it than this replica.
        is_known = former is not None and former.epoch == epoch - 1
        role = Leader(
            self.log.end_offset,
            announce_at_ms=now_ms,
            check_quorum_at_ms=None,
            former_leader=former if is_known else None,
        )
        self._become(role, self._state(epoch, self.me.id), self.me.endpoint)
        self.failed_elections = 0
        return role

    def become_resigned(
        self,
        now_ms: int,
        successors: Sequence[ReplicaKey],
        unacknowledged: Sequence[int],
        deadline_ms: int | None = None,
    ) -> None:
        """Persists nothing new: quorum-state already names this replica as the leader of the epoch."""
        deadline_ms = self.election_timeout(now_ms) if deadline_ms is None else deadline_ms
        role = Resigned(deadline_ms, tuple(successors), dict.fromkeys(unacknowledged))
        self._become(role, self._state(self.epoch, self.me.id))

    def _new_tally(self) -> Tally:
        """The tally of a new election, with this replica's own vote."""
        tally = Tally(tuple(voter.id for voter in self.voters.voters))
        tally.count(self.me.id, granted=True)
        return tally

    def _state(self, epoch: int, leader_id: int = NO_NODE, vote: ReplicaKey | None = None) -> QuorumState:
        """The quorum-state to persist for this epoch: what is known of the epoch already, and what is new."""
        known = self.quorum if epoch == self.epoch else QuorumState(epoch)
        if leader_id == NO_NODE:
            leader_id = known.leader_id
        if vote is None or known.voted_id == vote.id:
            # A vote that was persisted without a directory id (kraft.version 0) stays as it is.
            return replace(known, leader_id=leader_id)
        return QuorumState(epoch, leader_id, vote.id, vote.directory_id)

    def _become(self, role: Role, state: QuorumState, endpoint: Endpoint | None = None) -> None:
        old, old_epoch = self.role, self.epoch
        allowed = TRANSITIONS[type(old)] if self._has_started else FIRST
        if type(role) not in allowed:
            raise NodeFault(f"a replica that is {type(old).__name__} cannot become {type(role).__name__}")
        self._set_quorum_state(state)
        self._has_started = True
        self.role = role
        self.leader_endpoint = endpoint
        self.in_flight.clear()
        logger.info("%s in epoch %d, leader %d", type(role).__name__, state.epoch, state.leader_id)
        if isinstance(old, Leader):
            self._end_leadership(old, old_epoch)

    def _set_quorum_state(self, state: QuorumState) -> None:
        known = self.quorum
        if state == known:
            return
        if state.epoch < known.epoch:
            raise NodeFault(f"the epoch of the quorum cannot decrease from {known.epoch} to {state.epoch}")
        if state.epoch == known.epoch:
            if known.leader_id not in (NO_NODE, state.leader_id):
                raise NodeFault(f"epoch {state.epoch} has two leaders: {known.leader_id} and {state.leader_id}")
            vote = ReplicaKey(state.voted_id, state.voted_directory_id)
            # With kraft.version 0, quorum-state holds a vote without its directory id.
            if self.vote is not None and not vote.matches(self.vote):
                raise NodeFault(f"two votes in epoch {state.epoch}: for {self.vote} and for {vote}")
        self.quorum = state

    def _end_leadership(self, leader: Leader, epoch: int) -> None:
        """Completes all parked requests at once, with what is known of the next leader."""
        self.emit(StepDown(epoch))
        error = ErrorCode.NOT_LEADER_OR_FOLLOWER
        for fetch in leader.parked:
            response = fetch_response(
                self.known_leader, error, high_watermark=None, log_start_offset=self.log.start_offset
            )
            self.reply(fetch.token, response)
        change = leader.change
        if change is not None and change.token is not None:
            why = "this node stopped leading the quorum before the change was committed"
            self.reply(change.token, change.response(error_code=error, error_message=why))
