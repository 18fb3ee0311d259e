"""Kafka's small text files: offset checkpoints, leader epochs, partition.metadata, the clean-shutdown file.

Read at start-up, written by `maintenance` and `directory`. Every write is atomic (runtime.disk). A file that does not
parse raises `CorruptCheckpoint`; the caller can recover most of them by reading more of the log.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping

from strandline.model.ids import TopicPartition, Uuid
from strandline.runtime.disk import Disk, write_atomically

RECOVERY_POINTS = "recovery-point-offset-checkpoint"
LOG_STARTS = "log-start-offset-checkpoint"
HIGH_WATERMARKS = "replication-offset-checkpoint"
CLEANER_OFFSETS = "cleaner-offset-checkpoint"
CLEAN_SHUTDOWN = ".kafka_cleanshutdown"
# Not one of Kafka's files; Kafka ignores it.
BROKER_EPOCH = "strandline-broker-epoch"

_VERSION = "0"


class CorruptCheckpoint(Exception):
    """The file exists and does not parse."""

    def __init__(self, path: str, why: str) -> None:
        super().__init__(f"{path}: {why}")
        self.path = path
        self.why = why


def read_offsets(disk: Disk, path: str) -> dict[TopicPartition, int]:
    """`topic partition offset` per line; empty when there is no file."""
    offsets: dict[TopicPartition, int] = {}
    for line in _entries(disk, path):
        try:
            topic, partition, offset = line.split(" ")
            offsets[TopicPartition(topic, int(partition))] = int(offset)
        except ValueError as error:
            raise CorruptCheckpoint(path, f"malformed line {line!r}") from error
    return offsets


def write_offsets(disk: Disk, path: str, offsets: Mapping[TopicPartition, int]) -> None:
    lines = (f"{topic} {partition} {offset}" for (topic, partition), offset in sorted(offsets.items()))
    write_atomically(disk, path, _text(lines, len(offsets)))


def read_epochs(disk: Disk, path: str) -> tuple[tuple[int, int], ...]:
    """`epoch startOffset` per line, both ascending; empty when there is no file, or an empty one (`create_epochs`)."""
    entries: list[tuple[int, int]] = []
    if disk.exists(path) and disk.size(path) == 0:
        return ()
    for line in _entries(disk, path):
        try:
            epoch, start_offset = map(int, line.split(" "))
        except ValueError as error:
            raise CorruptCheckpoint(path, f"malformed line {line!r}") from error
        if epoch < 0 or start_offset < 0 or (entries and (epoch <= entries[-1][0] or start_offset <= entries[-1][1])):
            raise CorruptCheckpoint(path, f"epochs do not ascend at line {line!r}")
        entries.append((epoch, start_offset))
    return tuple(entries)


def write_epochs(disk: Disk, path: str, entries: tuple[tuple[int, int], ...]) -> None:
    write_atomically(disk, path, _text((f"{epoch} {start}" for epoch, start in entries), len(entries)))


def create_epochs(disk: Disk, path: str) -> None:
    """A checkpoint without entries. It is not synced: after a power loss an empty file, or none, means the same."""
    file = disk.open(path, create=True)
    try:
        file.truncate(0)
        file.write_at(0, _text((), 0))
    finally:
        file.close()


def read_topic_id(disk: Disk, path: str) -> Uuid | None:
    """The topic of a partition directory, from its partition.metadata; None when there is no such file."""
    if not disk.exists(path):
        return None
    fields = dict(line.split(": ", 1) for line in _lines(disk, path) if ": " in line)
    if fields.get("version") != _VERSION or "topic_id" not in fields:
        raise CorruptCheckpoint(path, "expected the lines 'version: 0' and 'topic_id: …'")
    try:
        return Uuid.parse(fields["topic_id"])
    except ValueError as error:
        raise CorruptCheckpoint(path, str(error)) from error


def topic_id_bytes(topic_id: Uuid) -> bytes:
    return f"version: 0\ntopic_id: {topic_id}".encode()


def read_clean_shutdown(disk: Disk, path: str) -> int | None:
    """The broker epoch of the last clean shutdown (-1: without one); None when the shutdown was not clean."""
    if not disk.exists(path):
        return None
    try:
        content = json.loads(disk.read(path) or b"{}")
        return int(content.get("brokerEpoch", -1))
    except (ValueError, AttributeError, TypeError):
        # An incomplete file: the power was lost while it was written, so the shutdown was not clean.
        return None


def write_clean_shutdown(disk: Disk, path: str, broker_epoch: int) -> None:
    write_atomically(disk, path, json.dumps({"version": 0, "brokerEpoch": broker_epoch}).encode())


def _text(lines: Iterable[str], count: int) -> bytes:
    return "".join(f"{line}\n" for line in (_VERSION, str(count), *lines)).encode()


def _lines(disk: Disk, path: str) -> list[str]:
    try:
        return disk.read(path).decode().split("\n")
    except UnicodeDecodeError as error:
        raise CorruptCheckpoint(path, "not text") from error


def _entries(disk: Disk, path: str) -> list[str]:
    if not disk.exists(path):
        return []
    lines = _lines(disk, path)
    if lines and lines[-1] == "":
        lines.pop()
    if len(lines) < 2 or lines[0] != _VERSION:
        raise CorruptCheckpoint(path, f"expected version {_VERSION} and a count, found {lines[:2]}")
    if not lines[1].isdecimal() or int(lines[1]) != len(lines) - 2:
        raise CorruptCheckpoint(path, f"says it has {lines[1]!r} entries and has {len(lines) - 2}")
    return lines[2:]
