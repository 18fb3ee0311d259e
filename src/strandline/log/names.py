"""Kafka's names of files and directories; parsed here and nowhere else.

A partition directory holds `<base offset, 20 digits><suffix>` files. Extra suffixes: `.cleaned` (compaction is writing
it), `.swap` (compaction has finished it), `.deleted` (to be removed after a delay). The name of a directory that is to
be deleted, is stray, or is being moved here ends in `.<32 hex digits>-delete`, `-stray` or `-future`.
"""

from __future__ import annotations

import re
from random import Random

import msgspec

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


class SegmentFile(msgspec.Struct, frozen=True):
    base_offset: int
    suffix: str
    extra: str


class PartitionDirectory(msgspec.Struct, frozen=True):
    topic_partition: TopicPartition
    suffix: str
    """`-delete`, `-stray`, `-future`, or empty for a partition in use."""


def offset_name(offset: int) -> str:
    return f"{offset:020d}"


def parse_segment_file(name: str) -> SegmentFile | None:
    match = _SEGMENT_FILE.fullmatch(name)
    if match is None or int(match[1]) > _MAX_OFFSET:
        return None
    return SegmentFile(int(match[1]), match[2], match[3] or "")


def parse_partition_directory(name: str) -> PartitionDirectory | None:
    """The partition of a directory name; None for other names. The topic of a `-delete` name may be shortened."""
    match = _PARTITION_DIRECTORY.fullmatch(name)
    if match is None or int(match[2]) >= 1 << 31:
        return None
    return PartitionDirectory(TopicPartition(match[1], int(match[2])), match[3] or "")


def suffixed_directory(topic_partition: TopicPartition, suffix: str, random: Random) -> str:
    """A unique name with this suffix, the topic shortened to the limit of file systems."""
    unique = f".{random.getrandbits(128):032x}{suffix}"
    tail = f"-{topic_partition.partition}{unique}"
    return topic_partition.topic[: _MAX_NAME - len(tail)] + tail
