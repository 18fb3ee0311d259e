"""What one log, and whoever replicates it, must know of its topic's configuration: those topic keys, parsed once.

Owned by the log; built by whoever knows the effective configuration of a topic, as text under Kafka's key names.
Equal configurations give the same object, so thousands of partitions share one.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any

import msgspec

MAX_LONG = (1 << 63) - 1
MAX_INT = (1 << 31) - 1


class LogSettings(msgspec.Struct, frozen=True):
    """Field names are Kafka's topic keys with underscores; `cleanup.policy` is split into its two words."""

    segment_bytes: int = 1 << 30
    segment_ms: int = 604_800_000
    segment_jitter_ms: int = 0
    segment_index_bytes: int = 10 << 20
    index_interval_bytes: int = 4096
    flush_messages: int = MAX_LONG
    flush_ms: int = MAX_LONG
    retention_bytes: int = -1
    retention_ms: int = 604_800_000
    file_delete_delay_ms: int = 60_000
    preallocate: bool = False
    max_message_bytes: int = 1_048_588
    cleanup_delete: bool = True
    cleanup_compact: bool = False
    delete_retention_ms: int = 86_400_000
    min_compaction_lag_ms: int = 0
    max_compaction_lag_ms: int = MAX_LONG
    min_cleanable_dirty_ratio: float = 0.5
    message_timestamp_type: str = "CreateTime"
    message_timestamp_before_max_ms: int = MAX_LONG
    message_timestamp_after_max_ms: int = 3_600_000
    compression_type: str = "producer"
    compression_gzip_level: int = -1
    compression_lz4_level: int = 9
    compression_zstd_level: int = 3
    min_insync_replicas: int = 1
    producer_id_expiration_ms: int = 86_400_000

    @property
    def stamps_append_time(self) -> bool:
        return self.message_timestamp_type == "LogAppendTime"

    @property
    def roll_ms(self) -> int:
        """How old a segment may get. On a compacted topic not too old to be compacted in time: the active segment never
        is."""
        return min(self.segment_ms, self.max_compaction_lag_ms) if self.cleanup_compact else self.segment_ms

    @staticmethod
    def of(config: Mapping[str, str]) -> LogSettings:
        """From topic keys ("segment.bytes", …); keys of no concern to the log are left alone, missing ones default."""
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
