"""Metrics of the group coordinator, under the names of Kafka's GroupMetadataManager and group-coordinator-metrics.

Events are counted by the machines (`group_counts`); groups, offsets and partitions are counted when metrics are read.
Rates are differences of two readings, so only totals are published.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from strandline.coordinator.classic.group import ClassicGroup, State
from strandline.coordinator.consumer.group import ConsumerGroup
from strandline.coordinator.consumer.group import State as ConsumerState
from strandline.coordinator.group_counts import GroupCounts
from strandline.coordinator.groups import Group, GroupMachine
from strandline.coordinator.shards import Shards
from strandline.runtime.metrics import Metrics

_GROUPS: Final = "kafka.coordinator.group:type=GroupMetadataManager,name="
_COORDINATOR: Final = "kafka.server:type=group-coordinator-metrics,name="


def register_group_metrics(metrics: Metrics, shards: Shards[GroupMachine], counts: GroupCounts) -> None:
    def every_group() -> list[Group]:
        return [group for shard in shards.active() for group in shard.machine.groups()]

    def groups() -> list[ClassicGroup]:
        return [group for group in every_group() if isinstance(group, ClassicGroup)]

    def consumer_groups() -> list[ConsumerGroup]:
        return [group for group in every_group() if isinstance(group, ConsumerGroup)]

    def in_consumer_state(state: ConsumerState) -> Callable[[], int]:
        return lambda: sum(group.state() is state for group in consumer_groups())

    def in_state(state: State) -> Callable[[], int]:
        return lambda: sum(group.state is state for group in groups())

    metrics.gauge(_GROUPS + "NumOffsets", lambda: sum(shard.machine.offsets.count() for shard in shards.active()))
    metrics.gauge(_GROUPS + "NumGroups", lambda: len(groups()))
    for state in State:
        metrics.gauge(_GROUPS + f"NumGroups{state.value}", in_state(state))
    metrics.gauge(_COORDINATOR + "group-count", lambda: len(groups()), protocol="classic")
    metrics.gauge(_COORDINATOR + "group-count", lambda: len(consumer_groups()), protocol="consumer")
    for each in ConsumerState:
        name = _COORDINATOR + "consumer-group-count"
        metrics.gauge(name, in_consumer_state(each), state=each.value.lower())
    totals: dict[str, Callable[[], int]] = {
        "offset-commit-count": lambda: counts.offset_commits,
        "offset-expiration-count": lambda: counts.offset_expirations,
        "offset-deletion-count": lambda: counts.offset_deletions,
        "group-completed-rebalance-count": lambda: counts.completed_rebalances,
    }
    for name, read in totals.items():
        metrics.gauge(_COORDINATOR + name, read)
    metrics.gauge(_COORDINATOR + "num-partitions", lambda: len(shards.active()), state="active")
    metrics.gauge(_COORDINATOR + "num-partitions", lambda: shards.loading(), state="loading")
    metrics.gauge(_COORDINATOR + "num-partitions", lambda: shards.failed, state="failed")
    metrics.gauge(_COORDINATOR + "partition-load-time-max", lambda: shards.longest_load_ms)
