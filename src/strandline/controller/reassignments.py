"""Reassignment of partitions: AlterPartitionReassignments (45), ListPartitionReassignments (46).

A reassignment is three lists in the partition itself (KIP-455):

    replicas   the target, in its order, then the replicas to be removed
    adding     replicas of the target that are not original
    removing   replicas to be removed

It then proceeds without the controller: the brokers of `adding` fetch, the leader proposes them for the ISR, and the
change that completes the reassignment ends it (`controller.partitions`, step 1). Original are all replicas that are not
being added.

- *start*, or *override* an ongoing one. A replica that an earlier target added and the new one does not contain stays
  until the new one is complete; a replica in both must be in sync (Kafka takes it for original, and may complete
  without it).
- *cancel*: back to the original replicas, at once. If none of them is in sync or eligible, the records that only the
  added ones have are lost, so the topic must allow unclean leaders.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from strandline.controller.decisions import STEPS_PER_YIELD, Decision, Steps, check_size
from strandline.controller.partition_changes import PartitionChanges, partitions_where
from strandline.controller.partitions import Election, Target
from strandline.metadata.values import PartitionInfo, TopicInfo
from strandline.metadata.views import View
from strandline.model.errors import ErrorCode, KafkaError
from strandline.protocol.messages.reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
    OngoingPartitionReassignment,
    OngoingTopicReassignment,
    ReassignablePartition,
    ReassignablePartitionResponse,
    ReassignableTopicResponse,
)


class Reassignments:
    def __init__(self, view: View, new_changes: Callable[[], PartitionChanges]) -> None:
        self._view = view
        self._new_changes = new_changes

    def alter(self, request: AlterPartitionReassignmentsRequest) -> Steps[AlterPartitionReassignmentsResponse]:
        """Each partition has its own result; the successful ones are one atomic batch."""
        changes = self._new_changes()
        allow_factor_change = request.allow_replication_factor_change
        response = AlterPartitionReassignmentsResponse(
            # Kafka responds with an empty message to an empty request, and with none otherwise.
            error_message=None if request.topics else "",
            allow_replication_factor_change=allow_factor_change,
            responses=[],
        )
        count = 0
        for requested in request.topics:
            results = ReassignableTopicResponse(name=requested.name, partitions=[])
            response.responses.append(results)
            for partition in requested.partitions:
                code, why = ErrorCode.NONE, None
                try:
                    self._alter(changes, requested.name, partition, allow_factor_change=allow_factor_change)
                except KafkaError as error:
                    code, why = error.code, error.why
                results.partitions.append(
                    ReassignablePartitionResponse(
                        partition_index=partition.partition_index, error_code=code, error_message=why
                    )
                )
                count += 1
                if count % STEPS_PER_YIELD == 0:
                    yield
        check_size(len(changes.records))
        return Decision(response, changes.records)

    def _alter(
        self, changes: PartitionChanges, name: str, requested: ReassignablePartition, *, allow_factor_change: bool
    ) -> None:
        topic = self._view.topic(name)
        index = requested.partition_index
        partition = None if topic is None else changes.partition(topic, index)
        if topic is None or partition is None:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"partition {name}-{index} does not exist")
        if requested.replicas is None:
            target = _cancelled(changes, topic, partition)
        else:
            self._check_assignment(requested.replicas)
            if not allow_factor_change:
                _check_factor(partition, requested.replicas)
            target = started_reassignment(partition, requested.replicas)
        changes.change(topic, index, partition, target)

    def _check_assignment(self, replicas: Sequence[int]) -> None:
        if not replicas:
            raise _bad_assignment("a partition needs at least one replica")
        if len(set(replicas)) != len(replicas):
            raise _bad_assignment(f"a broker is given more than once: {list(replicas)}")
        for replica in replicas:
            if self._view.broker(replica) is None:
                raise _bad_assignment(f"broker {replica} is not registered")

    def list_ongoing(self, request: ListPartitionReassignmentsRequest) -> Steps[ListPartitionReassignmentsResponse]:
        """A request without topics means all. Partitions that do not exist or are not being reassigned are omitted."""
        response = ListPartitionReassignmentsResponse(error_message=None, topics=[])
        if request.topics is not None:
            for requested in request.topics:
                topic = self._view.topic(requested.name)
                if topic is not None:
                    response.topics.append(self._ongoing(topic, requested.partition_indexes))
        else:
            reassigning: dict[str, list[int]] = {}
            for found in partitions_where(self._view, is_reassigning):
                if found is None:
                    yield
                    continue
                (topic_id, index), _ = found
                topic = self._view.topic_by_id(topic_id)
                assert topic is not None
                reassigning.setdefault(topic.name, []).append(index)
            for name in sorted(reassigning):
                topic = self._view.topic(name)
                assert topic is not None
                response.topics.append(self._ongoing(topic, sorted(reassigning[name])))
        response.topics = [topic for topic in response.topics if topic.partitions]
        return Decision(response)

    def _ongoing(self, topic: TopicInfo, indexes: Sequence[int]) -> OngoingTopicReassignment:
        ongoing = OngoingTopicReassignment(name=topic.name, partitions=[])
        for index in indexes:
            partition = self._view.partition(topic.id, index)
            if partition is not None and is_reassigning(partition):
                ongoing.partitions.append(
                    OngoingPartitionReassignment(
                        partition_index=index,
                        replicas=list(partition.replicas),
                        adding_replicas=list(partition.adding),
                        removing_replicas=list(partition.removing),
                    )
                )
        return ongoing


def is_reassigning(partition: PartitionInfo) -> bool:
    return bool(partition.adding or partition.removing)


def _original(partition: PartitionInfo) -> tuple[int, ...]:
    return tuple(replica for replica in partition.replicas if replica not in partition.adding)


def started_reassignment(partition: PartitionInfo, wanted: Sequence[int]) -> Target:
    original = _original(partition)
    removing = tuple(sorted(replica for replica in partition.replicas if replica not in wanted))
    return Target(
        replicas=(*wanted, *removing),
        adding=tuple(sorted(replica for replica in wanted if replica not in original)),
        removing=removing,
        election=Election.ONLINE,
    )


def _cancelled(changes: PartitionChanges, topic: TopicInfo, partition: PartitionInfo) -> Target:
    if not is_reassigning(partition):
        raise KafkaError(ErrorCode.NO_REASSIGNMENT_IN_PROGRESS, "the partition is not being reassigned")
    original = _original(partition)
    isr = tuple(replica for replica in partition.isr if replica not in partition.adding)
    if not isr:
        unclean = changes.rules(topic, partition).unclean
        leaders = [replica for replica in original if unclean or replica in partition.elr]
        if not any(_can_lead(changes, partition, leader) for leader in leaders):
            raise _bad_assignment("none of the original replicas is in sync: it would take an unclean leader election")
    return Target(isr=isr, replicas=original, adding=(), removing=())


def _can_lead(changes: PartitionChanges, partition: PartitionInfo, replica: int) -> bool:
    directory = partition.directory_of(replica)
    return directory is not None and changes.brokers.can_lead(replica, directory)


def _check_factor(partition: PartitionInfo, wanted: Sequence[int]) -> None:
    """Compares with the replication factor after the ongoing reassignment (KIP-860)."""
    factor = len(partition.replicas) - len(partition.removing)
    if len(wanted) != factor:
        raise KafkaError(
            ErrorCode.INVALID_REPLICATION_FACTOR, f"the replication factor would change from {factor} to {len(wanted)}"
        )


def _bad_assignment(why: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, why)
