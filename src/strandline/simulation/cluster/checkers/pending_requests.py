"""Whoever waits for a commit that will not come is told so: a lost leadership fails every request that it kept waiting.

Told as "liveness". Judged is what is said over connections that are still open; a node on its way down may be silent.
"""

from __future__ import annotations

from strandline.protocol.apis import ApiKey
from strandline.protocol.types import Message
from strandline.simulation.cluster.checker import Checker
from strandline.simulation.cluster.cluster import Cluster, Member
from strandline.simulation.cluster.node_state import NodeState
from strandline.simulation.cluster.request_tap import ObservedRequest
from strandline.simulation.cluster.violation import Violation

WAIT_FOR_COMMITS = frozenset(
    {
        ApiKey.BROKER_REGISTRATION,
        ApiKey.BROKER_HEARTBEAT,
        ApiKey.ALTER_PARTITION,
        ApiKey.ASSIGN_REPLICAS_TO_DIRS,
        ApiKey.ALLOCATE_PRODUCER_IDS,
        ApiKey.ENVELOPE,
    }
)
_PATIENCE_US = 500_000


class LostLeadershipFailsPendingRequests(Checker):
    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._open: dict[str, dict[ObservedRequest, int]] = {}
        """By node: what it was asked and has not answered, and when that arrived."""
        self._lost_us: dict[int, int] = {}
        """When it lost its leadership, if it has not been looked at since."""

    def booted(self, member: Member) -> None:
        self._open[member.name] = {}
        self._lost_us.pop(member.id, None)

    def arrived(self, asked: ObservedRequest) -> None:
        if asked.api in WAIT_FOR_COMMITS:
            self._open.setdefault(asked.target, {})[asked] = self._cluster.simulation.loop.now_us

    def answered(self, asked: ObservedRequest, response: Message) -> None:
        self._open.get(asked.target, {}).pop(asked, None)

    def changed(self, member: Member, before: NodeState, now: NodeState) -> None:
        now_us = self._cluster.simulation.loop.now_us
        if before.is_active and not now.is_active:
            self._lost_us[member.id] = now_us
        for node_id, lost_us in list(self._lost_us.items()):
            other = self._cluster.members[node_id]
            if not other.paused and now_us - max(lost_us, other.paused_us) >= _PATIENCE_US:
                del self._lost_us[node_id]
                self._look(other, lost_us)

    def _look(self, member: Member, lost_us: int) -> None:
        mine = self._open.get(member.name, {})
        for asked in [each for each in mine if each.is_over]:
            del mine[asked]
        if not member.running or member.stopping or member.excused:
            return
        for asked, arrived_us in mine.items():
            if arrived_us < lost_us:
                why = f"{member.name} does not lead any more for {_PATIENCE_US / 1e6:g} s"
                raise Violation("liveness", f"{why}, and {asked.source} still waits for an answer to {asked.api.name}")
