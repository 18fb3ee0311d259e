"""Directories that earlier revisions of ours wrote (tests/fixtures) open today, show what they held, and live on."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from cluster.quorum.asking import TOPIC, create_topic, eventually, set_config
from cluster.quorum.inventory import inventory
from fixtures.make import HERE, records, unpacked
from fixtures.nodes import has_all_of_loopback

pytestmark = [
    pytest.mark.xdist_group("fixed addresses"),
    pytest.mark.skipif(not has_all_of_loopback(), reason="voters are written down with addresses in 127.43.7.0/24"),
]

NAMES = sorted(path.name.removesuffix(".tar.xz") for path in HERE.glob("*.tar.xz"))


def known(found: dict[str, Any], then: dict[str, Any]) -> dict[str, Any]:
    """What could be asked already when the directory was written."""
    return {key: value for key, value in found.items() if then[key] is not None}


@pytest.mark.parametrize("name", NAMES)
def test_what_was_written_then_is_there_today_and_can_be_changed(name: str, tmp_path: Path) -> None:
    nodes, then = unpacked(name, tmp_path)
    expected = known(then["metadata"], then["metadata"])
    with nodes.running() as brokers:
        for broker in brokers:
            found = eventually(lambda broker=broker: inventory(broker, *brokers))  # type: ignore[misc]
            assert known(found, then["metadata"]) == expected
        assert records(brokers[0]) == then["records"]
        create_topic(brokers[0], "made-today", 2, len(brokers))
        set_config(brokers[-1], TOPIC, "orders", "retention.bytes", "7")
    with nodes.running() as brokers:
        after = eventually(lambda: inventory(*brokers))
        assert after["configs"]["2 orders"]["retention.bytes"] == "7"
        assert after["topics"].pop("made-today")["replicas"].keys() == {"0", "1"}
        assert after["topics"] == expected["topics"]


def test_there_are_such_directories() -> None:
    assert {"one-voter", "one-static-voter", "three-voters"} <= set(NAMES)
