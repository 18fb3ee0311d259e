"""What a broker's coming and going does to partitions: the records that move leaders and ISRs.

Each function is a generator that walks all partitions, breathing as it goes, and appends the records it finds needed;
`controller.brokers` puts them together with the record that changes the broker itself, in a decision that need not be
atomic: 10,000 leaderships are a handful of batches. A walk costs a third of a microsecond per partition that is not
concerned, so no index by broker is kept.

Where the broker's own record stands matters, for no ISR may ever hold a fenced broker: behind those of `leave`, and in
front of those of `come`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Generator, Iterator
from typing import Final

from strandline.controller.decisions import MAX_RECORDS_PER_DECISION, STEPS_PER_YIELD
from strandline.controller.election_rules import TopicElectionRules
from strandline.controller.live_brokers import LiveBrokers
from strandline.controller.partitions import AS_IT_IS, Target, change
from strandline.metadata.values import NO_LEADER, PartitionInfo, PartitionKey
from strandline.metadata.views import View
from strandline.model.errors import ErrorCode, KafkaError
from strandline.model.ids import Uuid
from strandline.protocol.messages.metadata_records import ClearElrRecord, PartitionChangeRecord
from strandline.protocol.types import Message

Walk = Generator[None, None, None]
Found = tuple[PartitionKey, PartitionInfo]

# Looking at a partition costs about a twentieth of deciding about it.
_LOOKS_PER_BREATH: Final = 20 * STEPS_PER_YIELD
_LOOKS_PER_DECISION: Final = 20


def leave(
    view: View,
    rules: TopicElectionRules,
    broker_id: int,
    records: list[Message],
    *,
    unclean_shutdown: bool = False,
    directories: Collection[Uuid] | None = None,
) -> Walk:
    """The broker stops being in sync anywhere: fenced, shutting down, unregistered, registered anew.

    One whose shutdown was unclean may have lost what it had in sync, so it loses its place among the eligible too; the
    same goes for one that is unregistered, since nobody will ask its successor. With `directories` only what the broker
    keeps in these is concerned: they have failed. What it led comes first, for that is what clients wait for.
    """

    def is_concerned(partition: PartitionInfo) -> bool:
        if directories is not None:
            return partition.directory_of(broker_id) in directories
        return broker_id in partition.isr or (unclean_shutdown and broker_id in partition.elr)

    hosts = LiveBrokers(view, leaving=broker_id)
    lost = (broker_id,) if unclean_shutdown else ()
    followed: list[Message] = []
    for found in concerned(view, is_concerned):
        if found is None:
            yield
        else:
            isr = tuple(replica for replica in found[1].isr if replica != broker_id)
            target = Target(isr=isr, unclean_shutdown=lost)
            _append(view, rules, hosts, found, target, records if found[1].leader == broker_id else followed)
    records.extend(followed)


def come(view: View, rules: TopicElectionRules, broker_id: int, records: list[Message]) -> Walk:
    """The broker is about to be live: partitions that nobody leads may have a leader in it."""
    hosts = LiveBrokers(view, coming=broker_id)
    for found in concerned(view, lambda partition: partition.leader == NO_LEADER):
        if found is None:
            yield
        else:
            _append(view, rules, hosts, found, AS_IT_IS, records)


def keep_eligible(view: View, records: list[Message]) -> Walk:
    """Another min.insync.replicas clears the eligible leaders; where nobody leads they are what they were.

    What is eligible depends on that number only while a leader commits. Kafka clears it all, and a partition without a
    leader then waits for an unclean one even when everybody is back. All of it is one batch or none: a controller that
    died after the clearing and before the rest would leave partitions that nobody could lead cleanly.
    """
    cleared = [record.topic_name for record in records if isinstance(record, ClearElrRecord)]
    if not cleared:
        return
    given = len(records)
    for found in concerned(view, lambda partition: not partition.isr and bool(partition.elr)):
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
            f"{len(records) - given} partitions without a leader are concerned, too many to change min.insync.replicas "
            "at once; do it when their brokers are back, or for fewer topics",
        )


def leads_any(view: View, broker_id: int) -> Generator[None, None, bool]:
    for found in concerned(view, lambda partition: partition.leader == broker_id):
        if found is not None:
            return True
        yield
    return False


def concerned(view: View, is_concerned: Callable[[PartitionInfo], bool]) -> Iterator[Found | None]:
    """The partitions of which something is true; None stands for a good moment to breathe."""
    effort = 0
    for key, partition in view.all_partitions():
        effort += 1
        if is_concerned(partition):
            effort += _LOOKS_PER_DECISION
            yield key, partition
        if effort >= _LOOKS_PER_BREATH:
            effort = 0
            yield None


def _append(
    view: View, rules: TopicElectionRules, hosts: LiveBrokers, found: Found, target: Target, records: list[Message]
) -> None:
    (topic_id, index), partition = found
    topic = view.topic_by_id(topic_id)
    assert topic is not None
    record = change(partition, topic_id, index, hosts, rules.of_partition(topic.name, partition), target)
    if record is not None:
        records.append(record)
