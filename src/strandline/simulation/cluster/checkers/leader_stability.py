"""Elections that nobody needs, and leaders that nobody follows. Told as "liveness": nothing is lost by either but time.

Both look into the machine, at what it knows itself: whether a follower hears from its leader, and until when a leader
is to have heard from a majority. A node that was paused in between may know less than the moment says.
"""

from __future__ import annotations

from weakref import WeakKeyDictionary

from strandline.protocol.messages.quorum import VoteRequest, VoteResponse
from strandline.protocol.types import Message
from strandline.raft.machine.replica import Replica
from strandline.raft.machine.states import Follower, Leader
from strandline.simulation.cluster.checker import Checker
from strandline.simulation.cluster.cluster import Cluster, Member
from strandline.simulation.cluster.node_state import NodeState, replica_of
from strandline.simulation.cluster.request_tap import ObservedRequest
from strandline.simulation.cluster.violation import Violation

_LOOK_EVERY_US = 100_000
_PATIENCE_MS = 1_000


class NoPreVoteAgainstReachableLeader(Checker):
    """Whoever hears from its leader encourages nobody else to stand (KIP-996)."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._content: WeakKeyDictionary[ObservedRequest, tuple[Follower, int]] = WeakKeyDictionary()
        """What whoever was asked was then, if it was content; and when."""

    def arrived(self, asked: ObservedRequest) -> None:
        if isinstance(asked.message, VoteRequest):
            role = _content_follower(self._cluster.named(asked.target))
            if role is not None:
                self._content[asked] = (role, self._cluster.simulation.loop.now_us)

    def answered(self, asked: ObservedRequest, response: Message) -> None:
        was, since_us = self._content.pop(asked, (None, 0))
        if was is None or not isinstance(response, VoteResponse) or not response.topics:
            return
        member = self._cluster.named(asked.target)
        if member is None or member.paused_us >= since_us or _content_follower(member) is not was:
            return
        if response.topics[0].partitions[0].vote_granted:
            why = f"{asked.target} follows a leader that it hears from"
            raise Violation("liveness", f"{why}, and grants a pre-vote to {asked.source}")


class LeadersResignWithoutMajority(Checker):
    """Whoever has missed a majority for as long as it may wait for one gives up leading."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._looked_us = 0
        self._active: set[int] = set()
        """Those whose controller may decide, as of the last event of the process that runs now."""

    def booted(self, member: Member) -> None:
        self._active.discard(member.id)

    def changed(self, member: Member, before: NodeState, now: NodeState) -> None:
        self._active.discard(member.id)
        if now.is_active:
            self._active.add(member.id)
        now_us = self._cluster.simulation.loop.now_us
        if now_us - self._looked_us >= _LOOK_EVERY_US:
            self._looked_us = now_us
            for each in self._cluster.running():
                self._look(each, now_us)

    def _look(self, member: Member, now_us: int) -> None:
        replica = _replica(member)
        if replica is None or not isinstance(replica.role, Leader) or replica.role.check_quorum_at_ms is None:
            return
        if member.id not in self._active or member.stopping or member.excused:
            return  # it may be on its way down, with a machine that nobody drives any more
        if member.paused or now_us - member.paused_us < 4 * _PATIENCE_MS * 1000:
            return
        late_ms = member.machine.clock.now_ms() - replica.role.check_quorum_at_ms
        if late_ms > _PATIENCE_MS:
            why = f"{member.name} leads epoch {replica.epoch} on, and should have heard from a majority"
            raise Violation("liveness", f"{why} {late_ms} ms ago")


def _replica(member: Member | None) -> Replica | None:
    quorum = None if member is None or member.node is None or not member.running else member.node.quorum
    return None if quorum is None else replica_of(quorum)


def _content_follower(member: Member | None) -> Follower | None:
    replica = _replica(member)
    role = None if replica is None else replica.role
    if not isinstance(role, Follower) or not role.has_fetched:
        return None
    return None if role.leader_has_failed or role.leader_has_resigned else role
