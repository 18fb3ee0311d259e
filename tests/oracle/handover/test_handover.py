"""Our node and Apache Kafka 4.3.1 serve one directory in turn, after clean stops and kills: clients read the same.

Topics, ids, configs, offsets, leader epochs, producers, records, groups and their offsets are compared across every
handover. Between two handovers a workload adds data, so that each server reads what the other has written.
"""

from __future__ import annotations

from typing import Any

import pytest

from oracle.handover.conftest import KAFKA_FIRST, OURS_FIRST
from oracle.handover.handovers import Handovers, Inventory

pytestmark = pytest.mark.xdist_group("handover")

ASPECTS = ("cluster", "configs", "groups", "ids", "offsets", "producers", "records")


def aspect_of(found: Inventory, aspect: str) -> Any:
    if aspect in ("cluster", "configs", "groups"):
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


def ignore_restored_records(before: Inventory, after: Inventory) -> None:
    """The log start offset is checkpointed at intervals: after a kill, deleted records may be visible again."""
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
def test_a_directory_formatted_by_us_is_the_same_after_a_handover(
    formatted_by_us: Handovers, handover: str, aspect: str
) -> None:
    before, after = formatted_by_us.found[handover]
    if OURS_FIRST[handover]:
        ignore_restored_records(before, after)
    assert aspect_of(after, aspect) == aspect_of(before, aspect)


@pytest.mark.parametrize("aspect", ASPECTS)
@pytest.mark.parametrize("handover", KAFKA_FIRST)
def test_a_directory_formatted_by_kafka_is_the_same_after_a_handover(
    formatted_by_kafka: Handovers, handover: str, aspect: str
) -> None:
    before, after = formatted_by_kafka.found[handover]
    assert aspect_of(after, aspect) == aspect_of(before, aspect)


def test_the_compared_data_is_not_empty(formatted_by_us: Handovers) -> None:
    before, _ = formatted_by_us.found["Kafka after ours was killed"]
    records = aspect_of(before, "records")
    assert len(records["plain, partition 0, records"]) == 3 * 202 + 250
    assert len({record.split()[2] for record in records["rolled, partition 0, records"]}) == 3, "three leader epochs"
    assert aspect_of(before, "offsets")["trimmed, partition 0, start"] > 100
    assert len(records["compacted, partition 0, records"]) < 40
    assert all(aspect_of(before, "producers")[f"{topic}, partition 0, producers"] for topic in ("plain", "large"))


def test_kafka_logs_no_error_about_logs_that_we_closed(
    formatted_by_us: Handovers, formatted_by_kafka: Handovers
) -> None:
    lines = formatted_by_us.log_errors["Kafka after our clean stop"]
    lines += formatted_by_kafka.log_errors["Kafka again after our clean stop"]
    # The logs of deleted topics have no indexes: those were never written.
    assert [line for line in lines if "-delete/" not in line] == []
