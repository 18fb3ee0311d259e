"""Looks at every node after each of its events, and tells the checkers what is different.

Looking costs a few attribute reads; checkers hear of a node only when something of what they care about has changed, so
an event in which nothing happened to the quorum costs a microsecond.
"""

from __future__ import annotations

from collections.abc import Callable

from strandline.protocol.apis import ApiKey
from strandline.protocol.types import Message
from strandline.replication.partition import Partition
from strandline.simulation.cluster.cluster import Cluster, Member
from strandline.simulation.cluster.node_state import NOT_STARTED, NodeState, look
from strandline.simulation.cluster.replica_state import ReplicaState, ReplicaStates
from strandline.simulation.cluster.request_tap import ObservedRequest, RequestTap
from strandline.simulation.cluster.violation import Violation
from strandline.simulation.nodes import PORT
from strandline.simulation.process import Process

APIS = {
    PORT: (ApiKey.FETCH,),
    PORT + 1: (
        ApiKey.VOTE,
        ApiKey.BEGIN_QUORUM_EPOCH,
        ApiKey.END_QUORUM_EPOCH,
        ApiKey.BROKER_REGISTRATION,
        ApiKey.BROKER_HEARTBEAT,
        ApiKey.ALTER_PARTITION,
        ApiKey.ASSIGN_REPLICAS_TO_DIRS,
        ApiKey.ALLOCATE_PRODUCER_IDS,
        ApiKey.ENVELOPE,
    ),
}
"""What is listened to, by listener: of brokers, of controllers."""


class Checker:
    """One invariant or a few that belong together. Raises Violation; what does not concern it is left as it is."""

    def booted(self, member: Member) -> None:
        """A new process, from whatever its disk holds."""

    def changed(self, member: Member, before: NodeState, now: NodeState) -> None:
        """After an event of this member."""

    def moved(self, member: Member, partition: Partition, before: ReplicaState | None, now: ReplicaState) -> None:
        """After an event of this member that did something to a partition with records on it."""

    def asked(self, asked: ObservedRequest) -> None:
        """A node is writing this request to a connection."""

    def arrived(self, asked: ObservedRequest) -> None:
        """The request has reached the socket of the node that it is for."""

    def answered(self, asked: ObservedRequest, response: Message) -> None:
        """A node is writing this answer."""

    def finish(self) -> None:
        """The run is over and healed."""


class Observer:
    def __init__(self, cluster: Cluster, checkers: list[Checker]) -> None:
        self._cluster = cluster
        self._checkers = checkers
        self._sights: dict[int, NodeState] = {}
        self._copies: dict[int, ReplicaStates] = {}
        self._violation: Violation | None = None
        cluster.on_boot = self._booted
        cluster.simulation.loop.after_step = self._after_step
        RequestTap(
            cluster.simulation.fabric,
            APIS,
            on_request=self._asked,
            on_arrival=self._arrived,
            on_response=self._answered,
        )

    def sight(self, member: Member) -> NodeState:
        """As of its last event; nothing of a node that does not run."""
        return self._sights.get(member.id, NOT_STARTED) if member.running else NOT_STARTED

    def finish(self) -> None:
        for checker in self._checkers:
            checker.finish()

    def _booted(self, member: Member) -> None:
        self._sights[member.id] = NOT_STARTED
        self._copies[member.id] = ReplicaStates(member)
        for checker in self._checkers:
            checker.booted(member)

    def _after_step(self, process: Process | None) -> None:
        if self._violation is not None:
            raise self._violation
        member = None if process is None else self._cluster.by_process.get(process)
        if member is None or member.node is None:
            return
        if member.machine.process is not process:
            return
        before = self._sights[member.id]
        now = look(member.node, before)
        if now is not before:
            self._sights[member.id] = now
            self._tell(member, before, now)
            for checker in self._checkers:
                checker.changed(member, before, now)
        for partition, was, is_ in self._copies[member.id].look():
            for checker in self._checkers:
                checker.moved(member, partition, was, is_)

    def _tell(self, member: Member, before: NodeState, now: NodeState) -> None:
        chronicle = self._cluster.chronicle
        if (now.role, now.epoch, now.leader_id) != (before.role, before.epoch, before.leader_id):
            whose = f" of node{now.leader_id}" if now.role == "Follower" else ""
            # Those who look for a leader go to and fro between these two.
            minor = now.epoch == before.epoch and now.role in ("Prospective", "Unattached")
            chronicle.note(member.name, f"{now.role.lower()}{whose} in epoch {now.epoch}", minor=minor)
        if now.is_active and not before.is_active:
            chronicle.note(member.name, f"is the active controller of epoch {now.epoch}")
        elif before.is_active and not now.is_active:
            chronicle.note(member.name, "is no longer the active controller")

    def _asked(self, asked: ObservedRequest) -> None:
        self._tap(lambda checker: checker.asked(asked))

    def _arrived(self, asked: ObservedRequest) -> None:
        self._tap(lambda checker: checker.arrived(asked))

    def _answered(self, asked: ObservedRequest, response: Message) -> None:
        self._tap(lambda checker: checker.answered(asked, response))

    def _tap(self, tell: Callable[[Checker], None]) -> None:
        """In the middle of an event, where the node itself would catch what is raised: it is kept for after it."""
        try:
            for checker in self._checkers:
                tell(checker)
        except Violation as violation:
            self._violation = self._violation or violation
