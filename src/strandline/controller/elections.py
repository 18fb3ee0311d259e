"""What a broker's coming and going does to partitions: the records that move leaders and ISRs.

Each function is a generator that walks all partitions, breathing as it goes, and appends the records it finds needed;
`controller.brokers` puts them together with the record that changes the broker itself. A walk costs half a microsecond
per partition that is not concerned, so no index by broker is kept.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator

from strandline.controller.decisions import STEPS_PER_BREATH
from strandline.controller.partitions import accepts, change
from strandline.controller.rules import TopicRules
from strandline.metadata.values import NO_LEADER, PartitionInfo, PartitionKey
from strandline.metadata.views import View
from strandline.model.ids import Uuid
from strandline.protocol.types import Message

Walk = Generator[None, None, None]
_PARTITIONS_PER_BREATH = 20 * STEPS_PER_BREATH


def leave(
    view: View, rules: TopicRules, broker_id: int, records: list[Message], *, unclean_shutdown: bool = False
) -> Walk:
    """The broker stops being in sync anywhere: fenced, shutting down, unregistered, or back without its memory.

    One whose shutdown was unclean may have lost what it had in sync, so it loses its place among the eligible too.
    """

    def acceptable(replica: int, directory: Uuid) -> bool:
        return replica != broker_id and accepts(view.broker(replica), directory)

    lost = (broker_id,) if unclean_shutdown else ()
    for key, partition in _each(view):
        if partition is None:
            yield
            continue
        if broker_id in partition.isr or (unclean_shutdown and broker_id in partition.elr):
            topic = view.topic_by_id(key[0])
            assert topic is not None
            isr = tuple(replica for replica in partition.isr if replica != broker_id)
            record = change(
                partition, key[0], key[1], acceptable, rules.of(topic.name), target_isr=isr, unclean_shutdown=lost
            )
            if record is not None:
                records.append(record)
                if len(records) % STEPS_PER_BREATH == 0:
                    yield


def come(view: View, rules: TopicRules, broker_id: int, records: list[Message]) -> Walk:
    """The broker is about to be live: partitions that nobody leads may have a leader in it."""

    def acceptable(replica: int, directory: Uuid) -> bool:
        broker = view.broker(replica)
        if replica == broker_id and broker is not None:
            return not broker.directories or int.from_bytes(directory, "big") < 100 or directory in broker.directories
        return accepts(broker, directory)

    for key, partition in _each(view):
        if partition is None:
            yield
            continue
        if partition.leader == NO_LEADER and broker_id in partition.replicas:
            topic = view.topic_by_id(key[0])
            assert topic is not None
            record = change(partition, key[0], key[1], acceptable, rules.of(topic.name))
            if record is not None:
                records.append(record)
                if len(records) % STEPS_PER_BREATH == 0:
                    yield


def leads_any(view: View, broker_id: int) -> Generator[None, None, bool]:
    for _, partition in _each(view):
        if partition is None:
            yield
        elif partition.leader == broker_id:
            return True
    return False


def _each(view: View) -> Iterator[tuple[PartitionKey, PartitionInfo | None]]:
    """All partitions; None stands for a good moment to breathe."""
    for count, (key, partition) in enumerate(view.all_partitions(), 1):
        yield key, partition
        if count % _PARTITIONS_PER_BREATH == 0:
            yield key, None
