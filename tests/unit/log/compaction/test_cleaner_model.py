"""Compaction compared with a model: a list of everything appended."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest
from msgspec.structs import replace

from strandline.records.batch import Codec
from unit.log.compaction.compacted_log import DAY, SETTINGS, CompactedLog


def apply_randomly(log: CompactedLog, rng: random.Random, appended: dict[int, tuple[str, str | None, int]]) -> None:
    pairs: list[tuple[str | None, str | None]] = [
        (f"k{rng.randrange(12)}", None if rng.random() < 0.2 else str(rng.randrange(1000)))
        for _ in range(rng.choice([1, 1, 2, 5, 90]))
    ]
    base = log.put(*pairs, codec=rng.choice(list(Codec)))
    for n, (key, value) in enumerate(pairs):
        assert key is not None
        appended[base + n] = (key, value, log.now + n)


@pytest.mark.parametrize("seed", range(8))
def test_whatever_is_written_and_cleaned_readers_see_the_last_value_of_each_key(seed: int) -> None:
    rng = random.Random(seed)
    log = CompactedLog(replace(SETTINGS, segment_bytes=20_000, index_interval_bytes=300))
    appended: dict[int, tuple[str, str | None, int]] = {}
    steps: list[Callable[[], object]] = [
        lambda: apply_randomly(log, rng, appended),
        lambda: apply_randomly(log, rng, appended),
        lambda: apply_randomly(log, rng, appended),
        log.roll,
        lambda: log.clean(dedupe_buffer_bytes=rng.choice([0, 1 << 20])),
        lambda: log.reopen(clean=rng.random() < 0.5),
    ]
    for _ in range(120):
        log.now += rng.choice([0, 1, 1000, DAY // 2])
        rng.choice(steps)()
        check_against(log, appended)


def check_against(log: CompactedLog, appended: dict[int, tuple[str, str | None, int]]) -> None:
    current: dict[str, int] = {}
    for offset, (key, _, _) in appended.items():
        current[key] = offset
    left = {record.offset: record for record in log.records()}
    for offset, record in left.items():
        key, value, timestamp = appended[offset]
        assert record.key == key.encode()
        assert record.value == (None if value is None else value.encode())
        assert record.timestamp == timestamp
    for key, offset in current.items():
        if appended[offset][1] is not None:
            assert offset in left, f"{key} lost its value"
        else:
            older = [at for at, (other, value, _) in appended.items() if other == key and at < offset]
            assert offset in left or not any(at in left for at in older), f"{key} came back"
    offsets = [record.offset for record in log.records()]
    assert offsets == sorted(offsets)
    assert log.log.log_end_offset == len(appended)
