"""Kafka's names of files and directories."""

from __future__ import annotations

from random import Random

import pytest

from strandline.log import names
from strandline.log.names import SegmentFile, parse_partition_directory, parse_segment_file
from strandline.model.ids import TopicPartition


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("00000000000000000123.log", SegmentFile(123, ".log", "")),
        ("00000000000000000000.timeindex.swap", SegmentFile(0, ".timeindex", ".swap")),
        ("09223372036854775807.snapshot", SegmentFile((1 << 63) - 1, ".snapshot", "")),
        ("00000000000000000007.txnindex.deleted", SegmentFile(7, ".txnindex", ".deleted")),
        ("99999999999999999999.log", None),
        ("123.log", None),
        ("leader-epoch-checkpoint", None),
        ("00000000000000000123.log.bak", None),
    ],
)
def test_segment_files_are_distinguished_from_others(name: str, expected: SegmentFile | None) -> None:
    assert parse_segment_file(name) == expected


def test_a_topic_name_may_contain_dashes_dots_and_digits() -> None:
    found = parse_partition_directory("a-1.b_2-3-14")
    assert found is not None
    assert found.topic_partition == TopicPartition("a-1.b_2-3", 14)
    assert found.suffix == ""


@pytest.mark.parametrize("name", ["plain", "topic-", "-1", "topic-99999999999", "topic-1x"])
def test_other_directories_are_not_partitions(name: str) -> None:
    assert parse_partition_directory(name) is None


@pytest.mark.parametrize("suffix", [names.DELETE_DIRECTORY, names.STRAY_DIRECTORY])
@pytest.mark.parametrize("topic", ["t", "x" * 249])
def test_a_renamed_partition_is_recognised_and_its_name_fits_every_file_system(topic: str, suffix: str) -> None:
    name = names.suffixed_directory(TopicPartition(topic, 12), suffix, Random(1))
    assert len(name) <= 255
    found = parse_partition_directory(name)
    assert found is not None
    assert found.suffix == suffix
    assert found.topic_partition.partition == 12
