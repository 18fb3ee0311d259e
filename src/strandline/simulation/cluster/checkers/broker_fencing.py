"""Liveness: a running broker is not fenced before its session has expired; a failed broker is fenced after that.

Not checked for running brokers: a broker in the process of the controller, whose heartbeats are not on the network; a
controller that was paused itself and so missed heartbeats; and one that could not commit, since it does not respond to
heartbeats meanwhile and brokers wait for the response before they send the next.
"""

from __future__ import annotations

from collections import deque
from weakref import WeakKeyDictionary

from strandline.protocol.messages import metadata_records as kinds
from strandline.protocol.messages.brokers import BrokerHeartbeatRequest, BrokerHeartbeatResponse
from strandline.protocol.types import Message
from strandline.raft.disk.batches import MetadataBatch
from strandline.simulation.cluster.checker import Checker
from strandline.simulation.cluster.cluster import Cluster, Member
from strandline.simulation.cluster.node_state import NodeState
from strandline.simulation.cluster.request_tap import ObservedRequest
from strandline.simulation.cluster.violation import Violation

# Clocks may run a tenth slower or faster than the simulation's.
_SESSION_SHARE = 0.85
# A former leader has been unreachable for a while when its successor becomes active, which grants it half a session.
_SESSION_SHARE_OF_FORMER_LEADER = _SESSION_SHARE / 2
_CHECK_INTERVAL_US = 100_000


class LiveBrokersAreNotFenced(Checker):
    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._heartbeats_us: dict[int, deque[int]] = {}
        self._arrived_us: WeakKeyDictionary[ObservedRequest, int] = WeakKeyDictionary()
        self._leaving: set[int] = set()
        self._boots: dict[int, int] = {}
        self._active_us = 0
        self._active_ids: deque[int] = deque([0, 0], maxlen=2)
        self._committed_us = 0
        self._session_us = int(cluster.plan.configs["broker.session.timeout.ms"]) * 1000
        cluster.metadata.subscribe(self._on_batch)

    def node_started(self, member: Member) -> None:
        self._leaving.discard(member.id)

    def node_changed(self, member: Member, before: NodeState, now: NodeState) -> None:
        if now.is_active and not before.is_active:
            self._active_us = self._cluster.simulation.loop.now_us
            self._active_ids.append(member.id)

    def request_written(self, observed: ObservedRequest) -> None:
        request = observed.message
        if isinstance(request, BrokerHeartbeatRequest) and (request.want_shut_down or request.offline_log_dirs):
            self._leaving.add(request.broker_id)

    def request_arrived(self, observed: ObservedRequest) -> None:
        self._arrived_us[observed] = self._cluster.simulation.loop.now_us

    def response_written(self, observed: ObservedRequest, response: Message) -> None:
        """Counts a heartbeat when it gets a response: one that only reached the socket may have been lost with it."""
        if isinstance(observed.message, BrokerHeartbeatRequest) and isinstance(response, BrokerHeartbeatResponse):
            leader = self._cluster.leader()
            if not response.error_code and leader is not None and leader.name == observed.target:
                heartbeats = self._heartbeats_us.setdefault(observed.message.broker_id, deque(maxlen=100))
                heartbeats.append(self._arrived_us.get(observed, 0))

    def _on_batch(self, batch: MetadataBatch) -> None:
        for record in batch.records:
            if isinstance(record, kinds.RegisterBrokerRecord):
                self._boots[record.broker_id] = self._cluster.members[record.broker_id].machine.boots
            elif isinstance(record, kinds.BrokerRegistrationChangeRecord) and record.fenced > 0:
                self._fenced(record.broker_id, batch.timestamp)
        self._committed_us = self._cluster.simulation.loop.now_us

    def _fenced(self, broker_id: int, decided_ms: int) -> None:
        member, leader = self._cluster.members[broker_id], self._cluster.leader()
        if not member.running or member.machine.boots != self._boots.get(broker_id):
            return
        if broker_id in self._leaving or member.stopping or member.failure_allowed:
            return  # it may be shutting down, with its listeners closed
        if leader is None or leader is member or leader.resumed_us >= self._active_us:
            return
        # Heartbeats between the decision and its commit came too late. (The decision has the leader's timestamp.)
        since_us = (leader.machine.clock.wall_ms() - decided_ms) * 1000
        decided_us = self._cluster.simulation.loop.now_us - since_us
        heartbeats = [at_us for at_us in self._heartbeats_us.get(broker_id, ()) if at_us < decided_us - 2_000]
        silent_us = decided_us - max([self._active_us, *heartbeats])
        share = _SESSION_SHARE_OF_FORMER_LEADER if broker_id == self._active_ids[0] else _SESSION_SHARE
        stuck_us = self._cluster.simulation.loop.now_us - max(self._committed_us, self._active_us)
        if (
            0 <= since_us < self._session_us / 3
            and stuck_us < self._session_us / 3
            and silent_us < self._session_us * share
        ):
            why = f"broker {broker_id} runs and sent a heartbeat {silent_us / 1_000_000:.3f} s ago"
            raise Violation("liveness", f"{why}, and is fenced; its session is {self._session_us / 1_000_000:g} s")


class FailedBrokersAreFenced(Checker):
    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._failed_us: dict[int, int] = {}
        self._active_us = 0
        self._committed_us = 0
        self._checked_us = 0
        self._session_us = int(cluster.plan.configs["broker.session.timeout.ms"]) * 1000
        cluster.metadata.subscribe(self._on_batch)

    def node_started(self, member: Member) -> None:
        self._failed_us.pop(member.id, None)

    def node_changed(self, member: Member, before: NodeState, now: NodeState) -> None:
        now_us = self._cluster.simulation.loop.now_us
        if now.is_active and not before.is_active:
            self._active_us = now_us
        if now_us - self._checked_us >= _CHECK_INTERVAL_US:
            self._checked_us = now_us
            for each in self._cluster.brokers():
                if not each.running and each.machine.boots:
                    self._failed_us.setdefault(each.id, now_us)
            self._check(now_us)

    def _on_batch(self, batch: MetadataBatch) -> None:
        self._committed_us = self._cluster.simulation.loop.now_us

    def _check(self, now_us: int) -> None:
        leader = self._cluster.leader()
        if leader is None or leader.paused or leader.stopping or leader.failure_allowed:
            return
        since_us = max(self._active_us, leader.resumed_us)
        for broker_id, failed_us in self._failed_us.items():
            due_us = max(failed_us, since_us) + 3 * self._session_us // 2
            # A controller that cannot commit cannot fence.
            if now_us < due_us + 1_000_000 or self._committed_us < due_us:
                continue
            broker = self._cluster.metadata.image.latest.broker(broker_id)
            if broker is not None and not broker.fenced:
                why = f"broker {broker_id} failed {(now_us - failed_us) / 1e6:.1f} s ago"
                raise Violation("liveness", f"{why} and is not fenced; its session is {self._session_us / 1e6:g} s")
