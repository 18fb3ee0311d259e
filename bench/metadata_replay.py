"""Replays a metadata log and a snapshot by Strandline and by Kafka's own classes, each in a fresh process.

`python -m bench.metadata_replay log|snapshot FILE` replays by Strandline and prints: records, the seconds of the first
replay (cold, as at the start of a node) and of the fifth (warm), and partitions.
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from bench.single_node import REPOSITORY
from strandline.metadata.image import Image
from strandline.metadata.record_versions import LATEST_METADATA_VERSION
from strandline.model.ids import Uuid
from strandline.protocol.messages.metadata_records import (
    FeatureLevelRecord,
    PartitionChangeRecord,
    PartitionRecord,
    TopicRecord,
)
from strandline.protocol.types import Message
from strandline.raft.disk.batches import encode_data_batch
from strandline.raft.disk.recovery import recover
from strandline.raft.disk.snapshots import SnapshotWriter
from strandline.raft.disk.storage import METADATA_PARTITION, MetadataStorage
from strandline.raft.machine.values import SnapshotId
from strandline.runtime.disk import SystemDisk

PER_TOPIC = 100
PER_BATCH = 500
EPOCH = 1


def write_log(home: Path, partitions: int) -> Path:
    """Writes topics and their partitions, then a new ISR and a new leader for each partition."""
    storage = MetadataStorage.open(SystemDisk(), str(home), wall_ms=1)
    offset = 0
    for records in _sliced(_history(partitions)):
        batch = encode_data_batch(
            records, base_offset=offset, epoch=EPOCH, timestamp=1, metadata_version=LATEST_METADATA_VERSION
        )
        storage.append(batch, 1)
        offset += len(records)
    storage.log.flush()
    storage.record_committed(offset)
    storage.close()
    return home / str(METADATA_PARTITION) / f"{0:020}.log"


def write_snapshot(home: Path, partitions: int) -> Path:
    directory = home / str(METADATA_PARTITION)
    directory.mkdir(parents=True)
    name = SnapshotId(1_000_000, EPOCH).file_name
    writer = SnapshotWriter(SystemDisk(), str(directory / name), epoch=EPOCH, metadata_version=LATEST_METADATA_VERSION)
    writer.begin(last_timestamp=1, wall_ms=1)
    for records in _sliced(_topics(partitions)):
        writer.append(records, 1)
    writer.finish(1)
    return directory / name


@dataclass(frozen=True)
class Replayed:
    records: int
    first_s: float
    fifth_s: float


def by_strandline(kind: str, file: Path) -> Replayed:
    command = [sys.executable, "-m", "bench.metadata_replay", kind, str(file)]
    printed = subprocess.run(command, check=True, capture_output=True, text=True, cwd=REPOSITORY).stdout
    return _read(printed)


def by_kafka(classpath: str, kind: str, file: Path) -> Replayed:
    program = str(REPOSITORY / "bench" / "java" / "MetadataReplay.java")
    command = ["java", "-Xmx1g", "-XX:+UseG1GC", "-cp", classpath, program, kind, str(file)]
    return _read(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def _read(printed: str) -> Replayed:
    records, first, fifth, _ = printed.splitlines()[-1].split()
    return Replayed(int(records), float(first), float(fifth))


def _history(partitions: int) -> Iterator[Message]:
    yield from _topics(partitions)
    for number in range(partitions):
        topic_id, index = Uuid.of(7, 1 + number // PER_TOPIC), number % PER_TOPIC
        yield PartitionChangeRecord(partition_id=index, topic_id=topic_id, isr=[2, 3], leader=2)
    for number in range(partitions):
        topic_id, index = Uuid.of(7, 1 + number // PER_TOPIC), number % PER_TOPIC
        yield PartitionChangeRecord(partition_id=index, topic_id=topic_id, isr=[2, 3, 1])


def _topics(partitions: int) -> Iterator[Message]:
    yield FeatureLevelRecord(name="metadata.version", feature_level=LATEST_METADATA_VERSION)
    directories = [Uuid.of(9, each) for each in (1, 2, 3)]
    for number in range(partitions):
        topic, index = 1 + number // PER_TOPIC, number % PER_TOPIC
        if index == 0:
            yield TopicRecord(name=f"topic-{topic}", topic_id=Uuid.of(7, topic))
        yield PartitionRecord(
            partition_id=index,
            topic_id=Uuid.of(7, topic),
            replicas=[1, 2, 3],
            isr=[1, 2, 3],
            leader=1,
            leader_epoch=0,
            partition_epoch=0,
            directories=directories,
        )


def _sliced(records: Iterator[Message]) -> Iterator[list[Message]]:
    while slice_ := [record for _, record in zip(range(PER_BATCH), records, strict=False)]:
        yield slice_


def main(kind: str, file: str) -> None:
    home = Path(file).parent.parent
    taken = []
    for _ in range(5):
        image = Image()
        storage = MetadataStorage.open(SystemDisk(), str(home), wall_ms=1)
        began = time.perf_counter()
        recover(storage, image, None)
        taken.append(time.perf_counter() - began)
        storage.close()
    topics = list(image.committed.topics())
    partitions = sum(len(image.committed.partitions(topic.id)) for topic in topics)
    records = 1 + len(topics) + partitions * (3 if kind == "log" else 1)
    print(records, f"{taken[0]:.4f} {taken[-1]:.4f}", partitions)


if __name__ == "__main__":
    main(*sys.argv[1:])
