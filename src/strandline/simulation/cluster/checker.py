"""`Checker`, the interface of all invariant checkers, and `CheckerRunner`, which calls them.

After each event the runner reads the state of the event's node; checkers are called only if it has changed, so that
an event which changed nothing costs about a microsecond.
"""

from __future__ import annotations

from collections.abc import Callable

from strandline.protocol.apis import ApiKey
from strandline.protocol.types import Message
from strandline.replication.partition import Partition
from strandline.simulation.cluster.cluster import Cluster, Member
from strandline.simulation.cluster.node_state import NOT_STARTED, NodeState, read_node_state
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
"""The observed requests, by port: of the broker listener and of the controller listener."""


class Checker:
    """Checks one invariant, or a few related ones, and raises Violation. Subclasses override the events they need."""

    def node_started(self, member: Member) -> None:
        """A new process of the node starts on the disk as it is."""

    def node_changed(self, member: Member, before: NodeState, now: NodeState) -> None:
        """Called after an event that changed the state of the node."""

    def replica_changed(
        self, member: Member, partition: Partition, before: ReplicaState | None, now: ReplicaState
    ) -> None:
        """Called after an event that changed a replica of a topic with records."""

    def request_written(self, observed: ObservedRequest) -> None:
        """A node writes this request to a connection."""

    def request_arrived(self, observed: ObservedRequest) -> None:
        """The request has reached the socket of the node that it is for."""

    def response_written(self, observed: ObservedRequest, response: Message) -> None:
        """A node writes the response to this request."""

    def finish(self) -> None:
        """The run has ended after healing."""


class CheckerRunner:
    def __init__(self, cluster: Cluster, checkers: list[Checker]) -> None:
        self._cluster = cluster
        self._checkers = checkers
        self._states: dict[int, NodeState] = {}
        self._replicas: dict[int, ReplicaStates] = {}
        self._violation: Violation | None = None
        cluster.on_boot = self._node_started
        cluster.simulation.loop.after_step = self._after_step
        RequestTap(
            cluster.simulation.fabric,
            APIS,
            on_request=self._request_written,
            on_arrival=self._request_arrived,
            on_response=self._response_written,
        )

    def finish(self) -> None:
        for checker in self._checkers:
            checker.finish()

    def _node_started(self, member: Member) -> None:
        self._states[member.id] = NOT_STARTED
        self._replicas[member.id] = ReplicaStates(member)
        for checker in self._checkers:
            checker.node_started(member)

    def _after_step(self, process: Process | None) -> None:
        if self._violation is not None:
            raise self._violation
        member = None if process is None else self._cluster.by_process.get(process)
        if member is None or member.node is None:
            return
        if member.machine.process is not process:
            return
        before = self._states[member.id]
        now = read_node_state(member.node, before)
        if now is not before:
            self._states[member.id] = now
            self._note(member, before, now)
            for checker in self._checkers:
                checker.node_changed(member, before, now)
        for partition, was, is_ in self._replicas[member.id].changes():
            for checker in self._checkers:
                checker.replica_changed(member, partition, was, is_)

    def _note(self, member: Member, before: NodeState, now: NodeState) -> None:
        chronicle = self._cluster.chronicle
        if (now.role, now.epoch, now.leader_id) != (before.role, before.epoch, before.leader_id):
            leader = f" of node{now.leader_id}" if now.role == "Follower" else ""
            # A node without a leader alternates between these two roles.
            minor = now.epoch == before.epoch and now.role in ("Prospective", "Unattached")
            chronicle.note(member.name, f"{now.role.lower()}{leader} in epoch {now.epoch}", minor=minor)
        if now.is_active and not before.is_active:
            chronicle.note(member.name, f"is the active controller of epoch {now.epoch}")
        elif before.is_active and not now.is_active:
            chronicle.note(member.name, "is no longer the active controller")

    def _request_written(self, observed: ObservedRequest) -> None:
        self._call_checkers(lambda checker: checker.request_written(observed))

    def _request_arrived(self, observed: ObservedRequest) -> None:
        self._call_checkers(lambda checker: checker.request_arrived(observed))

    def _response_written(self, observed: ObservedRequest, response: Message) -> None:
        self._call_checkers(lambda checker: checker.response_written(observed, response))

    def _call_checkers(self, call: Callable[[Checker], None]) -> None:
        """Called within an event of a node, which would catch a violation: it is raised after the event."""
        try:
            for checker in self._checkers:
                call(checker)
        except Violation as violation:
            self._violation = self._violation or violation
