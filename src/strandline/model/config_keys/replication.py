"""How replicas follow their leaders and which of them may lead."""

from __future__ import annotations

from strandline.model.config_keys.key import ConfigKey
from strandline.model.config_keys.key_types import CLUSTER_WIDE, boolean, integer, long, string

KEYS: tuple[ConfigKey, ...] = (
    long(
        "replica.lag.time.max.ms",
        30_000,
        "A follower that has not caught up for this long leaves the in-sync replicas.",
    ),
    integer(
        "replica.socket.timeout.ms",
        30_000,
        "How long a follower waits for the leader's response; at least replica.fetch.wait.max.ms.",
    ),
    integer(
        "replica.socket.receive.buffer.bytes", 65_536, "Receive buffer of the sockets that followers fetch through."
    ),
    integer(
        "replica.fetch.max.bytes",
        1_048_576,
        "Bytes that a follower requests per partition; one larger batch is still returned.",
        at_least=0,
    ),
    integer(
        "replica.fetch.wait.max.ms", 500, "Longest a leader holds a follower's fetch; below replica.lag.time.max.ms."
    ),
    integer(
        "replica.fetch.backoff.ms", 1_000, "Backoff before a partition is fetched again after an error.", at_least=0
    ),
    integer("replica.fetch.min.bytes", 1, "Bytes that a leader waits for before it responds to a follower."),
    integer(
        "replica.fetch.response.max.bytes",
        10_485_760,
        "Bytes that a follower requests in one response, over all partitions.",
        at_least=0,
    ),
    integer("num.replica.fetchers", 1, "Fetchers per source broker.", at_least=1, mode=CLUSTER_WIDE),
    integer(
        "num.replica.alter.log.dirs.threads",
        None,
        "Threads that move partitions between directories; one per directory by default.",
    ),
    long("replica.high.watermark.checkpoint.interval.ms", 5_000, "How often the high watermarks are checkpointed."),
    string(
        "replica.selector.class",
        None,
        "Class that picks the replica a consumer should read from; the leader by default.",
    ),
    boolean(
        "auto.leader.rebalance.enable",
        True,
        "Whether preferred replicas are elected leader periodically.",
    ),
    long(
        "leader.imbalance.check.interval.seconds",
        300,
        "How often partitions are checked for a leader other than the preferred one.",
        at_least=1,
    ),
    boolean(
        "unclean.leader.election.enable",
        False,
        "Whether a replica that is not in sync may lead when no other can, losing records.",
        mode=CLUSTER_WIDE,
    ),
    long(
        "unclean.leader.election.interval.ms",
        300_000,
        "How often partitions without a leader are checked for an unclean election.",
        at_least=1,
        internal=True,
    ),
    boolean(
        "follower.fetch.last.tiered.offset.enable",
        False,
        "Whether a new follower starts at the end of tiered storage.",
        mode=CLUSTER_WIDE,
    ),
    integer("controller.socket.timeout.ms", 30_000, "How long a broker waits for the controller's response."),
)
