"""Broker keys of tiered storage."""

from __future__ import annotations

from strandline.model.config_keys.key import MAX_LONG, ConfigKey, NonEmpty
from strandline.model.config_keys.key_types import CLUSTER_WIDE, boolean, double, integer, long, string

KEYS: tuple[ConfigKey, ...] = (
    boolean("remote.log.storage.system.enable", False, "Whether tiered storage is available on this broker."),
    string(
        "remote.log.storage.manager.impl.prefix",
        "rsm.config.",
        "Prefix of the keys handed to the remote storage class.",
        allowed=NonEmpty(),
    ),
    string(
        "remote.log.metadata.manager.impl.prefix",
        "rlmm.config.",
        "Prefix of the keys handed to the remote metadata class.",
        allowed=NonEmpty(),
    ),
    string("remote.log.storage.manager.class.name", None, "Class that stores segments remotely.", allowed=NonEmpty()),
    string("remote.log.storage.manager.class.path", None, "Where the remote storage class is found."),
    string(
        "remote.log.metadata.manager.class.name",
        "org.apache.kafka.server.log.remote.metadata.storage.TopicBasedRemoteLogMetadataManager",
        "Class that stores the metadata of remote segments.",
        allowed=NonEmpty(),
    ),
    string("remote.log.metadata.manager.class.path", None, "Where the remote metadata class is found."),
    string(
        "remote.log.metadata.manager.listener.name",
        None,
        "Listener that the remote metadata class connects to.",
        allowed=NonEmpty(),
    ),
    integer(
        "remote.log.metadata.custom.metadata.max.bytes",
        128,
        "Largest custom metadata of a remote segment.",
        at_least=0,
    ),
    long(
        "remote.log.index.file.cache.total.size.bytes",
        1_073_741_824,
        "Disk space for cached indexes of remote segments.",
        at_least=1,
        mode=CLUSTER_WIDE,
    ),
    long(
        "remote.log.index.file.cache.ttl.ms",
        900_000,
        "How long an unused index stays in the cache.",
        at_least=-1,
        internal=True,
    ),
    integer(
        "remote.log.manager.thread.pool.size",
        2,
        "Threads for remote storage tasks without a pool of their own.",
        at_least=1,
    ),
    integer(
        "remote.log.manager.copier.thread.pool.size",
        10,
        "Threads that copy segments to the remote store.",
        at_least=1,
        mode=CLUSTER_WIDE,
    ),
    integer(
        "remote.log.manager.expiration.thread.pool.size",
        10,
        "Threads that delete expired remote segments.",
        at_least=1,
        mode=CLUSTER_WIDE,
    ),
    integer(
        "remote.log.manager.follower.thread.pool.size",
        2,
        "Threads that serve followers of tiered partitions.",
        at_least=1,
        mode=CLUSTER_WIDE,
    ),
    long("remote.log.manager.task.interval.ms", 30_000, "How often remote storage tasks run.", at_least=1),
    long(
        "remote.log.manager.task.retry.backoff.ms",
        500,
        "First backoff before a failed remote storage task is retried.",
        at_least=1,
        internal=True,
    ),
    long(
        "remote.log.manager.task.retry.backoff.max.ms",
        30_000,
        "Longest backoff before a failed remote storage task is retried.",
        at_least=1,
        internal=True,
    ),
    double(
        "remote.log.manager.task.retry.jitter",
        0.2,
        "Random share added to the backoff of remote storage tasks.",
        at_least=0,
        at_most=0.5,
        internal=True,
    ),
    integer("remote.log.reader.threads", 10, "Threads that read from the remote store.", at_least=1, mode=CLUSTER_WIDE),
    integer(
        "remote.log.reader.max.pending.tasks",
        100,
        "Remote reads that may wait before fetches are rejected.",
        at_least=1,
    ),
    long(
        "log.local.retention.ms",
        -2,
        "How long tiered segments stay local too; -2 means as long as log.retention.ms.",
        at_least=-2,
        mode=CLUSTER_WIDE,
    ),
    long(
        "log.local.retention.bytes",
        -2,
        "Local size of a tiered partition; -2 means the same as log.retention.bytes.",
        at_least=-2,
        mode=CLUSTER_WIDE,
    ),
    long(
        "remote.log.manager.copy.max.bytes.per.second",
        MAX_LONG,
        "Bytes per second copied to the remote store.",
        at_least=1,
        mode=CLUSTER_WIDE,
    ),
    integer("remote.log.manager.copy.quota.window.num", 11, "Samples kept for the limit on copying.", at_least=1),
    integer(
        "remote.log.manager.copy.quota.window.size.seconds",
        1,
        "Length of one sample for the limit on copying.",
        at_least=1,
    ),
    long(
        "remote.log.manager.fetch.max.bytes.per.second",
        MAX_LONG,
        "Bytes per second read from the remote store.",
        at_least=1,
        mode=CLUSTER_WIDE,
    ),
    integer(
        "remote.log.manager.fetch.quota.window.num", 11, "Samples kept for the limit on remote reading.", at_least=1
    ),
    integer(
        "remote.log.manager.fetch.quota.window.size.seconds",
        1,
        "Length of one sample for the limit on remote reading.",
        at_least=1,
    ),
    integer(
        "remote.fetch.max.wait.ms",
        500,
        "How long a fetch waits for the remote store.",
        at_least=1,
        mode=CLUSTER_WIDE,
    ),
    long(
        "remote.list.offsets.request.timeout.ms",
        30_000,
        "How long ListOffsets waits for the remote store.",
        at_least=1,
        mode=CLUSTER_WIDE,
    ),
)
