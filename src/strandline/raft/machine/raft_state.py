"""One replica's raft in the quorum: who it is, what it must remember, which state it is in. Every conversation of the
machine (`elections`, `announcements`, `leading`, `replication`, `following`, …) works over one RaftState.

Invariants, whatever is said to this replica:
- its epoch never falls; within an epoch its vote never changes and its leader never changes: two leaders in one epoch
  stop the node, because then a majority has voted twice;
- what it must remember (`quorum`) is persisted before anything is said that may depend on it: a Persist is the first
  effect of the input that changed it;
- states follow one another as the table in `states` says: changes of it go through the `become_*`;
- its high watermark never falls.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from random import Random

from msgspec.structs import replace

from strandline.model.errors import ErrorCode, NodeFault
from strandline.model.ids import Endpoint
from strandline.protocol.types import Message
from strandline.raft.machine.answers import fetch_response
from strandline.raft.machine.effects import Commit, Effect, LeaderChanged, Persist, Reply, Send, StepDown
from strandline.raft.machine.in_flight import InFlightRequests
from strandline.raft.machine.log_port import ReplicaLog
from strandline.raft.machine.majorities import Tally
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
        """Since a leader was last known to be at work."""
        self.former_leader: FormerLeader | None = None
        """Whoever last answered as leader: of an epoch that is over when this replica leads itself."""
        self.failed_leader_epoch: int | None = None
        """The epoch whose leader an observer found gone: others may name it for a while, and mean well."""
        self.in_flight = InFlightRequests(settings)
        self.is_truncating = False
        """Within an input that asked for a Truncate: the log still shows what is about to be cut off."""
        self._has_begun = False
        self._persisted = quorum
        self._told_leader = KnownLeader(quorum.epoch, NO_NODE, None)
        self._effects: list[Effect] = []

    @property
    def epoch(self) -> int:
        return self.quorum.epoch

    @property
    def vote(self) -> ReplicaKey | None:
        """Given in this epoch."""
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
        """A voter that is being removed may be the only one who has the record that says so, and then nobody can win
        before it is committed but that voter itself (Raft's dissertation, section 4.2.2)."""
        removal = self.log.voters_offset
        if self.is_voter or not self.is_controller or removal < (self.high_watermark or 0):
            return self.is_voter
        return self.log.history.before(removal)[1].voter_with_key(self.me.key) is not None

    @property
    def other_voters(self) -> list[Voter]:
        return [voter for voter in self.voters.voters if voter.id != self.me.id]

    @property
    def listener_name(self) -> str:
        """Of the listener that controllers use among themselves."""
        return self.me.listeners[0][0] if self.me.listeners else ""

    @property
    def known_leader(self) -> KnownLeader:
        """As it is told to others. A leader that resigned still says that this epoch was its own."""
        at = self.me.endpoint if self.quorum.leader_id == self.me.id else self.leader_endpoint
        return KnownLeader(self.epoch, self.quorum.leader_id, at)

    @property
    def active_leader(self) -> KnownLeader:
        """As this node itself should see it: a leader that cannot be reached, or has resigned here, is none."""
        known = self.known_leader
        is_over = known.id == self.me.id and not isinstance(self.role, Leader)
        return KnownLeader(known.epoch, NO_NODE, None) if is_over or known.endpoint is None else known

    def emit(self, effect: Effect) -> None:
        self._effects.append(effect)

    def take_effects(self) -> list[Effect]:
        """What an input came to. Whatever of it must be remembered is written first, and once."""
        if self.quorum != self._persisted:
            self._effects.insert(0, Persist(self.quorum))
            self._persisted = self.quorum
        leader, told = self.active_leader, self._told_leader
        if leader != told and (leader.id, told.id) != (NO_NODE, NO_NODE):
            self.emit(LeaderChanged())
        self._told_leader = leader
        effects, self._effects = self._effects, []
        return effects

    def reply(self, token: object, response: Message) -> None:
        self.emit(Reply(token, response))

    def send(self, to: int, endpoint: Endpoint, request: Message, now_ms: int) -> Send:
        send = Send(to, endpoint, request)
        self.in_flight.sent(send, now_ms)
        self.emit(send)
        return send

    def commit(self, high_watermark: int) -> None:
        if self.high_watermark is None or high_watermark > self.high_watermark:
            self.high_watermark = high_watermark
            self.emit(Commit(high_watermark))

    def election_timeout(self, now_ms: int) -> int:
        """Different for everybody and every time, so that one is usually first."""
        timeout_ms = self.settings.election_timeout_ms
        return now_ms + timeout_ms + self.random.randrange(timeout_ms)

    def fetch_timeout(self, now_ms: int) -> int:
        """Somewhat shorter than it is set, so that a silent leader is replaced within that time; and by chance, because
        its followers have often heard from it last at the same moment."""
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
        """An election that this replica waits for comes no later because it hears of a higher epoch."""
        if deadline_ms is None:
            waiting = isinstance(self.role, Unattached | Prospective | Candidate) and vote is None
            deadline_ms = (self.role.deadline_ms if waiting else None) or self.election_timeout(now_ms)
        role = Unattached(deadline_ms if self.may_be_candidate else None)
        self._become(role, self._state(epoch, leader_id, vote))

    def become_prospective(self, now_ms: int) -> None:
        role = Prospective(self.election_timeout(now_ms), self._ballot())
        self._become(role, self.quorum, self.leader_endpoint)

    def become_candidate(self, now_ms: int, epoch: int) -> None:
        role = Candidate(self.election_timeout(now_ms), self._ballot())
        self._become(role, self._state(epoch, vote=self.me.key))

    def become_follower(self, epoch: int, leader_id: int, endpoint: Endpoint, now_ms: int) -> None:
        role = Follower(self.fetch_timeout(now_ms), check_voters_at_ms=now_ms)
        self._become(role, self._state(epoch, leader_id), endpoint)

    def become_leader(self, now_ms: int, epoch: int) -> Leader:
        former = self.former_leader
        # Whoever led an epoch in between has heard more of it than this replica.
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
        """Nothing new to remember: that it led this epoch is known already, also to its next life."""
        deadline_ms = self.election_timeout(now_ms) if deadline_ms is None else deadline_ms
        role = Resigned(deadline_ms, tuple(successors), dict.fromkeys(unacknowledged))
        self._become(role, self._state(self.epoch, self.me.id))

    def _ballot(self) -> Tally:
        tally = Tally(tuple(voter.id for voter in self.voters.voters))
        tally.count(self.me.id, granted=True)
        return tally

    def _state(self, epoch: int, leader_id: int = NO_NODE, vote: ReplicaKey | None = None) -> QuorumState:
        """What is to be remembered of this epoch: what is known of it already, and what is new."""
        known = self.quorum if epoch == self.epoch else QuorumState(epoch)
        if leader_id == NO_NODE:
            leader_id = known.leader_id
        if vote is None or known.voted_id == vote.id:
            # A vote that is remembered without its directory (kraft.version 0) is not given again, only said again.
            return replace(known, leader_id=leader_id)
        return QuorumState(epoch, leader_id, vote.id, vote.directory_id)

    def _become(self, role: Role, state: QuorumState, endpoint: Endpoint | None = None) -> None:
        old, old_epoch = self.role, self.epoch
        allowed = TRANSITIONS[type(old)] if self._has_begun else FIRST
        if type(role) not in allowed:
            raise NodeFault(f"a replica that is {type(old).__name__} cannot become {type(role).__name__}")
        self._remember(state)
        self._has_begun = True
        self.role = role
        self.leader_endpoint = endpoint
        self.in_flight.forget()
        logger.info("%s in epoch %d, leader %d", type(role).__name__, state.epoch, state.leader_id)
        if isinstance(old, Leader):
            self._end_leadership(old, old_epoch)

    def _remember(self, state: QuorumState) -> None:
        known = self.quorum
        if state == known:
            return
        if state.epoch < known.epoch:
            raise NodeFault(f"the epoch of the quorum cannot fall from {known.epoch} to {state.epoch}")
        if state.epoch == known.epoch:
            if known.leader_id not in (NO_NODE, state.leader_id):
                raise NodeFault(f"epoch {state.epoch} has two leaders: {known.leader_id} and {state.leader_id}")
            vote = ReplicaKey(state.voted_id, state.voted_directory_id)
            # While voters are configured, quorum-state keeps a vote without its directory.
            if self.vote is not None and not vote.matches(self.vote):
                raise NodeFault(f"two votes in epoch {state.epoch}: for {self.vote} and for {vote}")
        self.quorum = state

    def _end_leadership(self, leader: Leader, epoch: int) -> None:
        """Whoever waits for this leader is told at once, with what is known of the next."""
        self.emit(StepDown(epoch))
        error = ErrorCode.NOT_LEADER_OR_FOLLOWER
        for fetch in leader.parked:
            answer = fetch_response(
                self.known_leader, error, high_watermark=None, log_start_offset=self.log.start_offset
            )
            self.reply(fetch.token, answer)
        change = leader.change
        if change is not None and change.token is not None:
            why = "this node stopped leading the quorum before the change was committed"
            self.reply(change.token, change.response(error_code=error, error_message=why))
