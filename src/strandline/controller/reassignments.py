"""Partitions that move to other brokers: AlterPartitionReassignments (45), ListPartitionReassignments (46).

A reassignment is three lists in the partition itself, and no process of its own (KIP-455):

    replicas   the target, in its order, then those that will go
    adding     those of the target that were not there originally
    removing   those that will go

From here on it moves by itself: the brokers of `adding` fetch, the leader reports them in sync, and the change that
makes it complete also ends it (`controller.partitions`, step 1). Original are all replicas that are not being added.

- *start*, or *override* what is under way. What an earlier target added and the new one does not want stays until the
  new one is complete; what both want is waited for (Kafka takes it for original, and may end without it).
- *cancel*: the original replicas again, at once. If none of them is in sync or eligible, that costs the records that
  only the added ones have, so it takes a topic that allows unclean leaders.

The shell calls `alter` for `alter_partition_reassignments` and `list_ongoing` for `list_partition_reassignments`.
"""

from __future__ import annotations

from collections.abc import Sequence

from strandline.controller.decisions import STEPS_PER_YIELD, Decision, Steps, check_size
from strandline.controller.drafts import PartitionChanges
from strandline.controller.partition_changes import concerned
from strandline.controller.partitions import Election, Target
from strandline.controller.settings import ControllerSettings
from strandline.controller.unconfirmed_failures import UnconfirmedFailures
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
    def __init__(self, view: View, settings: ControllerSettings, doubts: UnconfirmedFailures | None = None) -> None:
        self._view = view
        self._settings = settings
        self._doubts = doubts

    def alter(self, request: AlterPartitionReassignmentsRequest) -> Steps[AlterPartitionReassignmentsResponse]:
        """Each partition on its own; those that succeed start together, in one atomic batch."""
        draft = PartitionChanges(self._view, self._settings, self._doubts)
        allow_factor_change = request.allow_replication_factor_change
        response = AlterPartitionReassignmentsResponse(
            # Kafka has an empty message where it was asked for nothing, and none otherwise.
            error_message=None if request.topics else "",
            allow_replication_factor_change=allow_factor_change,
            responses=[],
        )
        count = 0
        for asked in request.topics:
            answers = ReassignableTopicResponse(name=asked.name, partitions=[])
            response.responses.append(answers)
            for wish in asked.partitions:
                code, why = ErrorCode.NONE, None
                try:
                    self._alter(draft, asked.name, wish, allow_factor_change=allow_factor_change)
                except KafkaError as error:
                    code, why = error.code, error.why
                answers.partitions.append(
                    ReassignablePartitionResponse(
                        partition_index=wish.partition_index, error_code=code, error_message=why
                    )
                )
                count += 1
                if count % STEPS_PER_YIELD == 0:
                    yield
        check_size(len(draft.records))
        return Decision(response, draft.records)

    def _alter(
        self, draft: PartitionChanges, name: str, wish: ReassignablePartition, *, allow_factor_change: bool
    ) -> None:
        topic = self._view.topic(name)
        index = wish.partition_index
        partition = None if topic is None else draft.partition(topic, index)
        if topic is None or partition is None:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no partition {name}-{index}")
        if wish.replicas is None:
            target = _cancelled(draft, topic, partition)
        else:
            self._check_assignment(wish.replicas)
            if not allow_factor_change:
                _check_factor(partition, wish.replicas)
            target = _started(partition, wish.replicas)
        draft.change(topic, index, partition, target)

    def _check_assignment(self, replicas: Sequence[int]) -> None:
        if not replicas:
            raise _bad_assignment("a partition cannot be without replicas")
        if len(set(replicas)) != len(replicas):
            raise _bad_assignment(f"a broker is named more than once: {list(replicas)}")
        for replica in replicas:
            if self._view.broker(replica) is None:
                raise _bad_assignment(f"broker {replica} is not registered")

    def list_ongoing(self, request: ListPartitionReassignmentsRequest) -> Steps[ListPartitionReassignmentsResponse]:
        """Without topics all are meant. What does not exist, or does not move, is not mentioned."""
        response = ListPartitionReassignmentsResponse(error_message=None, topics=[])
        if request.topics is not None:
            for asked in request.topics:
                topic = self._view.topic(asked.name)
                if topic is not None:
                    response.topics.append(self._ongoing(topic, asked.partition_indexes))
        else:
            moving: dict[str, list[int]] = {}
            for found in concerned(self._view, is_moving):
                if found is None:
                    yield
                    continue
                (topic_id, index), _ = found
                topic = self._view.topic_by_id(topic_id)
                assert topic is not None
                moving.setdefault(topic.name, []).append(index)
            for name in sorted(moving):
                topic = self._view.topic(name)
                assert topic is not None
                response.topics.append(self._ongoing(topic, sorted(moving[name])))
        response.topics = [topic for topic in response.topics if topic.partitions]
        return Decision(response)

    def _ongoing(self, topic: TopicInfo, indexes: Sequence[int]) -> OngoingTopicReassignment:
        ongoing = OngoingTopicReassignment(name=topic.name, partitions=[])
        for index in indexes:
            partition = self._view.partition(topic.id, index)
            if partition is not None and is_moving(partition):
                ongoing.partitions.append(
                    OngoingPartitionReassignment(
                        partition_index=index,
                        replicas=list(partition.replicas),
                        adding_replicas=list(partition.adding),
                        removing_replicas=list(partition.removing),
                    )
                )
        return ongoing


def is_moving(partition: PartitionInfo) -> bool:
    return bool(partition.adding or partition.removing)


def _original(partition: PartitionInfo) -> tuple[int, ...]:
    return tuple(replica for replica in partition.replicas if replica not in partition.adding)


def _started(partition: PartitionInfo, wanted: Sequence[int]) -> Target:
    original = _original(partition)
    removing = tuple(sorted(replica for replica in partition.replicas if replica not in wanted))
    return Target(
        replicas=(*wanted, *removing),
        adding=tuple(sorted(replica for replica in wanted if replica not in original)),
        removing=removing,
        election=Election.ONLINE,
    )


def _cancelled(draft: PartitionChanges, topic: TopicInfo, partition: PartitionInfo) -> Target:
    if not is_moving(partition):
        raise KafkaError(ErrorCode.NO_REASSIGNMENT_IN_PROGRESS, "the partition is not being reassigned")
    original = _original(partition)
    isr = tuple(replica for replica in partition.isr if replica not in partition.adding)
    if not isr:
        unclean = draft.rules(topic, partition).unclean
        heirs = [replica for replica in original if unclean or replica in partition.elr]
        if not any(_can_lead(draft, partition, heir) for heir in heirs):
            raise _bad_assignment("none of the original replicas is in sync: it would take an unclean leader election")
    return Target(isr=isr, replicas=original, adding=(), removing=())


def _can_lead(draft: PartitionChanges, partition: PartitionInfo, replica: int) -> bool:
    directory = partition.directory_of(replica)
    return directory is not None and draft.hosts.can_lead(replica, directory)


def _check_factor(partition: PartitionInfo, wanted: Sequence[int]) -> None:
    """Against what the partition has when nothing moves any more (KIP-860)."""
    factor = len(partition.replicas) - len(partition.removing)
    if len(wanted) != factor:
        raise KafkaError(
            ErrorCode.INVALID_REPLICATION_FACTOR, f"the replication factor would change from {factor} to {len(wanted)}"
        )


def _bad_assignment(why: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, why)
