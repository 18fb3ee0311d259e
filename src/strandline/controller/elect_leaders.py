"""LeaderElections by choice: ElectLeaders (43), and the two looks around that the controller takes by itself now and
then.

Elections that happen because a broker comes or goes are in `elections`. Here somebody wants another leader although
nothing happened to the replicas:

- *preferred*: the first replica in order of assignment leads again, once it is in sync. `balance` does so for all
  partitions every `leader.imbalance.check.interval.seconds`, if `auto.leader.rebalance.enable` says so. As in Kafka any
  partition led by another is a candidate: `leader.imbalance.per.broker.percentage` is accepted and not consulted.
- *unclean*: rather anybody than nobody. By request for any partition without a leader; `elect_unclean` does so for the
  topics that allow it, every `unclean.leader.election.interval.ms` and as soon as a setting allows it.

The shell calls `elect` for `elect_leaders`; it makes `balance` and `elect_unclean` its duties: the answer True says
that there may be more to do, at once, so that no single decision grows too long. `allows_unclean` tells from the
records of a decision about settings that `elect_unclean` is worth a look right after it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

from strandline.controller.decisions import STEPS_PER_YIELD, Decision, Steps
from strandline.controller.drafts import PartitionChanges
from strandline.controller.election_rules import UNCLEAN_LEADER_ELECTION
from strandline.controller.partition_changes import concerned
from strandline.controller.partitions import Election, Target
from strandline.controller.settings import ControllerSettings
from strandline.controller.unconfirmed_failures import UnconfirmedFailures
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
    def __init__(self, view: View, settings: ControllerSettings, doubts: UnconfirmedFailures | None = None) -> None:
        self._view = view
        self._settings = settings
        self._doubts = doubts

    def elect(self, request: ElectLeadersRequest) -> Steps[ElectLeadersResponse]:
        """Without partitions all are meant, and only those are answered for which there was something to do."""
        election = _ELECTIONS.get(request.election_type)
        if election is None:
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"there is no election of type {request.election_type}")
        draft = PartitionChanges(self._view, self._settings, self._doubts)
        response = ElectLeadersResponse(replica_election_results=[])
        count = 0
        everything = request.topic_partitions is None
        for asked in self._everything() if request.topic_partitions is None else request.topic_partitions:
            results = ReplicaElectionResult(topic=asked.topic, partition_result=[])
            response.replica_election_results.append(results)
            topic = self._view.topic(asked.topic)
            for index in asked.partitions:
                result = _elect(draft, topic, index, election)
                if not (everything and result.error_code == ErrorCode.ELECTION_NOT_NEEDED):
                    results.partition_result.append(result)
                count += 1
                if count % STEPS_PER_YIELD == 0:
                    yield
        return Decision(response, draft.records, atomic=False)

    def _everything(self) -> Iterable[TopicPartitions]:
        for topic in self._view.topics():
            yield TopicPartitions(topic=topic.name, partitions=list(range(topic.partition_count)))

    def balance(self) -> Steps[bool]:
        return (yield from self._look(_is_led_by_another, Election.PREFERRED))

    def elect_unclean(self) -> Steps[bool]:
        return (yield from self._look(_is_led_by_nobody, Election.UNCLEAN))

    def _look(self, is_candidate: Callable[[PartitionInfo], bool], election: Election) -> Steps[bool]:
        draft = PartitionChanges(self._view, self._settings, self._doubts)
        target = Target(election=election)
        for found in concerned(self._view, is_candidate):
            if found is None:
                yield
                continue
            (topic_id, index), partition = found
            topic = self._view.topic_by_id(topic_id)
            assert topic is not None
            if election is Election.PREFERRED or draft.rules(topic, partition).unclean:
                draft.change(topic, index, partition, target)
            if len(draft.records) >= MAX_ELECTIONS_PER_DECISION:
                return Decision(True, draft.records, atomic=False)
        return Decision(False, draft.records, atomic=False)


def allows_unclean(records: Iterable[Message]) -> bool:
    """Whether one of these records is a setting that lets topics have unclean leaders."""
    return any(
        isinstance(record, ConfigRecord)
        and record.name == UNCLEAN_LEADER_ELECTION
        and (record.value or "").strip().lower() == "true"
        for record in records
    )


def _is_led_by_another(partition: PartitionInfo) -> bool:
    return partition.leader != partition.replicas[0]


def _is_led_by_nobody(partition: PartitionInfo) -> bool:
    return partition.leader == NO_LEADER


def _elect(draft: PartitionChanges, topic: TopicInfo | None, index: int, election: Election) -> PartitionResult:
    partition = None if topic is None else draft.partition(topic, index)
    if topic is None or partition is None:
        return _refusal(index, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "there is no such partition")
    if election is Election.PREFERRED and not _is_led_by_another(partition):
        return _refusal(index, ErrorCode.ELECTION_NOT_NEEDED, "the preferred replica leads already")
    if election is Election.UNCLEAN and not _is_led_by_nobody(partition):
        return _refusal(index, ErrorCode.ELECTION_NOT_NEEDED, f"broker {partition.leader} leads it")
    if draft.change(topic, index, partition, Target(election=election)) is not partition:
        return PartitionResult(partition_id=index, error_message=None)
    if election is Election.PREFERRED:
        why = f"broker {partition.replicas[0]} is not in sync, or cannot lead now"
        return _refusal(index, ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE, why)
    return _refusal(index, ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE, "none of its brokers can lead now")


def _refusal(index: int, code: ErrorCode, why: str) -> PartitionResult:
    return PartitionResult(partition_id=index, error_code=code, error_message=why)
