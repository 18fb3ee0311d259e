"""Changes of many partitions in one decision: by request, or because a broker or a config has changed.

`PartitionChanges` collects the changes that a request makes, each seeing those before it. The generators below it walk
all partitions, yielding to the event loop as they go, and append a record for each partition that needs one;
`controller.brokers` appends the record of the broker itself. Such a decision need not be atomic: 10,000 leader changes
are a handful of batches. A walk costs a third of a microsecond per partition without a change, so there is no index by
broker.

No ISR may ever contain a fenced broker. So the broker's own record follows those of `remove_from_isrs`, and precedes
those of `elect_leaderless`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Generator, Iterator
from typing import Final

from strandline.controller.decisions import MAX_RECORDS_PER_DECISION, STEPS_PER_YIELD
from strandline.controller.failure_detector import UnconfirmedFailures
from strandline.controller.leader_eligibility import LiveBrokers, TopicElectionRules
from strandline.controller.partitions import NO_CHANGE, ElectionRules, Target, change
from strandline.controller.settings import ControllerSettings
from strandline.metadata.topics_image import changed_partition
from strandline.metadata.values import NO_LEADER, PartitionInfo, PartitionKey, TopicInfo
from strandline.metadata.views import View
from strandline.model.errors import ErrorCode, KafkaError
from strandline.model.ids import Uuid
from strandline.protocol.messages.metadata_records import ClearElrRecord, PartitionChangeRecord
from strandline.protocol.types import Message

Walk = Generator[None, None, None]
Found = tuple[PartitionKey, PartitionInfo]

# Testing a partition costs about a twentieth of changing it.
_TESTS_PER_CHANGE: Final = 20
_TESTS_PER_YIELD: Final = _TESTS_PER_CHANGE * STEPS_PER_YIELD


class PartitionChanges:
    """The changes of one decision, and their records.

    A request may name a partition twice. Kafka then decides both times on the state before the request; here the second
    change sees the first, so that epochs are compared with what they will be and no record contradicts another.
    """

    def __init__(
        self, view: View, settings: ControllerSettings, unconfirmed: UnconfirmedFailures | None = None
    ) -> None:
        self.records: list[Message] = []
        self.brokers = LiveBrokers(view)
        self._view = view
        self._rules = TopicElectionRules(view, settings, unconfirmed)
        self._changed: dict[PartitionKey, PartitionInfo] = {}

    def rules(self, topic: TopicInfo, partition: PartitionInfo) -> ElectionRules:
        return self._rules.of_partition(topic.name, partition)

    def partition(self, topic: TopicInfo, index: int) -> PartitionInfo | None:
        """The partition after the changes so far."""
        changed = self._changed.get((topic.id, index))
        return self._view.partition(topic.id, index) if changed is None else changed

    def change(
        self,
        topic: TopicInfo,
        index: int,
        partition: PartitionInfo,
        target: Target = NO_CHANGE,
        *,
        leaving: int | None = None,
    ) -> PartitionInfo:
        """Returns the changed partition, or the very same object when it needs no change."""
        brokers = self.brokers if leaving is None else LiveBrokers(self._view, leaving=leaving)
        record = change(partition, topic.id, index, brokers, self.rules(topic, partition), target)
        if record is None:
            return partition
        self.records.append(record)
        changed = self._changed[topic.id, index] = changed_partition(partition, record)
        return changed


def remove_from_isrs(
    view: View,
    rules: TopicElectionRules,
    broker_id: int,
    records: list[Message],
    *,
    unclean_shutdown: bool = False,
    directories: Collection[Uuid] | None = None,
) -> Walk:
    """The broker is fenced, shuts down, is unregistered or registers again: it leaves every ISR and leads nothing.

    After an unclean shutdown it may have lost records that it had in sync, so it leaves the ELR too; so does a broker
    that is unregistered, because the previous epoch of a later registration under its id is not checked. With
    `directories` only the broker's replicas in these, which have failed, are concerned. Partitions that the broker led
    come first, because clients wait for their new leaders.
    """

    def is_concerned(partition: PartitionInfo) -> bool:
        if directories is not None:
            return partition.directory_of(broker_id) in directories
        return broker_id in partition.isr or (unclean_shutdown and broker_id in partition.elr)

    brokers = LiveBrokers(view, leaving=broker_id)
    lost = (broker_id,) if unclean_shutdown else ()
    followed: list[Message] = []
    for found in partitions_where(view, is_concerned):
        if found is None:
            yield
        else:
            isr = tuple(replica for replica in found[1].isr if replica != broker_id)
            target = Target(isr=isr, unclean_shutdown=lost)
            _append(view, rules, brokers, found, target, records if found[1].leader == broker_id else followed)
    records.extend(followed)


def elect_leaderless(view: View, rules: TopicElectionRules, broker_id: int, records: list[Message]) -> Walk:
    """The broker is about to be unfenced: it may lead partitions that have no leader."""
    brokers = LiveBrokers(view, coming=broker_id)
    for found in partitions_where(view, lambda partition: partition.leader == NO_LEADER):
        if found is None:
            yield
        else:
            _append(view, rules, brokers, found, NO_CHANGE, records)


def keep_leaderless_elr(view: View, records: list[Message]) -> Walk:
    """Restores the ELR of partitions without a leader after a ClearElrRecord (min.insync.replicas has changed).

    The ELR depends on min.insync.replicas only while a leader commits. Kafka clears every ELR, and a partition without
    a leader then needs an unclean election even when all its brokers are back. The records are one batch: a controller
    that failed after the clearing and before the rest would leave partitions without an eligible leader."""
    cleared = [record.topic_name for record in records if isinstance(record, ClearElrRecord)]
    if not cleared:
        return
    given = len(records)
    for found in partitions_where(view, lambda partition: not partition.isr and bool(partition.elr)):
        if found is None:
            yield
            continue
        (topic_id, index), partition = found
        topic = view.topic_by_id(topic_id)
        assert topic is not None
        if "" in cleared or topic.name in cleared:
            records.append(
                PartitionChangeRecord(
                    topic_id=topic_id,
                    partition_id=index,
                    eligible_leader_replicas=list(partition.elr),
                    last_known_elr=list(partition.last_known_elr),
                )
            )
    if given < len(records) > MAX_RECORDS_PER_DECISION:
        raise KafkaError(
            ErrorCode.POLICY_VIOLATION,
            f"{len(records) - given} partitions have no leader, too many to change min.insync.replicas at once; "
            "change it when their brokers are back, or for fewer topics",
        )


def leads_any(view: View, broker_id: int) -> Generator[None, None, bool]:
    for found in partitions_where(view, lambda partition: partition.leader == broker_id):
        if found is not None:
            return True
        yield
    return False


def partitions_where(view: View, condition: Callable[[PartitionInfo], bool]) -> Iterator[Found | None]:
    """The partitions for which the condition holds; None marks a point to yield to the event loop."""
    effort = 0
    for key, partition in view.all_partitions():
        effort += 1
        if condition(partition):
            effort += _TESTS_PER_CHANGE
            yield key, partition
        if effort >= _TESTS_PER_YIELD:
            effort = 0
            yield None


def _append(
    view: View,
    rules: TopicElectionRules,
    brokers: LiveBrokers,
    found: Found,
    target: Target,
    records: list[Message],
) -> None:
    (topic_id, index), partition = found
    topic = view.topic_by_id(topic_id)
    assert topic is not None
    record = change(partition, topic_id, index, brokers, rules.of_partition(topic.name, partition), target)
    if record is not None:
        records.append(record)
