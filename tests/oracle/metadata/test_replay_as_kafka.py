"""Records encoded by Apache Kafka's classes result in equal images in Kafka and here, batch by batch."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from pathlib import Path

import pytest
from msgspec.structs import replace

from compat.java.jvm import java
from strandline.metadata.image import Image
from strandline.metadata.record_versions import FORMAT_CHANGES, LATEST_METADATA_VERSION
from strandline.protocol.messages import metadata_records as kinds
from strandline.protocol.metadata_codec import decode_record, record_types
from strandline.protocol.types import Message
from strandline.raft.disk.batches import encode_data_batch, read_batches
from unit.metadata.random_records import LEVELS, History

HERE = Path(__file__).parent
BATCHES = 400
EVERY = 5
# Kafka 4 has no ZooKeeper migration: it reads this record and ignores it.
IGNORED = kinds.ZkMigrationStateRecord


def kafka(classpath: str, *arguments: str) -> list[str]:
    done = java(classpath, "KafkaImage", *arguments, timeout=300)
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout.splitlines()


def written(history: History, path: Path) -> list[Message]:
    """Writes a log of this history; returns its records."""
    data, written_records = bytearray(), []
    for base_offset, records, level in history.batches(BATCHES):
        data += encode_data_batch(records, base_offset=base_offset, epoch=1, timestamp=5, metadata_version=level)
        written_records += records
    path.write_bytes(data)
    return written_records


def comparable(records: Iterable[Message]) -> list[str]:
    """Sorted: Kafka writes maps in hash order."""
    return sorted(repr(_sorted(record)) for record in records if not isinstance(record, IGNORED))


def _sorted(record: Message) -> Message:
    if isinstance(record, kinds.RegisterBrokerRecord | kinds.RegisterControllerRecord):
        features = sorted(record.features, key=lambda feature: feature.name)
        ends = sorted(record.end_points, key=lambda end: end.name)
        return replace(record, features=features, end_points=ends)  # type: ignore[no-any-return]
    if isinstance(record, kinds.ClientQuotaRecord):
        return replace(record, entity=sorted(record.entity, key=lambda part: part.entity_type))
    return record


def snapshots(lines: list[str]) -> dict[int, list[Message]]:
    """By offset; -1 is the end."""
    found: dict[int, list[Message]] = {}
    current: list[Message] = []
    for line in lines:
        word, _, rest = line.partition(" ")
        if word == "SNAPSHOT":
            current = found[int(rest)] = []
        elif word == "RECORD":
            current.append(decode_record(bytes.fromhex(rest)))
    return found


@pytest.mark.parametrize("seed", range(6))
def test_replaying_a_history_results_in_kafkas_image(seed: int, oracle_programs: str, tmp_path: Path) -> None:
    log, copy = tmp_path / "log", tmp_path / "copy"
    history = History(seed, level=LEVELS[0] if seed % 2 else LEVELS[-3])
    written(history, log)
    theirs = snapshots(kafka(oracle_programs, "replay", str(log), str(copy), str(EVERY)))
    assert copy.read_bytes() == log.read_bytes(), "Kafka encodes the records differently"
    image, compared = Image(), 0
    for batch in read_batches(copy.read_bytes(), "copy"):
        image.replay_batch(batch.base_offset, batch.records)
        image.commit(batch.next_offset)
        if batch.next_offset in theirs:
            compared += 1
            assert comparable(image.records(image.committed)) == comparable(theirs[batch.next_offset]), (
                f"after offset {batch.next_offset}: {batch.records}"
            )
    assert comparable(image.records(image.committed)) == comparable(theirs[-1])
    loaded = Image()
    loaded.load(theirs[-1], image.committed.offset)
    assert comparable(loaded.records(loaded.committed)) == comparable(theirs[-1])
    assert compared > BATCHES // EVERY // 2


def test_the_histories_contain_every_record_type(tmp_path: Path) -> None:
    counts: Counter[type[Message]] = Counter()
    for seed in range(6):
        counts.update(type(record) for record in written(History(seed, level=LEVELS[-3]), tmp_path / "log"))
    assert set(counts) == set(record_types().values())
    assert min(counts.values()) >= 5


def test_the_metadata_version_can_be_downgraded_where_kafka_allows_it(oracle_programs: str) -> None:
    theirs: dict[int, list[int]] = {}
    for line in kafka(oracle_programs, "levels"):
        if line.startswith("LEVEL "):
            level, *lower = map(int, line.split()[1:])
            theirs[level] = lower
    ours = {
        level: [lower for lower in range(7, level) if not any(lower < change <= level for change in FORMAT_CHANGES)]
        for level in range(7, LATEST_METADATA_VERSION + 1)
    }
    assert ours == {level: lower for level, lower in theirs.items() if level in ours}
