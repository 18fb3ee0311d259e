"""A directory changes hands between our node and Apache Kafka 4.3.1, stopped cleanly or killed: nothing is different.

Topics, ids, configurations, offsets, leader epochs, producers and records, one by one, are compared across every
hand-over. Between two of them whoever serves is given a round of work, so the other finds something new.
"""

from __future__ import annotations

from typing import Any

import pytest

from oracle.handover.conftest import KAFKA_FIRST, OURS_FIRST
from oracle.handover.story import Inventory, Story

pytestmark = pytest.mark.xdist_group("handover")

ASPECTS = ("cluster", "configs", "ids", "offsets", "producers", "records")


def aspect_of(found: Inventory, aspect: str) -> Any:
    if aspect in ("cluster", "configs"):
        return found[aspect]
    if aspect == "ids":
        return {name: topic["id"] for name, topic in found["topics"].items()}
    fields = ("start", "end", "newest", "replicas") if aspect == "offsets" else (aspect,)
    return {
        f"{name}, {index}, {field}": partition[field]
        for name, topic in found["topics"].items()
        for index, partition in topic.items()
        if index != "id"
        for field in fields
    }


def forget_what_came_back(before: Inventory, after: Inventory) -> None:
    """A log's start is written down once in a while: killed before that, records that were deleted are there again."""
    for name, topic in before["topics"].items():
        for index, partition in topic.items():
            if index == "id":
                continue
            start, found = partition["start"], after["topics"][name][index]
            assert found["start"] <= start
            found["start"] = start
            found["records"] = [record for record in found["records"] if int(record.split()[0]) >= start]


@pytest.mark.parametrize("aspect", ASPECTS)
@pytest.mark.parametrize("handover", OURS_FIRST)
def test_what_we_founded_is_the_same_in_other_hands(founded_by_us: Story, handover: str, aspect: str) -> None:
    before, after = founded_by_us.found[handover]
    if OURS_FIRST[handover]:
        forget_what_came_back(before, after)
    assert aspect_of(after, aspect) == aspect_of(before, aspect)


@pytest.mark.parametrize("aspect", ASPECTS)
@pytest.mark.parametrize("handover", KAFKA_FIRST)
def test_what_kafka_founded_is_the_same_in_our_hands(founded_by_kafka: Story, handover: str, aspect: str) -> None:
    before, after = founded_by_kafka.found[handover]
    assert aspect_of(after, aspect) == aspect_of(before, aspect)


def test_the_comparison_compares_something(founded_by_us: Story) -> None:
    before, _ = founded_by_us.found["Kafka takes over after we were killed"]
    records = aspect_of(before, "records")
    assert len(records["plain, partition 0, records"]) == 3 * 202 + 250
    assert len({record.split()[2] for record in records["rolled, partition 0, records"]}) == 3, "three leader epochs"
    assert aspect_of(before, "offsets")["trimmed, partition 0, start"] > 100
    assert len(records["compacted, partition 0, records"]) < 40
    assert all(aspect_of(before, "producers")[f"{topic}, partition 0, producers"] for topic in ("plain", "large"))


def test_kafka_finds_no_fault_with_logs_that_we_closed(founded_by_us: Story, founded_by_kafka: Story) -> None:
    said = founded_by_us.complaints["Kafka takes over what we closed"]
    said += founded_by_kafka.complaints["Kafka takes back what we closed"]
    # Deleted topics wait for their removal without indexes: those were never written.
    assert [line for line in said if "-delete/" not in line] == []
