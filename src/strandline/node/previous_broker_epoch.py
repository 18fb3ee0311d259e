"""The previous broker epoch of a registration: the epoch since which this broker has kept every record, or -1.

A broker that registers with the epoch the controller knows stays an eligible leader replica (KIP-966). A clean shutdown
closes the logs with that epoch, as in Kafka. After a crash Kafka's brokers register without one, since records that
were not flushed may be lost; so no replica is eligible after a power failure of all replicas of a partition. But if
every record is flushed before it is acknowledged (`log.flush.interval.messages=1`), a broker whose logs are all intact
has lost nothing and registers with its epoch (docs/decisions/0017). It verifies its logs before it registers. Only
metadata says how to verify them (a compacted log has gaps), so the broker first catches up with the metadata log.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Final

import msgspec

from strandline.log.checkpoints import CorruptCheckpoint
from strandline.log.settings import LogSettings
from strandline.log.store import LogStore
from strandline.metadata.features import ELIGIBLE_LEADER_REPLICAS
from strandline.metadata.values import TopicInfo
from strandline.metadata.views import View
from strandline.model.errors import KafkaError
from strandline.model.ids import TopicPartition, Uuid
from strandline.runtime.tasks import yield_to_loop
from strandline.runtime.world import World

logger = logging.getLogger(__name__)

_THREADS: Final = 4
_LOGS_PER_YIELD: Final = 500


class UncheckedLog(msgspec.Struct, frozen=True):
    """A log that has not been verified since the crash."""

    topic_partition: TopicPartition
    topic_id: Uuid
    settings: LogSettings


class PreviousBrokerEpoch:
    def __init__(
        self,
        node_id: int,
        store: LogStore,
        view: View,
        world: World,
        log_settings: Callable[[str], LogSettings],
        catch_up: Callable[[], Awaitable[None]],
    ) -> None:
        """`view` is the committed metadata; `catch_up` returns once it contains all that was committed."""
        self._catch_up = catch_up
        self._node_id = node_id
        self._store = store
        self._view = view
        self._world = world
        self._log_settings = log_settings

    async def determine(self) -> int:
        """The previous broker epoch to register with; -1 unless all directories recorded the same epoch."""
        directories = self._store.directories
        epochs = {each.clean_broker_epoch if each.is_clean else each.recorded_broker_epoch for each in directories}
        if len(epochs) != 1 or -1 in epochs:
            return -1
        if all(directory.is_clean for directory in directories):
            return epochs.pop()
        why = await self._reason_against()
        if why is not None:
            logger.info("after a crash this broker registers without its previous epoch: %s", why)
            return -1
        return epochs.pop()

    async def _reason_against(self) -> str | None:
        """Why acknowledged records may be lost; None if every log was verified and is intact."""
        if not any(self._log_settings(each.topic).flush_messages == 1 for each in self._store.unrecovered()):
            return "records are not flushed with every append"
        await self._catch_up()
        if self._view.features().get(ELIGIBLE_LEADER_REPLICAS, 0) < 1:
            return "eligible leader replicas are not enabled"
        for topic_partition in [missing for each in self._store.directories for missing in each.missing]:
            if self._hosted_topic(topic_partition) is not None:
                return f"{topic_partition} is missing"
        unchecked: list[UncheckedLog] = []
        for number, topic_partition in enumerate(self._store.unrecovered()):
            if number % _LOGS_PER_YIELD == _LOGS_PER_YIELD - 1:
                await yield_to_loop()
            topic = self._hosted_topic(topic_partition)
            if topic is None:
                continue  # deleted, or reassigned to other brokers
            log = UncheckedLog(topic_partition, topic.id, self._log_settings(topic.name))
            if log.settings.flush_messages != 1:
                return f"{topic_partition} is not flushed with every append"
            unchecked.append(log)
        run = self._world.offload.run
        shares = [unchecked[share::_THREADS] for share in range(_THREADS)]
        found = await asyncio.gather(*(run(partial(self._first_damaged, share)) for share in shares))
        return next((why for why in found if why is not None), None)

    def _hosted_topic(self, topic_partition: TopicPartition) -> TopicInfo | None:
        """The topic of a partition if metadata assigns a replica of it to this node."""
        topic = self._view.topic(topic_partition.topic)
        info = None if topic is None else self._view.partition(topic.id, topic_partition.partition)
        return topic if info is not None and self._node_id in info.replicas else None

    def _first_damaged(self, unchecked: list[UncheckedLog]) -> str | None:
        """Reads the logs; blocking."""
        for log in unchecked:
            why = self._verify(log)
            if why is not None:
                return f"{log.topic_partition}: {why}"
        return None

    def _verify(self, unchecked: UncheckedLog) -> str | None:
        store, topic_partition, topic_id = self._store, unchecked.topic_partition, unchecked.topic_id
        directory = store.directory_of(topic_partition)
        try:
            if directory is None or directory.topic_id(topic_partition) not in (None, topic_id):
                return None  # of a deleted topic of the same name
            log = store.open_log(topic_partition, topic_id, unchecked.settings, wall_ms=self._world.clock.wall_ms())
        except (CorruptCheckpoint, KafkaError, OSError) as error:
            return str(error)
        return None if log.is_intact else store.losses.get(topic_partition, "it is damaged")
