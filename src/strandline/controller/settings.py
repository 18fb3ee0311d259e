"""What the controller needs to know of its node's configuration: a slice that `node` cuts out of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class ControllerSettings:
    node_id: int
    cluster_id: str
    num_partitions: int = 1
    default_replication_factor: int = 1
    broker_session_timeout_ms: int = 9000
    delete_topic_enable: bool = True
    static: Mapping[str, str] = field(default_factory=dict)
    """The node's configuration file as text, by Kafka's key names: the weakest layer of topic settings but one."""
