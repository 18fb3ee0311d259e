"""The topic configs that a log and its replication use, parsed once.

Built from the effective config of a topic, as text under Kafka's key names. Equal configs give the same object, so
thousands of partitions share one.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any

import msgspec

from strandline.model.config_keys.broker import broker_default
from strandline.model.config_keys.topic import topic_default

MAX_LONG = (1 << 63) - 1
MAX_INT = (1 << 31) - 1


class LogSettings(msgspec.Struct, frozen=True):
    """Field names are Kafka's topic keys with underscores; `cleanup.policy` is split into its two values."""

    segment_bytes: int = topic_default("segment.bytes")
    segment_ms: int = topic_default("segment.ms")
    segment_jitter_ms: int = topic_default("segment.jitter.ms")
    segment_index_bytes: int = topic_default("segment.index.bytes")
    index_interval_bytes: int = topic_default("index.interval.bytes")
    flush_messages: int = topic_default("flush.messages")
    flush_ms: int = topic_default("flush.ms")
    retention_bytes: int = topic_default("retention.bytes")
    retention_ms: int = topic_default("retention.ms")
    file_delete_delay_ms: int = topic_default("file.delete.delay.ms")
    preallocate: bool = topic_default("preallocate")
    max_message_bytes: int = topic_default("max.message.bytes")
    cleanup_delete: bool = "delete" in topic_default("cleanup.policy")
    cleanup_compact: bool = "compact" in topic_default("cleanup.policy")
    delete_retention_ms: int = topic_default("delete.retention.ms")
    min_compaction_lag_ms: int = topic_default("min.compaction.lag.ms")
    max_compaction_lag_ms: int = topic_default("max.compaction.lag.ms")
    min_cleanable_dirty_ratio: float = topic_default("min.cleanable.dirty.ratio")
    message_timestamp_type: str = topic_default("message.timestamp.type")
    message_timestamp_before_max_ms: int = topic_default("message.timestamp.before.max.ms")
    message_timestamp_after_max_ms: int = topic_default("message.timestamp.after.max.ms")
    compression_type: str = topic_default("compression.type")
    compression_gzip_level: int = topic_default("compression.gzip.level")
    compression_lz4_level: int = topic_default("compression.lz4.level")
    compression_zstd_level: int = topic_default("compression.zstd.level")
    min_insync_replicas: int = topic_default("min.insync.replicas")
    producer_id_expiration_ms: int = broker_default("producer.id.expiration.ms")

    @property
    def stamps_append_time(self) -> bool:
        return self.message_timestamp_type == "LogAppendTime"

    @property
    def roll_ms(self) -> int:
        """The largest age of the active segment. On a compacted topic max.compaction.lag.ms limits it too, because the
        active segment is never compacted."""
        return min(self.segment_ms, self.max_compaction_lag_ms) if self.cleanup_compact else self.segment_ms

    @staticmethod
    def of(config: Mapping[str, str]) -> LogSettings:
        """The settings of topic configs ("segment.bytes", …); other keys are ignored, missing ones get defaults."""
        return _shared(tuple(sorted((key, config[key]) for key in _FIELD_OF_KEY if key in config)))


_FIELD_OF_KEY: dict[str, tuple[str, type]] = {
    name.replace("_", "."): (name, type(default))
    for name, default in zip(LogSettings.__struct_fields__, LogSettings.__struct_defaults__, strict=True)
    if name not in ("cleanup_delete", "cleanup_compact")
}
_FIELD_OF_KEY["cleanup.policy"] = ("cleanup_policy", str)


@lru_cache(maxsize=256)
def _shared(items: tuple[tuple[str, str], ...]) -> LogSettings:
    values: dict[str, Any] = {}
    for key, text in items:
        name, kind = _FIELD_OF_KEY[key]
        if name == "cleanup_policy":
            words = {word.strip() for word in text.split(",")}
            values["cleanup_delete"] = "delete" in words
            values["cleanup_compact"] = "compact" in words
        else:
            values[name] = _parsed(key, text, kind)
    return LogSettings(**values)


def _parsed(key: str, text: str, kind: type) -> object:
    word = text.strip()
    if kind is bool:
        if word.lower() not in ("true", "false"):
            raise ValueError(f"{key}={text!r} is neither true nor false")
        return word.lower() == "true"
    try:
        return kind(word)
    except ValueError as error:
        raise ValueError(f"{key}={text!r} is not a number") from error
