"""What a broker's coming and going does to partitions: the records that move leaders and ISRs.

Each function is a generator that walks all partitions, breathing as it goes, and appends the records it finds needed;
`controller.brokers` puts them together with the record that changes the broker itself, in a decision that need not be
atomic: 10,000 leaderships are a handful of batches. A walk costs a third of a microsecond per partition that is not
concerned, so no index by broker is kept.

Where the broker's own record stands matters, for no ISR may ever hold a fenced broker: behind those of `leave`, and in
front of those of `come`.
"""

from __future__ import annotations

from collections.abc import Collection, Generator, Iterator

from strandline.controller.decisions import STEPS_PER_BREATH
from strandline.controller.hosts import LiveBrokers
from strandline.controller.partitions import AS_IT_IS, Target, change
from strandline.controller.rules import TopicRules
from strandline.metadata.values import NO_LEADER, PartitionInfo, PartitionKey
from strandline.metadata.views import View
from strandline.model.ids import Uuid
from strandline.protocol.types import Message

Walk = Generator[None, None, None]
PARTITIONS_PER_BREATH = 20 * STEPS_PER_BREATH


def leave(
    view: View,
    rules: TopicRules,
    broker_id: int,
    records: list[Message],
    *,
    unclean_shutdown: bool = False,
    directories: Collection[Uuid] | None = None,
) -> Walk:
    """The broker stops being in sync anywhere: fenced, shutting down, unregistered, registered anew.

    One whose shutdown was unclean may have lost what it had in sync, so it loses its place among the eligible too; the
    same goes for one that is unregistered, since nobody will ask its successor. With `directories` only what the broker
    keeps in these is concerned: they have failed.
    """
    hosts = LiveBrokers(view, leaving=broker_id)
    lost = (broker_id,) if unclean_shutdown else ()
    for key, partition in each_partition(view):
        if partition is None:
            yield
        elif (broker_id in partition.isr or (unclean_shutdown and broker_id in partition.elr)) and (
            directories is None or partition.directory_of(broker_id) in directories
        ):
            isr = tuple(replica for replica in partition.isr if replica != broker_id)
            target = Target(isr=isr, unclean_shutdown=lost)
            yield from _append(view, rules, hosts, key, partition, target, records)


def come(view: View, rules: TopicRules, broker_id: int, records: list[Message]) -> Walk:
    """The broker is about to be live: partitions that nobody leads may have a leader in it."""
    hosts = LiveBrokers(view, coming=broker_id)
    for key, partition in each_partition(view):
        if partition is None:
            yield
        elif partition.leader == NO_LEADER:
            yield from _append(view, rules, hosts, key, partition, AS_IT_IS, records)


def leads_any(view: View, broker_id: int) -> Generator[None, None, bool]:
    for _, partition in each_partition(view):
        if partition is None:
            yield
        elif partition.leader == broker_id:
            return True
    return False


def each_partition(view: View) -> Iterator[tuple[PartitionKey, PartitionInfo | None]]:
    """All partitions; None stands for a good moment to breathe."""
    for count, (key, partition) in enumerate(view.all_partitions(), 1):
        yield key, partition
        if count % PARTITIONS_PER_BREATH == 0:
            yield key, None


def _append(
    view: View,
    rules: TopicRules,
    hosts: LiveBrokers,
    key: PartitionKey,
    partition: PartitionInfo,
    target: Target,
    records: list[Message],
) -> Walk:
    topic = view.topic_by_id(key[0])
    assert topic is not None
    record = change(partition, key[0], key[1], hosts, rules.of(topic.name), target)
    if record is not None:
        records.append(record)
        if len(records) % STEPS_PER_BREATH == 0:
            yield
