"""Parsing topic configs."""

from __future__ import annotations

import pytest

from strandline.log.settings import MAX_LONG, LogSettings


def test_missing_keys_have_kafkas_defaults() -> None:
    settings = LogSettings.of({})
    assert settings == LogSettings()
    assert (settings.segment_bytes, settings.retention_ms, settings.flush_messages) == (1 << 30, 604_800_000, MAX_LONG)
    assert settings.cleanup_delete and not settings.cleanup_compact


def test_every_key_is_read_by_its_topic_name() -> None:
    settings = LogSettings.of(
        {
            "segment.bytes": "1000",
            "cleanup.policy": "compact,delete",
            "preallocate": "true",
            "min.cleanable.dirty.ratio": "0.25",
            "message.timestamp.type": "LogAppendTime",
            "compression.zstd.level": "5",
            "min.insync.replicas": "2",
        }
    )
    assert settings.segment_bytes == 1000
    assert settings.cleanup_compact and settings.cleanup_delete and settings.preallocate
    assert settings.min_cleanable_dirty_ratio == 0.25
    assert settings.stamps_append_time
    assert settings.compression_zstd_level == 5


def test_equal_configs_share_one_object() -> None:
    assert LogSettings.of({"segment.bytes": "77", "x": "1"}) is LogSettings.of({"segment.bytes": "77"})


@pytest.mark.parametrize(("key", "value"), [("segment.bytes", "many"), ("preallocate", "perhaps")])
def test_an_invalid_value_is_reported_with_its_key(key: str, value: str) -> None:
    with pytest.raises(ValueError, match=key):
        LogSettings.of({key: value})
