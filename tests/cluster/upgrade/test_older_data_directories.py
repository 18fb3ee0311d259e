"""Data directories of earlier revisions (tests/fixtures) are opened with their metadata and records, and written to."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from cluster.quorum.admin_requests import TOPIC, create_topic, eventually, set_config
from cluster.quorum.inventory import inventory
from fixtures.make import HERE, records, unpacked
from fixtures.nodes import has_all_of_loopback

pytestmark = [
    pytest.mark.xdist_group("fixed addresses"),
    pytest.mark.skipif(
        not has_all_of_loopback(), reason="the voters' endpoints in the metadata log are in 127.43.7.0/24"
    ),
]

NAMES = sorted(path.name.removesuffix(".tar.xz") for path in HERE.glob("*.tar.xz"))


def supported_then(found: dict[str, Any], then: dict[str, Any]) -> dict[str, Any]:
    """The values that the revision which wrote the directory could describe."""
    return {key: value for key, value in found.items() if then[key] is not None}


@pytest.mark.parametrize("name", NAMES)
def test_a_data_directory_of_an_earlier_revision_is_read_and_written(name: str, tmp_path: Path) -> None:
    nodes, then = unpacked(name, tmp_path)
    expected = supported_then(then["metadata"], then["metadata"])
    with nodes.running() as brokers:
        for broker in brokers:
            found = eventually(lambda broker=broker: inventory(broker, *brokers))  # type: ignore[misc]
            assert supported_then(found, then["metadata"]) == expected
        assert records(brokers[0]) == then["records"]
        create_topic(brokers[0], "made-today", 2, len(brokers))
        set_config(brokers[-1], TOPIC, "orders", "retention.bytes", "7")
    with nodes.running() as brokers:
        after = eventually(lambda: inventory(*brokers))
        assert after["configs"]["2 orders"]["retention.bytes"] == "7"
        assert after["topics"].pop("made-today")["replicas"].keys() == {"0", "1"}
        # The consumer that has read the records looks for its group's coordinator.
        after["topics"].pop("__consumer_offsets", None)
        assert after["topics"] == expected["topics"]


def test_the_fixtures_are_complete() -> None:
    assert {"one-voter", "one-static-voter", "three-voters"} <= set(NAMES)
