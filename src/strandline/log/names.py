"""Names of files and directories, as Kafka gives them; parsed here and nowhere else.

A partition directory holds `<base offset, 20 digits><suffix>` files. Extra suffixes tell what is under way:
`.cleaned` (compaction writes it), `.swap` (compaction is done with it), `.deleted` (to be removed after a delay).
A directory on its way out or in carries `.<32 hex digits>-delete`, `-stray` or `-future`.
"""

from __future__ import annotations

import re
from random import Random
from typing import NamedTuple

from strandline.model.ids import TopicPartition

LOG = ".log"
OFFSET_INDEX = ".index"
TIME_INDEX = ".timeindex"
TRANSACTION_INDEX = ".txnindex"
SNAPSHOT = ".snapshot"
SEGMENT_SUFFIXES = (LOG, OFFSET_INDEX, TIME_INDEX, TRANSACTION_INDEX)

CLEANED = ".cleaned"
SWAP = ".swap"
DELETED = ".deleted"

DELETE_DIRECTORY = "-delete"
STRAY_DIRECTORY = "-stray"

EPOCH_CHECKPOINT = "leader-epoch-checkpoint"
PARTITION_METADATA = "partition.metadata"

_MAX_NAME = 255
_MAX_OFFSET = (1 << 63) - 1
_SEGMENT_FILE = re.compile(r"([0-9]{20})(\.log|\.index|\.timeindex|\.txnindex|\.snapshot)(\.cleaned|\.swap|\.deleted)?")
_PARTITION_DIRECTORY = re.compile(r"(.+)-([0-9]{1,10})(?:\.[0-9a-f]{32}(-delete|-stray|-future))?", re.DOTALL)


class SegmentFile(NamedTuple):
    base_offset: int
    suffix: str
    extra: str


class PartitionDirectory(NamedTuple):
    topic_partition: TopicPartition
    mark: str


def offset_name(offset: int) -> str:
    return f"{offset:020d}"


def parse_segment_file(name: str) -> SegmentFile | None:
    match = _SEGMENT_FILE.fullmatch(name)
    if match is None or int(match[1]) > _MAX_OFFSET:
        return None
    return SegmentFile(int(match[1]), match[2], match[3] or "")


def parse_partition_directory(name: str) -> PartitionDirectory | None:
    """None for anything that is no partition; the topic of a shortened `-delete` name may be cut, nobody needs it."""
    match = _PARTITION_DIRECTORY.fullmatch(name)
    if match is None or int(match[2]) >= 1 << 31:
        return None
    return PartitionDirectory(TopicPartition(match[1], int(match[2])), match[3] or "")


def marked_directory(topic_partition: TopicPartition, mark: str, random: Random) -> str:
    """A name of its own for a partition on its way out or in, cut so that every file system takes it."""
    unique = f".{random.getrandbits(128):032x}{mark}"
    tail = f"-{topic_partition.partition}{unique}"
    return topic_partition.topic[: _MAX_NAME - len(tail)] + tail
