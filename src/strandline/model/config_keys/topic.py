"""The keys of topics, and the rules between them.

`check_topic_configs` is called for CreateTopics and AlterConfigs; `metadata/effective_configs` reads from `synonyms`
which broker keys apply to a topic without a value of its own.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

from strandline.model.config_keys.broker import inherit_defaults
from strandline.model.config_keys.key import (
    ConfigError,
    ConfigKey,
    ConfigValue,
    Items,
    OneOf,
    Satisfies,
    Synonym,
    by_name,
)
from strandline.model.config_keys.key_types import INHERITED, boolean, double, integer, listing, long, string, synonym

_MINUTE_MS: Final = 60_000
_HOUR_MS: Final = 3_600_000
# Kafka accepts empty items, and tools that write this list rely on it.
_THROTTLED_REPLICA: Final = re.compile(r"(?:[0-9]+:[0-9]+)?")


def _throttled_replicas_problem(value: ConfigValue) -> str | None:
    assert isinstance(value, tuple)
    if value == ("*",) or all(_THROTTLED_REPLICA.fullmatch(item) for item in value):
        return None
    return "must be * for all replicas, or pairs partition:broker such as 0:101,1:102"


_SIZE = (
    integer(
        "segment.bytes",
        INHERITED,
        "Size at which a segment is rolled.",
        at_least=1_048_576,
        synonyms=synonym("log.segment.bytes"),
    ),
    long(
        "segment.ms",
        INHERITED,
        "Age at which a segment is rolled even if it is small.",
        at_least=1,
        synonyms=(Synonym("log.roll.ms"), Synonym("log.roll.hours", _HOUR_MS)),
    ),
    long(
        "segment.jitter.ms",
        INHERITED,
        "Random time subtracted from segment.ms, so that partitions do not roll at the same time.",
        at_least=0,
        synonyms=(Synonym("log.roll.jitter.ms"), Synonym("log.roll.jitter.hours", _HOUR_MS)),
    ),
    integer(
        "segment.index.bytes",
        INHERITED,
        "Largest size of an index file; a full index rolls the segment.",
        at_least=4,
        synonyms=synonym("log.index.size.max.bytes"),
    ),
    integer(
        "index.interval.bytes",
        INHERITED,
        "Bytes of log between two entries of the offset index.",
        at_least=0,
        synonyms=synonym("log.index.interval.bytes"),
    ),
    boolean(
        "preallocate",
        INHERITED,
        "Whether new segment files are preallocated.",
        synonyms=synonym("log.preallocate"),
    ),
    integer(
        "internal.segment.bytes",
        None,
        "Segment size below the usual minimum; for tests.",
        internal=True,
    ),
)

_FLUSH = (
    long(
        "flush.messages",
        INHERITED,
        "Messages appended before a partition is flushed.",
        at_least=1,
        synonyms=synonym("log.flush.interval.messages"),
    ),
    long(
        "flush.ms",
        INHERITED,
        "Time before a record is flushed.",
        at_least=0,
        synonyms=(Synonym("log.flush.interval.ms"), Synonym("log.flush.scheduler.interval.ms")),
    ),
)

_RETENTION = (
    listing(
        "cleanup.policy",
        INHERITED,
        "How old records are removed: delete, compact, both, or not at all when empty.",
        allowed=Items(("compact", "delete")),
        synonyms=synonym("log.cleanup.policy"),
    ),
    long(
        "retention.bytes",
        INHERITED,
        "Size of a partition above which its oldest segments are deleted; -1 sets no limit.",
        synonyms=synonym("log.retention.bytes"),
    ),
    long(
        "retention.ms",
        INHERITED,
        "How long records are kept; -1 forever.",
        at_least=-1,
        synonyms=(
            Synonym("log.retention.ms"),
            Synonym("log.retention.minutes", _MINUTE_MS),
            Synonym("log.retention.hours", _HOUR_MS),
        ),
    ),
    long(
        "file.delete.delay.ms",
        INHERITED,
        "How long a deleted segment's files stay before they are unlinked.",
        at_least=0,
        synonyms=synonym("log.segment.delete.delay.ms"),
    ),
    long(
        "delete.retention.ms",
        INHERITED,
        "How long tombstones stay readable after compaction.",
        at_least=0,
        synonyms=synonym("log.cleaner.delete.retention.ms"),
    ),
    long(
        "min.compaction.lag.ms",
        INHERITED,
        "Age a record must reach before it may be compacted away.",
        at_least=0,
        synonyms=synonym("log.cleaner.min.compaction.lag.ms"),
    ),
    long(
        "max.compaction.lag.ms",
        INHERITED,
        "Age at which a record must have become eligible for compaction.",
        at_least=1,
        synonyms=synonym("log.cleaner.max.compaction.lag.ms"),
    ),
    double(
        "min.cleanable.dirty.ratio",
        INHERITED,
        "Share of a log that must be uncompacted before it is compacted.",
        at_least=0,
        at_most=1,
        synonyms=synonym("log.cleaner.min.cleanable.ratio"),
    ),
)

_RECORDS = (
    integer(
        "max.message.bytes",
        INHERITED,
        "Largest record batch accepted (after compression).",
        at_least=0,
        synonyms=synonym("message.max.bytes"),
    ),
    string(
        "compression.type",
        INHERITED,
        "Codec that batches are stored with; `producer` keeps the producer's codec.",
        allowed=OneOf(("uncompressed", "zstd", "lz4", "snappy", "gzip", "producer")),
        synonyms=synonym("compression.type"),
    ),
    integer(
        "compression.gzip.level",
        INHERITED,
        "Compression level of gzip when the broker compresses; -1 is the codec's default.",
        at_least=1,
        at_most=9,
        also=-1,
        synonyms=synonym("compression.gzip.level"),
    ),
    integer(
        "compression.lz4.level",
        INHERITED,
        "Compression level of lz4 when the broker compresses.",
        at_least=1,
        at_most=17,
        synonyms=synonym("compression.lz4.level"),
    ),
    integer(
        "compression.zstd.level",
        INHERITED,
        "Compression level of zstd when the broker compresses; negative levels trade size for speed.",
        at_least=-131_072,
        at_most=22,
        synonyms=synonym("compression.zstd.level"),
    ),
    string(
        "message.timestamp.type",
        INHERITED,
        "Whether timestamps are the producer's or the time of appending.",
        allowed=OneOf(("CreateTime", "LogAppendTime")),
        synonyms=synonym("log.message.timestamp.type"),
    ),
    long(
        "message.timestamp.before.max.ms",
        INHERITED,
        "How far a record's timestamp may lie in the past.",
        at_least=0,
        synonyms=synonym("log.message.timestamp.before.max.ms"),
    ),
    long(
        "message.timestamp.after.max.ms",
        INHERITED,
        "How far a record's timestamp may lie in the future.",
        at_least=0,
        synonyms=synonym("log.message.timestamp.after.max.ms"),
    ),
)

_REPLICAS = (
    integer(
        "min.insync.replicas",
        INHERITED,
        "In-sync replicas an acks=all write needs to be accepted.",
        at_least=1,
        synonyms=synonym("min.insync.replicas"),
    ),
    boolean(
        "unclean.leader.election.enable",
        INHERITED,
        "Whether a replica that is not in sync may lead when no other can, losing records.",
        synonyms=synonym("unclean.leader.election.enable"),
    ),
    listing(
        "leader.replication.throttled.replicas",
        "",
        "Replicas throttled on the leader's side, as partition:broker pairs or *.",
        allowed=Satisfies(_throttled_replicas_problem),
    ),
    listing(
        "follower.replication.throttled.replicas",
        "",
        "Replicas throttled on the follower's side, as partition:broker pairs or *.",
        allowed=Satisfies(_throttled_replicas_problem),
    ),
)

_TIERING = (
    boolean("remote.storage.enable", False, "Whether closed segments are copied to a remote store."),
    boolean("remote.log.copy.disable", False, "Whether copying stops while what was copied stays readable."),
    boolean("remote.log.delete.on.disable", False, "Whether turning tiered storage off deletes what was copied."),
    long(
        "local.retention.ms",
        INHERITED,
        "How long tiered segments stay local too; -2 means as long as retention.ms.",
        at_least=-2,
        synonyms=synonym("log.local.retention.ms"),
    ),
    long(
        "local.retention.bytes",
        INHERITED,
        "Local size of a tiered partition; -2 means the same as retention.bytes.",
        at_least=-2,
        synonyms=synonym("log.local.retention.bytes"),
    ),
)

TOPIC_KEYS: Final[Mapping[str, ConfigKey]] = by_name(
    inherit_defaults((*_SIZE, *_FLUSH, *_RETENTION, *_RECORDS, *_REPLICAS, *_TIERING))
)


def topic_default(name: str) -> Any:
    """The parsed default of a topic key, for the typed slices of config."""
    return TOPIC_KEYS[name].default_value()


def check_topic_configs(configs: Mapping[str, str], defaults: Mapping[str, str] | None = None) -> None:
    """Raises ConfigError unless a topic can have these configs.

    `defaults` are the effective values of the keys that the topic does not set, needed by the rules between two keys.
    """
    for name, value in configs.items():
        key = TOPIC_KEYS.get(name)
        if key is None:
            raise ConfigError(name, None, "is not a topic config")
        key.check(value)
    if configs:
        _check_together(configs, defaults or {})


def _check_together(configs: Mapping[str, str], defaults: Mapping[str, str]) -> None:
    def value(name: str) -> ConfigValue:
        key = TOPIC_KEYS[name]
        text = configs.get(name, defaults.get(name, key.default))
        assert text is not None
        return key.parse(text)

    shortest, longest = value("min.compaction.lag.ms"), value("max.compaction.lag.ms")
    if isinstance(shortest, int) and isinstance(longest, int) and shortest > longest:
        raise ConfigError(
            "min.compaction.lag.ms", str(shortest), f"must not be greater than max.compaction.lag.ms ({longest})"
        )
    if value("remote.storage.enable") is True:
        raise ConfigError(
            "remote.storage.enable", "true", "tiered storage is not available (remote.log.storage.system.enable=false)"
        )
