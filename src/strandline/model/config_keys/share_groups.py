"""Broker keys of share groups and the share coordinator."""

from __future__ import annotations

from strandline.model.config_keys.key import ConfigKey, Items
from strandline.model.config_keys.key_types import CLUSTER_WIDE, integer, listing, short, string

KEYS: tuple[ConfigKey, ...] = (
    integer(
        "group.share.session.timeout.ms",
        45_000,
        "A share group member without a heartbeat for this long is removed.",
        at_least=1,
    ),
    integer(
        "group.share.min.session.timeout.ms",
        45_000,
        "Smallest session timeout a share group may be configured with.",
        at_least=1,
    ),
    integer(
        "group.share.max.session.timeout.ms",
        60_000,
        "Largest session timeout a share group may be configured with.",
        at_least=1,
    ),
    integer(
        "group.share.heartbeat.interval.ms",
        5_000,
        "Heartbeat interval of members of share groups.",
        at_least=1,
    ),
    integer(
        "group.share.min.heartbeat.interval.ms",
        5_000,
        "Smallest heartbeat interval a share group may be configured with.",
        at_least=1,
    ),
    integer(
        "group.share.max.heartbeat.interval.ms",
        15_000,
        "Largest heartbeat interval a share group may be configured with.",
        at_least=1,
    ),
    integer("group.share.max.size", 200, "Most members of a share group.", at_least=1, at_most=1_000),
    listing(
        "group.share.assignors", "simple", "Assignors for share groups; exactly one.", allowed=Items(at_least_one=True)
    ),
    integer(
        "group.share.assignment.interval.ms",
        1_000,
        "Shortest time between two assignments of one share group.",
        at_least=0,
        mode=CLUSTER_WIDE,
    ),
    integer(
        "group.share.min.assignment.interval.ms",
        0,
        "Smallest assignment interval a share group may be configured with.",
        at_least=0,
    ),
    integer(
        "group.share.max.assignment.interval.ms",
        15_000,
        "Largest assignment interval a share group may be configured with.",
        at_least=0,
    ),
    integer(
        "group.share.initialize.retry.interval.ms",
        30_000,
        "Backoff before the state of a share group's partition is initialized again.",
        at_least=1,
        internal=True,
    ),
    integer(
        "group.share.delivery.count.limit",
        5,
        "Deliveries of a record before it is archived.",
        at_least=2,
        at_most=10,
    ),
    integer(
        "group.share.max.delivery.count.limit",
        10,
        "Largest delivery limit a share group may be configured with.",
        at_least=5,
        at_most=25,
    ),
    integer(
        "group.share.min.delivery.count.limit",
        2,
        "Smallest delivery limit a share group may be configured with.",
        at_least=2,
        at_most=5,
    ),
    integer(
        "group.share.record.lock.duration.ms",
        30_000,
        "How long a delivered record stays locked for its consumer.",
        at_least=1_000,
        at_most=3_600_000,
    ),
    integer(
        "group.share.min.record.lock.duration.ms",
        15_000,
        "Shortest lock duration a share group may be configured with.",
        at_least=1_000,
        at_most=30_000,
    ),
    integer(
        "group.share.max.record.lock.duration.ms",
        60_000,
        "Longest lock duration a share group may be configured with.",
        at_least=30_000,
        at_most=3_600_000,
    ),
    integer(
        "group.share.partition.max.record.locks",
        2_000,
        "Records of one partition that may be in flight at the same time.",
        at_least=100,
        at_most=10_000,
    ),
    integer(
        "group.share.max.partition.max.record.locks",
        4_000,
        "Largest in-flight limit a share group may be configured with.",
        at_least=2_000,
        at_most=10_000,
    ),
    integer(
        "group.share.min.partition.max.record.locks",
        100,
        "Smallest in-flight limit a share group may be configured with.",
        at_least=100,
        at_most=2_000,
    ),
    integer("group.share.max.share.sessions", 2_000, "Share sessions a broker keeps.", at_least=1),
    string(
        "group.share.persister.class.name",
        "org.apache.kafka.server.share.persister.DefaultStatePersister",
        "Class that stores the delivery state of share groups.",
        internal=True,
    ),
    integer(
        "share.fetch.purgatory.purge.interval.requests",
        1_000,
        "Delayed share fetches after which completed ones are purged.",
    ),
    integer(
        "share.coordinator.state.topic.num.partitions",
        50,
        "Partitions of the share state topic; not to be changed after it exists.",
        at_least=1,
    ),
    short("share.coordinator.state.topic.replication.factor", 3, "Replicas of the share state topic.", at_least=1),
    short(
        "share.coordinator.state.topic.min.isr",
        2,
        "In-sync replicas that a write to the share state topic needs.",
        at_least=1,
    ),
    integer(
        "share.coordinator.state.topic.segment.bytes", 104_857_600, "Segment size of the share state topic.", at_least=1
    ),
    integer("share.coordinator.state.topic.compression.codec", 0, "Codec number for the share state topic."),
    integer(
        "share.coordinator.state.topic.prune.interval.ms",
        300_000,
        "How often records that snapshots made redundant are removed.",
        at_least=1,
        internal=True,
    ),
    integer("share.coordinator.threads", 1, "Share coordinators' event loops per broker.", at_least=1),
    integer(
        "share.coordinator.snapshot.update.records.per.snapshot",
        500,
        "Update records written between two snapshots of a share partition.",
        at_least=0,
        at_most=500,
    ),
    integer(
        "share.coordinator.load.buffer.size",
        5_242_880,
        "Bytes read at a time when a share coordinator loads its partition.",
        at_least=1,
    ),
    integer(
        "share.coordinator.append.linger.ms",
        -1,
        "How long writes of share state are collected before they are appended; -1 adapts to the load.",
        at_least=-1,
    ),
    integer(
        "share.coordinator.write.timeout.ms",
        5_000,
        "How long a write of share state waits for its replicas.",
        at_least=1,
    ),
    integer(
        "share.coordinator.cold.partition.snapshot.interval.ms",
        300_000,
        "How often partitions without changes are snapshotted again.",
        at_least=1,
        internal=True,
    ),
    integer(
        "share.coordinator.cached.buffer.max.bytes",
        1_048_588,
        "Largest write buffer that a share coordinator keeps for reuse.",
        at_least=524_288,
        mode=CLUSTER_WIDE,
    ),
)
