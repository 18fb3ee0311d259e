from __future__ import annotations

import json

import pytest

from strandline.cli.errors import UsageError
from strandline.cli.feature import parse_levels
from strandline.cli.partition_arguments import parse_brokers, parse_partitions
from strandline.cli.quorum import VoterArgument, parse_new_voter
from strandline.cli.reassign import as_plan, parse_plan
from strandline.model.ids import Endpoint, TopicPartition, Uuid

DIRECTORY = "JEXY6aqzQY-32P5TStzaFg"


@pytest.mark.parametrize(
    ("words", "found"),
    [
        (["orders"], {"orders": None}),
        (["orders:0"], {"orders": [0]}),
        (["orders:0,2", "orders:2,5", "t.u-v_w:1"], {"orders": [0, 2, 5], "t.u-v_w": [1]}),
        (["orders:1", "orders"], {"orders": None}),
        (["orders", "orders:1"], {"orders": None}),
        ([], {}),
    ],
)
def test_arguments_name_topics_and_partitions(words: list[str], found: dict[str, list[int] | None]) -> None:
    assert parse_partitions(words) == found


@pytest.mark.parametrize("word", ["", ":1", "t:", "t:x", "t:1,", "t:-1"])
def test_an_invalid_partition_argument_is_invalid_usage(word: str) -> None:
    with pytest.raises(UsageError, match="orders:0,2"):
        parse_partitions([word])


def test_each_broker_may_be_listed_once() -> None:
    assert parse_brokers("3,1, 2", "--to") == [3, 1, 2]
    for text in ("", "1,,2", "a", "1,1"):
        with pytest.raises(UsageError, match="--to"):
            parse_brokers(text, "--to")


def test_a_printed_plan_parses_to_the_same_moves() -> None:
    moves = {TopicPartition("b", 0): [3, 1], TopicPartition("a", 2): [1]}
    assert parse_plan(json.dumps(as_plan(moves)), "plan.json") == moves


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "not JSON of this format"),
        ("[]", "not JSON of this format"),
        ("{}", "no partitions"),
        ('{"partitions": []}', "moves nothing"),
        ('{"partitions": [{"topic": "t", "partition": 0}]}', "no replicas"),
        ('{"partitions": [{"topic": "t", "partition": "x", "replicas": [1]}]}', "not JSON of this format"),
        (
            '{"partitions": [{"topic": "t", "partition": 0, "replicas": [1]}, '
            '{"topic": "t", "partition": 0, "replicas": [2]}]}',
            "twice",
        ),
    ],
)
def test_an_invalid_plan_is_rejected_with_the_reason(text: str, reason: str) -> None:
    with pytest.raises(UsageError, match=reason):
        parse_plan(text, "plan.json")


def test_a_voter_is_named_by_its_id_or_with_address_and_directory() -> None:
    assert parse_new_voter("4") == VoterArgument(4, None, None)
    assert parse_new_voter(f"4@host:9093:{DIRECTORY}") == VoterArgument(
        4, Endpoint("host", 9093), Uuid.parse(DIRECTORY)
    )
    assert parse_new_voter(f"4@[::1]:9093:{DIRECTORY}").endpoint == Endpoint("::1", 9093)


def test_a_feature_level_is_a_number_or_for_metadata_version_a_release() -> None:
    assert parse_levels(["a=2", "metadata.version=4.0"], None) == {"a": 2, "metadata.version": 25}
    assert parse_levels(["metadata.version=30"], None) == {"metadata.version": 30}
    assert parse_levels([], "4.3-IV0") == {"metadata.version": 30}
