"""The metrics of the group coordinator count groups by state, offsets, and what was done."""

from __future__ import annotations

from typing import Any

from strandline.coordinator.group_metrics import register_group_metrics
from strandline.coordinator.groups import OffsetExpiry
from strandline.coordinator.offset_requests import delete_group
from strandline.runtime.metrics import Metrics
from unit.coordinator.loaded_groups import LoadedGroups


class OneShard:
    """Stands for the shards of a broker that leads one partition."""

    failed = 0
    longest_load_ms = 12

    def __init__(self, groups: LoadedGroups) -> None:
        self.machine = groups.machine

    def active(self) -> list[OneShard]:
        return [self]

    def loading(self) -> int:
        return 0


def test_groups_offsets_and_events_are_counted() -> None:
    groups = LoadedGroups(offsets_retention_minutes=1)
    metrics = Metrics()
    shards: Any = OneShard(groups)
    register_group_metrics(metrics, shards, groups.machine.counts)

    def read(name: str) -> float:
        found = [value for key, value in metrics.snapshot(0).items() if key.partition("name=")[2] == name]
        (value,) = found
        return value

    groups.stable_group("g")
    groups.commit("simple", "t", 5)
    groups.commit("simple", "u", 5)
    groups.commit("gone", "t", 5)
    assert (read("NumGroups"), read("NumGroupsStable"), read("NumGroupsEmpty"), read("NumGroupsDead")) == (3, 1, 2, 0)
    assert (read("NumOffsets"), read("offset-commit-count"), read("group-completed-rebalance-count")) == (3, 3, 1)
    groups.replay(*delete_group(groups.machine, "gone"))
    assert (read("NumOffsets"), read("offset-deletion-count")) == (2, 1)
    groups.wait(60_000)
    groups.decide(groups.machine.on_timer, OffsetExpiry(), groups.now)
    assert (read("NumOffsets"), read("NumGroups"), read("offset-expiration-count")) == (0, 1, 2)
    assert (read("num-partitions,state=active"), read("partition-load-time-max")) == (1, 12)
    assert read("group-count,protocol=classic") == 1
