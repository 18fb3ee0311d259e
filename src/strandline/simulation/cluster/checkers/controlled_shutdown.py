"""Liveness: in a controlled shutdown a broker may shut down only after its partitions have other leaders."""

from __future__ import annotations

from collections import defaultdict
from weakref import WeakKeyDictionary

from strandline.metadata.values import NO_LEADER
from strandline.protocol.messages import metadata_records as kinds
from strandline.protocol.messages.brokers import BrokerHeartbeatRequest, BrokerHeartbeatResponse
from strandline.protocol.types import Message
from strandline.raft.disk.batches import MetadataBatch
from strandline.simulation.cluster.checker import Checker
from strandline.simulation.cluster.cluster import Cluster
from strandline.simulation.cluster.metadata_model import Assignment, MetadataModel
from strandline.simulation.cluster.request_tap import ObservedRequest
from strandline.simulation.cluster.violation import Violation


class LeadershipMovesBeforeShutdown(Checker):
    """Ignores a broker in the process of the controller, whose heartbeats are not on the network."""

    def __init__(self, cluster: Cluster, model: MetadataModel) -> None:
        self._cluster = cluster
        self._lost: dict[int, list[str]] = defaultdict(list)
        """The partitions whose leadership each broker loses in the current batch."""
        self._fenced: dict[tuple[int, int], tuple[int, list[str]]] = {}
        """(Broker id, epoch) → when it was fenced, and the partitions it led until then."""
        self._heartbeat_us: dict[int, int] = {}
        self._arrived_us: WeakKeyDictionary[ObservedRequest, tuple[int, int]] = WeakKeyDictionary()
        """(Arrival of the heartbeat, arrival of the one before it)."""
        self._session_us = int(cluster.plan.configs["broker.session.timeout.ms"]) * 1000
        model.subscribe(self._changed)
        cluster.metadata.subscribe(self._on_batch)

    def _changed(self, name: str, before: Assignment, now: Assignment) -> None:
        if before.leader not in (NO_LEADER, now.leader) and now.leader != NO_LEADER:
            self._lost[before.leader].append(name)

    def _on_batch(self, batch: MetadataBatch) -> None:
        now_us = self._cluster.simulation.loop.now_us
        for record in batch.records:
            if isinstance(record, kinds.BrokerRegistrationChangeRecord) and record.fenced > 0:
                self._fenced[record.broker_id, record.broker_epoch] = (now_us, self._lost[record.broker_id])
        self._lost = defaultdict(list)

    def request_arrived(self, observed: ObservedRequest) -> None:
        if isinstance(observed.message, BrokerHeartbeatRequest):
            broker_id, now_us = observed.message.broker_id, self._cluster.simulation.loop.now_us
            self._arrived_us[observed] = (now_us, self._heartbeat_us.get(broker_id, 0))
            self._heartbeat_us[broker_id] = now_us

    def response_written(self, observed: ObservedRequest, response: Message) -> None:
        request = observed.message
        if not isinstance(request, BrokerHeartbeatRequest) or not isinstance(response, BrokerHeartbeatResponse):
            return
        if not response.should_shut_down or request.want_fence:
            return
        fenced_us, led = self._fenced.get((request.broker_id, request.broker_epoch), (0, []))
        arrived_us, before_us = self._arrived_us.get(observed, (fenced_us, 0))
        # A broker whose session had expired was fenced for that reason, and may shut down at its next heartbeat.
        if led and arrived_us < fenced_us and arrived_us - before_us < self._session_us / 2:
            why = f"{observed.target} lets broker {request.broker_id} shut down"
            raise Violation("liveness", f"{why} in the same decision that moves its leaderships: {led[:5]}")
