"""Lag of the groups that this broker coordinates, as metrics: records behind, and the age of the oldest unread record.

    strandline.coordinator:type=group-lag,name=records,group=billing,topic=orders,partition=0
    strandline.coordinator:type=group-lag,name=seconds,group=billing,topic=orders,partition=0

Built by `node/broker_role`. Partition leaders are asked with the broker's own client (`client/admin/lag`), as any other
client would. Costs are bounded:

- Nothing is asked until the metrics are read. While they are read, a round of requests runs every `INTERVAL_MS`.
  Reading itself asks nothing: ages are computed from the timestamps of the last round.
- A record is looked up once per committed offset, and again after `RECHECK_MS`, because compaction or retention may
  have removed it. A round has at most `MAX_LOOKUPS` lookups; the others follow in later rounds.
- At most `MAX_SERIES` committed offsets are published; `name=omitted` counts the others.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from strandline.coordinator.groups import GroupMachine
from strandline.coordinator.shards import Shards
from strandline.model.errors import KafkaError
from strandline.model.ids import Endpoint, TopicPartition
from strandline.runtime.metrics import Metrics, Series
from strandline.runtime.tasks import TaskGroup
from strandline.runtime.world import World

if TYPE_CHECKING:
    from strandline.client.admin.lag import Position
    from strandline.client.core.unread import Lag
    from strandline.client.routing import Router

logger = logging.getLogger(__name__)

INTERVAL_MS: Final = 5_000
IDLE_MS: Final = 90_000
"""Without a reader for this long, rounds end until the next one."""
RECHECK_MS: Final = 60_000
MAX_SERIES: Final = 2_000
MAX_LOOKUPS: Final = 500
REQUEST_TIMEOUT_MS: Final = 5_000
_NAME: Final = "strandline.coordinator:type=group-lag,name="


class GroupLagMonitor:
    def __init__(
        self,
        world: World,
        metrics: Metrics,
        tasks: TaskGroup,
        groups: Shards[GroupMachine],
        own_endpoint: Callable[[], Endpoint | None],
    ) -> None:
        """`own_endpoint` is this broker's address between brokers, once it has registered."""
        self._world = world
        self._tasks = tasks
        self._groups = groups
        self._own_endpoint = own_endpoint
        self._lags: dict[tuple[str, TopicPartition], Lag] = {}
        self._known: dict[Position, tuple[int, int]] = {}
        """Timestamp of the oldest unread record, and when it was looked up."""
        self._omitted = 0
        self._read_ms = 0
        self._is_running = False
        metrics.series(_NAME + "records", self._records)
        metrics.series(_NAME + "seconds", self._seconds)
        metrics.gauge(_NAME + "omitted", lambda: self._omitted)

    def _records(self) -> Series:
        self._on_read()
        return [(_tags(key), lag.records) for key, lag in self._lags.items()]

    def _seconds(self) -> Series:
        wall_ms = self._world.clock.wall_ms()
        return [(_tags(key), lag.age_ms(wall_ms) / 1000) for key, lag in self._lags.items() if lag.error is None]

    def _on_read(self) -> None:
        self._read_ms = self._world.clock.now_ms()
        if not self._is_running and self._own_endpoint() is not None and self._groups.active():
            self._is_running = True
            self._tasks.start(self._run(), name="group lag")

    async def _run(self) -> None:
        from strandline.client.routing import Router
        from strandline.client.settings import ClientSettings

        endpoint = self._own_endpoint()
        assert endpoint is not None
        settings = ClientSettings(client_id="group-lag", api_timeout_ms=REQUEST_TIMEOUT_MS, bootstrap_timeout_ms=0)
        try:
            async with Router(self._world, [endpoint], settings) as router:
                while self._world.clock.now_ms() - self._read_ms < IDLE_MS:
                    try:
                        await self._round(router)
                    except KafkaError as error:
                        logger.info("the lag of groups is not known now: %s", error)
                    await router.sleep(INTERVAL_MS)
        finally:
            self._is_running = False
            self._lags = {}

    async def _round(self, router: Router) -> None:
        from strandline.client.admin.lag import find_lags

        committed = self._committed()
        positions = list(dict.fromkeys((partition, offset) for (_, partition), offset in committed.items()))
        now_ms = self._world.clock.now_ms()
        fresh = {
            position: timestamp_ms
            for position, (timestamp_ms, found_ms) in self._known.items()
            if now_ms - found_ms < RECHECK_MS
        }
        found = await find_lags(router, positions, fresh, max_lookups=MAX_LOOKUPS, timeout_ms=REQUEST_TIMEOUT_MS)
        self._known = {
            position: (lag.oldest_ms, self._known[position][1] if position in fresh else now_ms)
            for position, lag in found.items()
            if lag.oldest_ms is not None
        }
        self._lags = {key: found[key[1], offset] for key, offset in committed.items() if found[key[1], offset].is_known}

    def _committed(self) -> dict[tuple[str, TopicPartition], int]:
        committed: dict[tuple[str, TopicPartition], int] = {}
        total = 0
        for shard in self._groups.active():
            offsets = shard.machine.offsets
            total += offsets.count()
            at = shard.machine.timeline.committed
            for group in shard.machine.groups(at):
                if len(committed) >= MAX_SERIES:
                    break
                for (topic, partition), each in offsets.all_of(group.group_id, at):
                    committed[group.group_id, TopicPartition(topic, partition)] = each.offset
        kept = dict(list(committed.items())[:MAX_SERIES])
        self._omitted = max(0, total - len(kept))
        return kept


def _tags(key: tuple[str, TopicPartition]) -> dict[str, str]:
    group_id, partition = key
    return {"group": group_id, "topic": partition.topic, "partition": str(partition.partition)}
