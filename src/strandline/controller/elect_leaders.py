"""Elections that no change of the replicas requires: ElectLeaders (43), and two periodic tasks.

- *preferred*: the first replica in order of assignment leads again, once it is in sync. The task `balance` elects
  preferred leaders for all partitions every `leader.imbalance.check.interval.seconds` if `auto.leader.rebalance.enable`
  is set. As in Kafka every partition with another leader is a candidate: `leader.imbalance.per.broker.percentage` is
  accepted and has no effect.
- *unclean*: a replica that may lack records leads a partition that has no leader. ElectLeaders may ask for it for any
  partition; the task `elect_unclean` elects unclean leaders where the topic allows them, every
  `unclean.leader.election.interval.ms` and after a config change that allows them (`allows_unclean`).

The response True of a task says that there may be more to do, so that no single decision takes too long. Elections
after a broker was fenced or unfenced are in `partition_changes`; every leader is chosen by `partitions.change`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

from strandline.controller.decisions import STEPS_PER_YIELD, Decision, Steps
from strandline.controller.leader_eligibility import UNCLEAN_LEADER_ELECTION
from strandline.controller.partition_changes import PartitionChanges, partitions_where
from strandline.controller.partitions import Election, Target
from strandline.metadata.values import NO_LEADER, PartitionInfo, TopicInfo
from strandline.metadata.views import View
from strandline.model.errors import ErrorCode, KafkaError
from strandline.protocol.messages.elections import (
    ElectLeadersRequest,
    ElectLeadersResponse,
    PartitionResult,
    ReplicaElectionResult,
    TopicPartitions,
)
from strandline.protocol.messages.metadata_records import ConfigRecord
from strandline.protocol.types import Message

MAX_ELECTIONS_PER_DECISION: Final = 1000
_ELECTIONS: Final = {0: Election.PREFERRED, 1: Election.UNCLEAN}


class LeaderElections:
    def __init__(self, view: View, new_changes: Callable[[], PartitionChanges]) -> None:
        self._view = view
        self._new_changes = new_changes

    def elect(self, request: ElectLeadersRequest) -> Steps[ElectLeadersResponse]:
        """A request without partitions means all, and its response omits those that needed no election."""
        election = _ELECTIONS.get(request.election_type)
        if election is None:
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"{request.election_type} is not an election type")
        changes = self._new_changes()
        response = ElectLeadersResponse(replica_election_results=[])
        count = 0
        all_partitions = request.topic_partitions is None
        for requested in self._all_partitions() if request.topic_partitions is None else request.topic_partitions:
            results = ReplicaElectionResult(topic=requested.topic, partition_result=[])
            response.replica_election_results.append(results)
            topic = self._view.topic(requested.topic)
            for index in requested.partitions:
                result = _elect(changes, topic, index, election)
                if not (all_partitions and result.error_code == ErrorCode.ELECTION_NOT_NEEDED):
                    results.partition_result.append(result)
                count += 1
                if count % STEPS_PER_YIELD == 0:
                    yield
        return Decision(response, changes.records, atomic=False)

    def _all_partitions(self) -> Iterable[TopicPartitions]:
        for topic in self._view.topics():
            yield TopicPartitions(topic=topic.name, partitions=list(range(topic.partition_count)))

    def balance(self) -> Steps[bool]:
        return (yield from self._elect_where(_lacks_preferred_leader, Election.PREFERRED))

    def elect_unclean(self) -> Steps[bool]:
        return (yield from self._elect_where(_is_leaderless, Election.UNCLEAN))

    def _elect_where(self, is_candidate: Callable[[PartitionInfo], bool], election: Election) -> Steps[bool]:
        changes = self._new_changes()
        target = Target(election=election)
        for found in partitions_where(self._view, is_candidate):
            if found is None:
                yield
                continue
            (topic_id, index), partition = found
            topic = self._view.topic_by_id(topic_id)
            assert topic is not None
            if election is Election.PREFERRED or changes.rules(topic, partition).unclean:
                changes.change(topic, index, partition, target)
            if len(changes.records) >= MAX_ELECTIONS_PER_DECISION:
                return Decision(True, changes.records, atomic=False)
        return Decision(False, changes.records, atomic=False)


def allows_unclean(records: Iterable[Message]) -> bool:
    """Whether one of these records is a config that allows unclean leaders."""
    return any(
        isinstance(record, ConfigRecord)
        and record.name == UNCLEAN_LEADER_ELECTION
        and (record.value or "").strip().lower() == "true"
        for record in records
    )


def _lacks_preferred_leader(partition: PartitionInfo) -> bool:
    return partition.leader != partition.replicas[0]


def _is_leaderless(partition: PartitionInfo) -> bool:
    return partition.leader == NO_LEADER


def _elect(changes: PartitionChanges, topic: TopicInfo | None, index: int, election: Election) -> PartitionResult:
    partition = None if topic is None else changes.partition(topic, index)
    if topic is None or partition is None:
        return _error(index, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "the partition does not exist")
    if election is Election.PREFERRED and not _lacks_preferred_leader(partition):
        return _error(index, ErrorCode.ELECTION_NOT_NEEDED, "the preferred replica is the leader already")
    if election is Election.UNCLEAN and not _is_leaderless(partition):
        return _error(index, ErrorCode.ELECTION_NOT_NEEDED, f"broker {partition.leader} is the leader")
    if changes.change(topic, index, partition, Target(election=election)) is not partition:
        return PartitionResult(partition_id=index, error_message=None)
    if election is Election.PREFERRED:
        why = f"broker {partition.replicas[0]} is not in sync, or cannot lead now"
        return _error(index, ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE, why)
    return _error(index, ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE, "none of its replicas can lead now")


def _error(index: int, code: ErrorCode, why: str) -> PartitionResult:
    return PartitionResult(partition_id=index, error_code=code, error_message=why)
