"""The slice of a node's config that the controller uses; built by `node/controller_role`."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from strandline.model.config_keys.broker import broker_default, config_field
from strandline.model.ids import Uuid


class ControllerSettings(msgspec.Struct, frozen=True):
    node_id: int
    cluster_id: str
    num_partitions: int = config_field("num.partitions")
    default_replication_factor: int = config_field("default.replication.factor")
    broker_session_timeout_ms: int = config_field("broker.session.timeout.ms")
    broker_heartbeat_interval_ms: int = config_field("broker.heartbeat.interval.ms")
    delete_topic_enable: bool = config_field("delete.topic.enable")
    max_idle_interval_ms: int = config_field("metadata.max.idle.interval.ms")
    """How long the log may be idle before a NoOpRecord is appended; 0 disables it."""
    auto_leader_rebalance_enable: bool = config_field("auto.leader.rebalance.enable")
    leader_imbalance_check_interval_ms: int = broker_default("leader.imbalance.check.interval.seconds") * 1000
    unclean_leader_election_interval_ms: int = config_field("unclean.leader.election.interval.ms")
    token_expiry_check_interval_ms: int = config_field("delegation.token.expiry.check.interval.ms")
    authorizer: bool = False
    """Whether an authorizer is configured; without one ACLs are neither described nor changed."""
    failure_detection: bool = config_field("strandline.broker.death.detection.enable")
    """See `controller.failure_detector`."""
    incarnation_id: Uuid | None = None
    """The incarnation of the broker in this process, if any: another incarnation under its id is an earlier process."""
    configured_voters: tuple[int, ...] = ()
    """`controller.quorum.voters`, if the voter set is static."""
    static: Mapping[str, str] = msgspec.field(default_factory=dict)
    """The node's properties file as text, by key: of the layers of topic configs only the defaults are weaker."""
