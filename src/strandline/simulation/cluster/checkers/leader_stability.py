"""Liveness: followers of a reachable quorum leader grant no pre-votes, and a leader without a majority resigns.

Both are compared with the node's own Raft state: the follower's fetches, and the leader's check-quorum deadline. A node
that was paused in between may not have updated it yet.
"""

from __future__ import annotations

from weakref import WeakKeyDictionary

from strandline.protocol.messages.quorum import VoteRequest, VoteResponse
from strandline.protocol.types import Message
from strandline.raft.machine.replica import Replica
from strandline.raft.machine.states import Follower, Leader
from strandline.simulation.cluster.checker import Checker
from strandline.simulation.cluster.cluster import Cluster, Member
from strandline.simulation.cluster.node_state import NodeState
from strandline.simulation.cluster.request_tap import ObservedRequest
from strandline.simulation.cluster.violation import Violation

_CHECK_INTERVAL_US = 100_000
_TOLERANCE_MS = 1_000


class NoPreVoteAgainstReachableLeader(Checker):
    """A follower whose fetches succeed grants no pre-vote (KIP-996)."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._followers: WeakKeyDictionary[ObservedRequest, tuple[Follower, int]] = WeakKeyDictionary()
        """(Role of the receiver with a reachable leader, arrival) of a vote request."""

    def request_arrived(self, observed: ObservedRequest) -> None:
        if isinstance(observed.message, VoteRequest):
            role = _follower_with_leader(self._cluster.member_on(observed.target))
            if role is not None:
                self._followers[observed] = (role, self._cluster.simulation.loop.now_us)

    def response_written(self, observed: ObservedRequest, response: Message) -> None:
        was, since_us = self._followers.pop(observed, (None, 0))
        if was is None or not isinstance(response, VoteResponse) or not response.topics:
            return
        member = self._cluster.member_on(observed.target)
        if member is None or member.resumed_us >= since_us or _follower_with_leader(member) is not was:
            return
        if response.topics[0].partitions[0].vote_granted:
            why = f"{observed.target} follows a reachable leader"
            raise Violation("liveness", f"{why} and grants a pre-vote to {observed.source}")


class LeadersResignWithoutMajority(Checker):
    """A leader that has received no fetches from a majority until its check-quorum deadline resigns."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._checked_us = 0
        self._active: set[int] = set()
        """Active controllers, as of the last event of their current process."""

    def node_started(self, member: Member) -> None:
        self._active.discard(member.id)

    def node_changed(self, member: Member, before: NodeState, now: NodeState) -> None:
        self._active.discard(member.id)
        if now.is_active:
            self._active.add(member.id)
        now_us = self._cluster.simulation.loop.now_us
        if now_us - self._checked_us >= _CHECK_INTERVAL_US:
            self._checked_us = now_us
            for each in self._cluster.running():
                self._check(each, now_us)

    def _check(self, member: Member, now_us: int) -> None:
        replica = _replica(member)
        if replica is None or not isinstance(replica.role, Leader) or replica.role.check_quorum_at_ms is None:
            return
        if member.id not in self._active or member.stopping or member.failure_allowed:
            return  # it may be stopping, with a Raft replica that is no longer driven
        if member.paused or now_us - member.resumed_us < 4 * _TOLERANCE_MS * 1000:
            return
        late_ms = member.machine.clock.now_ms() - replica.role.check_quorum_at_ms
        if late_ms > _TOLERANCE_MS:
            why = f"{member.name} still leads epoch {replica.epoch}, and its check-quorum deadline"
            raise Violation("liveness", f"{why} was {late_ms} ms ago")


def _replica(member: Member | None) -> Replica | None:
    quorum = None if member is None or member.node is None or not member.running else member.node.quorum
    return None if quorum is None else quorum.replica


def _follower_with_leader(member: Member | None) -> Follower | None:
    replica = _replica(member)
    role = None if replica is None else replica.role
    if not isinstance(role, Follower) or not role.has_fetched:
        return None
    return None if role.leader_has_failed or role.leader_has_resigned else role
