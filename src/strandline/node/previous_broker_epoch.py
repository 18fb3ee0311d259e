"""What a broker says about its memory when it registers: the broker epoch since which it has kept everything, or -1.

Whoever says the epoch that the controller knows stays eligible where it was (KIP-966). After a shutdown in good order
the logs are closed with that epoch, as in Kafka. After a crash Kafka says nothing, since un-synced records may be gone;
so nobody is eligible when all replicas of a partition lose their power at once. But where every record is on disk
before it counts (`log.flush.interval.messages=1`), a broker whose logs are all found whole has lost nothing, and says
so (docs/decisions/0017). For that it reads its logs before it registers; how they are to be read only metadata can tell
(a compacted log has gaps that are none), so it catches up with these first.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Final, NamedTuple

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
_LOOKED_AT_PER_TURN: Final = 500


class Suspect(NamedTuple):
    """A log that nobody has looked at since a crash."""

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
        caught_up: Callable[[], Awaitable[None]],
    ) -> None:
        """`view` is committed metadata, and everything that was committed by now is in it when `caught_up` returns."""
        self._caught_up = caught_up
        self._node_id = node_id
        self._store = store
        self._view = view
        self._world = world
        self._log_settings = log_settings

    async def previous_epoch(self) -> int:
        """Only if all directories remember the same one: what is in them belongs together."""
        directories = self._store.directories
        epochs = {each.clean_broker_epoch if each.is_clean else each.recorded_broker_epoch for each in directories}
        if len(epochs) != 1 or -1 in epochs:
            return -1
        if all(directory.is_clean for directory in directories):
            return epochs.pop()
        why = await self._doubt()
        if why is not None:
            logger.info("after a crash this broker does not claim to have kept everything: %s", why)
            return -1
        return epochs.pop()

    async def _doubt(self) -> str | None:
        """Why something may be lost that this broker vouched for; None when every log was read and found whole."""
        if not any(self._log_settings(each.topic).flush_messages == 1 for each in self._store.unrecovered()):
            return "records are not synced with every append"
        await self._caught_up()
        if self._view.features().get(ELIGIBLE_LEADER_REPLICAS, 0) < 1:
            return "nobody would ask"
        for topic_partition in [missing for each in self._store.directories for missing in each.missing]:
            if self._hosted_topic(topic_partition) is not None:
                return f"{topic_partition} is missing"
        suspects: list[Suspect] = []
        for number, topic_partition in enumerate(self._store.unrecovered()):
            if number % _LOOKED_AT_PER_TURN == _LOOKED_AT_PER_TURN - 1:
                await yield_to_loop()
            topic = self._hosted_topic(topic_partition)
            if topic is None:
                continue  # deleted, or moved to others: nobody counts on it
            suspect = Suspect(topic_partition, topic.id, self._log_settings(topic.name))
            if suspect.settings.flush_messages != 1:
                return f"{topic_partition} is not synced with every append"
            suspects.append(suspect)
        run = self._world.offload.run
        shares = [suspects[share::_THREADS] for share in range(_THREADS)]
        found = await asyncio.gather(*(run(partial(self._first_hurt, share)) for share in shares))
        return next((why for why in found if why is not None), None)

    def _hosted_topic(self, topic_partition: TopicPartition) -> TopicInfo | None:
        """The topic of a partition that this node is known to have."""
        topic = self._view.topic(topic_partition.topic)
        info = None if topic is None else self._view.partition(topic.id, topic_partition.partition)
        return topic if info is not None and self._node_id in info.replicas else None

    def _first_hurt(self, suspects: list[Suspect]) -> str | None:
        """Blocking."""
        for suspect in suspects:
            why = self._look_at(suspect)
            if why is not None:
                return f"{suspect.topic_partition}: {why}"
        return None

    def _look_at(self, suspect: Suspect) -> str | None:
        store, topic_partition = self._store, suspect.topic_partition
        home = store.directory_of(topic_partition)
        try:
            if home is None or home.topic_id(topic_partition) not in (None, suspect.topic_id):
                return None  # a topic of the same name that was there before: nobody counts on it either
            log = store.open_log(
                topic_partition, suspect.topic_id, suspect.settings, wall_ms=self._world.clock.wall_ms()
            )
        except (CorruptCheckpoint, KafkaError, OSError) as error:
            return str(error)
        return None if log.is_intact else store.damaged.get(topic_partition, "it is damaged")
