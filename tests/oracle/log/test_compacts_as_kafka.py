"""Random logs compacted by Kafka's cleaner and by ours, in several passes: equal batches, delete horizons, indexes."""

from __future__ import annotations

import shutil
from pathlib import Path
from random import Random
from typing import NamedTuple

import pytest

from compat.java.jvm import java
from strandline.log.compaction.cleanable import Cleanable
from strandline.log.compaction.cleaner import Cleaning
from strandline.log.partition_log import PartitionLog
from strandline.log.settings import LogSettings
from strandline.log.validation import Origin
from strandline.model.ids import TopicPartition
from strandline.records.batch import (
    Codec,
    Record,
    batches,
    crc_ok,
    decode_batch,
    encode_batch,
    end_transaction_marker,
)
from strandline.runtime.disk import SystemDisk
from unit.log.logs import append_as_leader

# One worker runs Kafka once for all cases.
pytestmark = pytest.mark.xdist_group("kafka-compacts")

NOW = 1_700_000_000_000
DAY = 86_400_000
SEEDS = 20
PARTITION = TopicPartition("t", 0)
SETTINGS = LogSettings(cleanup_compact=True, cleanup_delete=False, segment_bytes=1 << 20, index_interval_bytes=200)
CONFIG = "cleanup.policy=compact;segment.bytes=1048576;index.interval.bytes=200"


class Pass(NamedTuple):
    wall_ms: int
    first_dirty: int | None
    """None: the end of the previous pass."""
    first_uncleanable: int


class Writer:
    """Fills a log with every kind of batch that compaction treats differently."""

    def __init__(self, path: Path, random: Random) -> None:
        self.random = random
        self.log = PartitionLog.open(SystemDisk(), str(path), PARTITION, SETTINGS, wall_ms=NOW)
        self.sequences: dict[int, int] = {}
        self.open: dict[int, None] = {}
        self.now = NOW

    def write(self, steps: int) -> None:
        for _ in range(steps):
            self.now += self.random.choice([0, 1, 50])
            kind = self.random.random()
            if kind < 0.45:
                self.append(encode_batch(self.records(), codec=self.codec()))
            elif kind < 0.6:
                self.send(self.random.choice([100, 101]), transactional=False)
            elif kind < 0.8:
                producer_id = self.random.choice([1, 2, 3, 4])
                self.send(producer_id, transactional=True)
                self.open[producer_id] = None
            elif kind < 0.92 and self.open:
                self.end(self.random.choice(list(self.open)))
            elif kind < 0.97:
                self.log.roll(NOW)
        for producer_id in list(self.open):
            self.end(producer_id)
        self.log.roll(NOW)
        self.append(encode_batch([Record(-1, self.now, b"k1", b"end")]))
        self.log.close()

    def records(self) -> list[Record]:
        draw = self.random
        return [
            Record(
                -1,
                self.now + draw.randrange(-100, 100),
                b"k%d" % draw.randrange(14),
                None if draw.random() < 0.15 else b"v%d" % draw.randrange(99),
                (("h", b"x"),) * draw.choice([0, 0, 2]),
            )
            for _ in range(draw.choice([1, 1, 2, 4, 70]))
        ]

    def codec(self) -> Codec:
        return self.random.choice(list(Codec))

    def send(self, producer_id: int, *, transactional: bool) -> None:
        records = self.records()
        sequence = self.sequences.get(producer_id, 0)
        self.sequences[producer_id] = sequence + len(records)
        self.append(
            encode_batch(
                records,
                codec=self.codec(),
                producer_id=producer_id,
                producer_epoch=0,
                base_sequence=sequence,
                transactional=transactional,
            )
        )

    def end(self, producer_id: int) -> None:
        del self.open[producer_id]
        commit = self.random.random() < 0.5
        marker = end_transaction_marker(
            commit=commit, producer_id=producer_id, producer_epoch=0, coordinator_epoch=1, timestamp=self.now
        )
        self.append(marker)

    def append(self, batch: bytearray) -> None:
        append_as_leader(self.log, batch, leader_epoch=3, wall_ms=NOW, origin=Origin.COORDINATOR)
        self.log.advance_high_watermark(self.log.log_end_offset)


def passes_over(bases: list[int], random: Random) -> list[Pass]:
    """Up to a few segment boundaries, each pass from the end of the previous one; then twice over the whole log."""
    limits = sorted({*random.sample(bases[1:], min(3, len(bases) - 1)), bases[-1]})
    now = NOW
    passes = []
    for limit, first_dirty in [*((limit, None) for limit in limits), (bases[-1], 0), (bases[-1], 0)]:
        now += random.choice([1000, DAY // 2, DAY, 2 * DAY])
        passes.append(Pass(now, first_dirty, limit))
    return passes


def clean(path: Path, passes: list[Pass]) -> list[int]:
    log = PartitionLog.open(SystemDisk(), str(path), PARTITION, SETTINGS, wall_ms=NOW)
    log.advance_high_watermark(log.log_end_offset)
    ends = [0]
    for wall_ms, first_dirty, limit in passes:
        todo = Cleanable(ends[-1] if first_dirty is None else first_dirty, limit, 0, 1, False, False)
        cleaning = Cleaning(log, todo, wall_ms=wall_ms, random=Random(1), dedupe_buffer_bytes=1 << 24)
        while not cleaning.done:
            replacement = cleaning.step()
            if replacement is not None:
                for segment in log.replace_segments(replacement):
                    segment.remove()
        ends.append(cleaning.end_offset)
    log.close()
    return ends[1:]


def contents(path: Path) -> list[tuple[object, ...]]:
    """Every batch with its records; the base timestamp only where it is a delete horizon."""
    found: list[tuple[object, ...]] = []
    for file in sorted(path.glob("*.log")):
        data = file.read_bytes()
        for position, header in batches(data):
            assert crc_ok(data, position, header.size_bytes)
            horizon = header.base_timestamp if header.has_delete_horizon else None
            rest = (header.base_offset, header.partition_leader_epoch, *header[5:7], *header[8:])
            found.append((file.name, *rest, horizon, decode_batch(data, position)))
    for file in sorted(path.glob("*.txnindex")):
        if file.stat().st_size:
            found.append((file.name, file.read_bytes()))
    return found


class Compacted(NamedTuple):
    ours: Path
    kafkas: Path
    passes: list[Pass]
    our_ends: list[int]
    kafkas_ends: list[int]


@pytest.fixture(scope="module")
def compacted(oracle_programs: str, tmp_path_factory: pytest.TempPathFactory) -> list[Compacted]:
    """One Kafka process for all logs: starting it takes longest."""
    logs: list[Compacted] = []
    passes_for_kafka = []
    for seed in range(SEEDS):
        random = Random(seed)
        path = tmp_path_factory.mktemp("log")
        ours, kafkas = path / "ours" / "t-0", path / "kafkas" / "t-0"
        Writer(ours, random).write(random.choice([60, 200, 400]))
        shutil.copytree(ours, kafkas)
        passes = passes_over(sorted(int(file.stem) for file in ours.glob("*.log")), random)
        for wall_ms, first_dirty, limit in passes:
            passes_for_kafka.append(f"{kafkas}|{wall_ms}|{'-' if first_dirty is None else first_dirty}|{limit}\n")
        logs.append(Compacted(ours, kafkas, passes, clean(ours, passes), []))
    done = java(oracle_programs, "KafkaLog", "clean", CONFIG, text="".join(passes_for_kafka), timeout=300)
    assert done.returncode == 0, done.stderr[-3000:]
    ends = iter(int(line.split()[1]) for line in done.stdout.splitlines() if line.startswith("ANSWER "))
    for log in logs:
        log.kafkas_ends.extend(next(ends) for _ in log.passes)
    return logs


@pytest.mark.parametrize("seed", range(SEEDS))
def test_the_compacted_log_is_the_same(seed: int, compacted: list[Compacted]) -> None:
    log = compacted[seed]
    assert log.our_ends == log.kafkas_ends
    assert contents(log.ours) == contents(log.kafkas)
    assert len(contents(log.ours)) > 5
