"""Registrations and heartbeats of brokers, on a clock that the test sets."""

from __future__ import annotations

from typing import Any

from strandline.controller.brokers import Brokers
from strandline.metadata.features import SUPPORTED_FEATURES
from strandline.model.ids import Uuid
from strandline.protocol.messages.brokers import (
    BrokerHeartbeatRequest,
    BrokerHeartbeatResponse,
    BrokerRegistrationRequest,
    Feature,
    Listener,
)
from unit.controller.machine_cluster import MachineCluster, directory

FIRST, SECOND, THIRD = Uuid.of(8, 1), Uuid.of(8, 2), Uuid.of(8, 3)


def registration(broker_id: int = 1, incarnation: Uuid = FIRST, **fields: Any) -> BrokerRegistrationRequest:
    given: dict[str, Any] = {
        "broker_id": broker_id,
        "cluster_id": "cluster",
        "incarnation_id": incarnation,
        "listeners": [Listener(name="PLAINTEXT", host="h", port=9092)],
        "features": [
            Feature(name=name, min_supported_version=low, max_supported_version=high)
            for name, (low, high) in SUPPORTED_FEATURES.items()
        ],
        "rack": "r",
        "log_dirs": [directory(broker_id)],
    }
    return BrokerRegistrationRequest(**{**given, **fields})


class BrokerLifecycle:
    def __init__(self, cluster: MachineCluster) -> None:
        self.cluster = cluster
        self.brokers = Brokers(cluster.view, cluster.settings)
        self.now_ms = 0

    def register(self, request: BrokerRegistrationRequest) -> int:
        steps = self.brokers.register(request, self.cluster.image.end_offset, self.now_ms)
        return self.cluster.decide(steps).broker_epoch

    def heartbeat(self, broker_id: int = 1, **fields: Any) -> BrokerHeartbeatResponse:
        given: dict[str, Any] = {
            "broker_id": broker_id,
            "broker_epoch": self.cluster.epoch(broker_id),
            "current_metadata_offset": self.cluster.image.end_offset - 1,
        }
        request = BrokerHeartbeatRequest(**{**given, **fields})
        return self.cluster.decide(self.brokers.heartbeat(request, self.now_ms))

    def heartbeat_flags(self, broker_id: int = 1, **fields: Any) -> tuple[bool, bool, bool]:
        response = self.heartbeat(broker_id, **fields)
        return response.is_caught_up, response.is_fenced, response.should_shut_down


def without_brokers(**options: Any) -> BrokerLifecycle:
    return BrokerLifecycle(MachineCluster(0, **options))
