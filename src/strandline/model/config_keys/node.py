"""Broker keys of the node itself: identity, roles, topic defaults, metrics."""

from __future__ import annotations

from strandline.model.config_keys.key import MAX_LONG, ConfigKey, Items, OneOf
from strandline.model.config_keys.key_types import CLUSTER_WIDE, boolean, class_name, integer, listing, long, string

KEYS: tuple[ConfigKey, ...] = (
    listing(
        "process.roles",
        None,
        "What this process is: broker, controller, or both.",
        allowed=Items(("broker", "controller"), at_least_one=True),
        required=True,
    ),
    integer(
        "node.id",
        None,
        "The number of this node, unique in the cluster and across both roles.",
        at_least=0,
        required=True,
    ),
    integer("broker.id", -1, "Older name of node.id; if both are set they must agree."),
    string(
        "broker.rack", None, "Name of the machine, rack or zone; replicas of a partition spread over different ones."
    ),
    long(
        "server.max.startup.time.ms",
        MAX_LONG,
        "How long a node may take to start before it fails.",
        at_least=0,
        internal=True,
    ),
    integer(
        "request.timeout.ms", 30_000, "How long to wait for a response of another node before the request is retried."
    ),
    integer(
        "background.threads", 10, "Threads for maintenance work such as deleting files.", at_least=1, mode=CLUSTER_WIDE
    ),
    integer(
        "message.max.bytes",
        1_048_588,
        "Largest record batch accepted (after compression); topics override it with max.message.bytes.",
        at_least=0,
        mode=CLUSTER_WIDE,
    ),
    string(
        "compression.type",
        "producer",
        "Codec a topic's batches are stored with; `producer` keeps the producer's codec.",
        allowed=OneOf(("uncompressed", "zstd", "lz4", "snappy", "gzip", "producer")),
        mode=CLUSTER_WIDE,
    ),
    integer(
        "compression.gzip.level",
        -1,
        "Compression level of gzip when the broker compresses; -1 is the codec's default.",
        at_least=1,
        at_most=9,
        also=-1,
        mode=CLUSTER_WIDE,
    ),
    integer(
        "compression.lz4.level",
        9,
        "Compression level of lz4 when the broker compresses.",
        at_least=1,
        at_most=17,
        mode=CLUSTER_WIDE,
    ),
    integer(
        "compression.zstd.level",
        3,
        "Compression level of zstd when the broker compresses; negative levels trade size for speed.",
        at_least=-131_072,
        at_most=22,
        mode=CLUSTER_WIDE,
    ),
    boolean("auto.create.topics.enable", True, "Whether a Metadata request for a missing topic creates it."),
    boolean("delete.topic.enable", True, "Whether topics can be deleted; if not, DeleteTopics is rejected."),
    integer("num.partitions", 1, "Partitions of a topic that is created without a number.", at_least=1),
    integer("default.replication.factor", 1, "Replicas of a topic that is created without a replication factor."),
    class_name(
        "create.topic.policy.class.name", None, "Class that validates the creation of topics; runs on controllers."
    ),
    class_name("alter.config.policy.class.name", None, "Class that validates config changes; runs on controllers."),
    listing(
        "config.providers",
        "",
        "Names of the providers that resolve ${name:path:key} references in values.",
        allowed=Items(),
        mode=CLUSTER_WIDE,
    ),
    boolean("controlled.shutdown.enable", True, "Whether a stopping broker first transfers its leaderships."),
    integer(
        "max.request.partition.size.limit",
        2_000,
        "Most partitions in one DescribeTopicPartitions response.",
        at_least=1,
    ),
    boolean(
        "unstable.api.versions.enable",
        False,
        "Whether API versions still in development are offered; for tests.",
        internal=True,
    ),
    boolean(
        "unstable.feature.versions.enable",
        False,
        "Whether feature levels still in development may be finalized; for tests.",
        internal=True,
    ),
    integer("telemetry.max.bytes", 1_048_576, "Largest compressed metrics report accepted from a client.", at_least=1),
    integer("metrics.num.samples", 2, "Samples kept to compute a metric.", at_least=1),
    long("metrics.sample.window.ms", 30_000, "Length of one sample of a metric.", at_least=1),
    string("metrics.recording.level", "INFO", "Level of the recorded metrics: INFO, DEBUG or TRACE."),
    listing(
        "metric.reporters",
        "org.apache.kafka.common.metrics.JmxReporter",
        "Classes that publish metrics.",
        allowed=Items(),
        mode=CLUSTER_WIDE,
    ),
    listing(
        "kafka.metrics.reporters", "", "Classes of the older metrics library that publish metrics.", allowed=Items()
    ),
    integer("kafka.metrics.polling.interval.secs", 10, "How often the older metrics reporters are polled.", at_least=1),
)
