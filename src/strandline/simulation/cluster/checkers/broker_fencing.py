"""Nobody who lives is taken for dead before its session is over: silence is no evidence.

Not judged: heartbeats of a broker to a controller in its own process, which are not heard here; a controller that was
itself paused, and has every reason to find others silent; and one that could not commit, for it answers no heartbeat
meanwhile, and a broker waits for its answer. Told as "liveness", since nothing is lost by it but a leader.
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
_SHARE = 0.85
# Who led before has been silent for a while already when its successor begins, which gives it half a session at least.
_SHARE_OF_FORMER_LEADER = _SHARE / 2


class LiveBrokersAreNotFenced(Checker):
    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._heard_us: dict[int, deque[int]] = {}
        self._arrived_us: WeakKeyDictionary[ObservedRequest, int] = WeakKeyDictionary()
        self._leaving: set[int] = set()
        self._boots: dict[int, int] = {}
        self._active_us = 0
        self._active_ids: deque[int] = deque([0, 0], maxlen=2)
        self._committed_us = 0
        self._session_us = int(cluster.plan.settings["broker.session.timeout.ms"]) * 1000
        cluster.ledger.tell(self._committed)

    def booted(self, member: Member) -> None:
        self._leaving.discard(member.id)

    def changed(self, member: Member, before: NodeState, now: NodeState) -> None:
        if now.is_active and not before.is_active:
            self._active_us = self._cluster.simulation.loop.now_us
            self._active_ids.append(member.id)

    def asked(self, asked: ObservedRequest) -> None:
        request = asked.message
        if isinstance(request, BrokerHeartbeatRequest) and (request.want_shut_down or request.offline_log_dirs):
            self._leaving.add(request.broker_id)

    def arrived(self, asked: ObservedRequest) -> None:
        self._arrived_us[asked] = self._cluster.simulation.loop.now_us

    def answered(self, asked: ObservedRequest, response: Message) -> None:
        """What only reached the socket may have been thrown away with its connection; what is answered was heard."""
        if isinstance(asked.message, BrokerHeartbeatRequest) and isinstance(response, BrokerHeartbeatResponse):
            leader = self._cluster.leader()
            if not response.error_code and leader is not None and leader.name == asked.target:
                heard = self._heard_us.setdefault(asked.message.broker_id, deque(maxlen=100))
                heard.append(self._arrived_us.get(asked, 0))

    def _committed(self, batch: MetadataBatch) -> None:
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
        if broker_id in self._leaving or member.stopping or member.excused:
            return  # it may well be on its way down, its listeners closed
        if leader is None or leader is member or leader.paused_us >= self._active_us:
            return
        # What was heard between the decision and its commit came too late. (The leader's own clock dates the decision.)
        since_us = (leader.machine.clock.wall_ms() - decided_ms) * 1000
        decided_us = self._cluster.simulation.loop.now_us - since_us
        heard = [at_us for at_us in self._heard_us.get(broker_id, ()) if at_us < decided_us - 2_000]
        silent_us = decided_us - max([self._active_us, *heard])
        share = _SHARE_OF_FORMER_LEADER if broker_id == self._active_ids[0] else _SHARE
        stuck_us = self._cluster.simulation.loop.now_us - max(self._committed_us, self._active_us)
        if (
            0 <= since_us < self._session_us / 3
            and stuck_us < self._session_us / 3
            and silent_us < self._session_us * share
        ):
            why = f"broker {broker_id} lives and was heard {silent_us / 1_000_000:.3f} s ago"
            raise Violation("liveness", f"{why}, and is fenced; its session lasts {self._session_us / 1_000_000:g} s")
