"""Who leaves, and who has left. Told as "liveness": nothing is lost by it, but partitions are without a leader.

A broker that asks to leave hands over first, while it still serves, and is let go when it leads nothing. One that is
dead is fenced when its session is over, also by a controller that never heard of it alive.
"""

from __future__ import annotations

from collections import defaultdict
from weakref import WeakKeyDictionary

from strandline.metadata.values import NO_LEADER
from strandline.protocol.messages import metadata_records as kinds
from strandline.protocol.messages.brokers import BrokerHeartbeatRequest, BrokerHeartbeatResponse
from strandline.protocol.types import Message
from strandline.raft.disk.batches import MetadataBatch
from strandline.simulation.cluster.checker import Checker
from strandline.simulation.cluster.cluster import Cluster, Member
from strandline.simulation.cluster.metadata_model import Assignment, MetadataModel
from strandline.simulation.cluster.node_state import NodeState
from strandline.simulation.cluster.request_tap import ObservedRequest
from strandline.simulation.cluster.violation import Violation

_LOOK_EVERY_US = 100_000


class LeadershipMovesBeforeShutdown(Checker):
    """Not judged: a broker in the process of the controller, whose heartbeats are not heard here."""

    def __init__(self, cluster: Cluster, scribe: MetadataModel) -> None:
        self._cluster = cluster
        self._lost: dict[int, list[str]] = defaultdict(list)
        """By broker: what it led until the batch that is being read."""
        self._fenced: dict[tuple[int, int], tuple[int, list[str]]] = {}
        """(Broker id, epoch) → when it was fenced, and what it led until then."""
        self._heard_us: dict[int, int] = {}
        self._arrived_us: WeakKeyDictionary[ObservedRequest, tuple[int, int]] = WeakKeyDictionary()
        """When, and when the heartbeat before it did."""
        self._session_us = int(cluster.plan.settings["broker.session.timeout.ms"]) * 1000
        scribe.tell(self._changed)
        cluster.ledger.tell(self._committed)

    def _changed(self, name: str, before: Assignment, now: Assignment) -> None:
        if before.leader not in (NO_LEADER, now.leader) and now.leader != NO_LEADER:
            self._lost[before.leader].append(name)

    def _committed(self, batch: MetadataBatch) -> None:
        now_us = self._cluster.simulation.loop.now_us
        for record in batch.records:
            if isinstance(record, kinds.BrokerRegistrationChangeRecord) and record.fenced > 0:
                self._fenced[record.broker_id, record.broker_epoch] = (now_us, self._lost[record.broker_id])
        self._lost = defaultdict(list)

    def arrived(self, asked: ObservedRequest) -> None:
        if isinstance(asked.message, BrokerHeartbeatRequest):
            broker_id, now_us = asked.message.broker_id, self._cluster.simulation.loop.now_us
            self._arrived_us[asked] = (now_us, self._heard_us.get(broker_id, 0))
            self._heard_us[broker_id] = now_us

    def answered(self, asked: ObservedRequest, response: Message) -> None:
        request = asked.message
        if not isinstance(request, BrokerHeartbeatRequest) or not isinstance(response, BrokerHeartbeatResponse):
            return
        if not response.should_shut_down or request.want_fence:
            return
        fenced_us, led = self._fenced.get((request.broker_id, request.broker_epoch), (0, []))
        arrived_us, before_us = self._arrived_us.get(asked, (fenced_us, 0))
        # One whose session was over is fenced for that, and may go at once when it is heard again.
        if led and arrived_us < fenced_us and arrived_us - before_us < self._session_us / 2:
            why = f"{asked.target} lets broker {request.broker_id} go"
            raise Violation("liveness", f"{why}, and takes from it what it leads with the same words: {led[:5]}")


class FailedBrokersAreFenced(Checker):
    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._dead_us: dict[int, int] = {}
        self._active_us = 0
        self._committed_us = 0
        self._looked_us = 0
        self._session_us = int(cluster.plan.settings["broker.session.timeout.ms"]) * 1000
        cluster.ledger.tell(self._committed)

    def booted(self, member: Member) -> None:
        self._dead_us.pop(member.id, None)

    def changed(self, member: Member, before: NodeState, now: NodeState) -> None:
        now_us = self._cluster.simulation.loop.now_us
        if now.is_active and not before.is_active:
            self._active_us = now_us
        if now_us - self._looked_us >= _LOOK_EVERY_US:
            self._looked_us = now_us
            for each in self._cluster.brokers():
                if not each.running and each.machine.boots:
                    self._dead_us.setdefault(each.id, now_us)
            self._look(now_us)

    def _committed(self, batch: MetadataBatch) -> None:
        self._committed_us = self._cluster.simulation.loop.now_us

    def _look(self, now_us: int) -> None:
        leader = self._cluster.leader()
        if leader is None or leader.paused or leader.stopping or leader.excused:
            return
        since_us = max(self._active_us, leader.paused_us)
        for broker_id, dead_us in self._dead_us.items():
            due_us = max(dead_us, since_us) + 3 * self._session_us // 2
            # A quorum that commits nothing fences nobody.
            if now_us < due_us + 1_000_000 or self._committed_us < due_us:
                continue
            broker = self._cluster.ledger.image.latest.broker(broker_id)
            if broker is not None and not broker.fenced:
                why = f"broker {broker_id} is dead for {(now_us - dead_us) / 1e6:.1f} s"
                raise Violation("liveness", f"{why} and not fenced; its session lasts {self._session_us / 1e6:g} s")
