"""Liveness: a controller that loses its leadership fails all requests that wait for a commit.

Only requests on open connections are checked; a stopping node need not respond.
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
_TIMEOUT_US = 500_000


class LostLeadershipFailsPendingRequests(Checker):
    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._open: dict[str, dict[ObservedRequest, int]] = {}
        """The requests without a response by machine, and when they arrived."""
        self._lost_us: dict[int, int] = {}
        """The time at which each node lost its leadership, until its requests are checked."""

    def node_started(self, member: Member) -> None:
        self._open[member.name] = {}
        self._lost_us.pop(member.id, None)

    def request_arrived(self, observed: ObservedRequest) -> None:
        if observed.api in WAIT_FOR_COMMITS:
            self._open.setdefault(observed.target, {})[observed] = self._cluster.simulation.loop.now_us

    def response_written(self, observed: ObservedRequest, response: Message) -> None:
        self._open.get(observed.target, {}).pop(observed, None)

    def node_changed(self, member: Member, before: NodeState, now: NodeState) -> None:
        now_us = self._cluster.simulation.loop.now_us
        if before.is_active and not now.is_active:
            self._lost_us[member.id] = now_us
        for node_id, lost_us in list(self._lost_us.items()):
            other = self._cluster.members[node_id]
            if not other.paused and now_us - max(lost_us, other.resumed_us) >= _TIMEOUT_US:
                del self._lost_us[node_id]
                self._check(other, lost_us)

    def _check(self, member: Member, lost_us: int) -> None:
        pending = self._open.get(member.name, {})
        for observed in [each for each in pending if each.is_abandoned]:
            del pending[observed]
        if not member.running or member.stopping or member.failure_allowed:
            return
        for observed, arrived_us in pending.items():
            if arrived_us < lost_us:
                why = f"{member.name} lost its leadership {_TIMEOUT_US / 1e6:g} s ago"
                raise Violation(
                    "liveness", f"{why}, and {observed.source} still waits for a response to {observed.api.name}"
                )
