"""What the controller needs to know of its node's configuration: a slice that `node` cuts out of it."""

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
    """`metadata.max.idle.interval.ms`: how long the log may stand still before a NoOp shows that it is led; 0: ever."""
    auto_leader_rebalance_enable: bool = config_field("auto.leader.rebalance.enable")
    leader_imbalance_check_interval_ms: int = broker_default("leader.imbalance.check.interval.seconds") * 1000
    unclean_leader_election_interval_ms: int = config_field("unclean.leader.election.interval.ms")
    token_expiry_check_interval_ms: int = config_field("delegation.token.expiry.check.interval.ms")
    authorizer: bool = False
    """Whether somebody judges by ACLs; without it they are neither shown nor changed."""
    failure_detection: bool = config_field("strandline.broker.death.detection.enable")
    """`strandline.broker.death.detection.enable`: see `controller.failure_detector`."""
    incarnation_id: Uuid | None = None
    """Under which the broker of this process registers, if it has one: any other under its id is a predecessor."""
    configured_voters: tuple[int, ...] = ()
    """`controller.quorum.voters`, if the quorum has its voters from there."""
    static: Mapping[str, str] = msgspec.field(default_factory=dict)
    """The node's configuration file as text, by Kafka's key names: the weakest layer of topic settings but one."""
