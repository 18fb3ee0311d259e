"""ISR changes proposed by partition leaders: AlterPartition (56).

Only the leader of a partition knows which followers have its records, so only the leader proposes an ISR. The
controller accepts the proposal only if it was made on the current state of the partition:

    leader epoch      lower: that leadership has ended, FENCED_LEADER_EPOCH
    partition epoch   lower: the partition has changed since, INVALID_UPDATE_VERSION
    either            higher: this controller is behind, so another one must be active, NOT_CONTROLLER

A follower enters an ISR only in the incarnation that the leader saw fetching (KIP-903): a broker that restarted with an
empty disk has another broker epoch. A broker that is fenced or in controlled shutdown does not enter either
(KIP-841). Both are INELIGIBLE_REPLICA.

When the new ISR completes a reassignment that removes the leader, another leader is elected: NEW_LEADER_ELECTED.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from strandline.controller.brokers import registered_broker
from strandline.controller.decisions import STEPS_PER_YIELD, Decision, Steps
from strandline.controller.partition_changes import PartitionChanges
from strandline.controller.partitions import Target
from strandline.metadata.values import RECOVERED, RECOVERING, PartitionInfo, TopicInfo
from strandline.metadata.views import View
from strandline.model.errors import ErrorCode
from strandline.protocol.messages.brokers import (
    AlterPartitionRequest,
    AlterPartitionRequestPartitionData,
    AlterPartitionResponse,
    AlterPartitionResponsePartitionData,
    AlterPartitionResponseTopicData,
    BrokerState,
)

_ANY_EPOCH = -1


class IsrChanges:
    def __init__(self, view: View, new_changes: Callable[[], PartitionChanges]) -> None:
        self._view = view
        self._new_changes = new_changes

    def alter(self, request: AlterPartitionRequest, version: int) -> Steps[AlterPartitionResponse]:
        """Decides about proposed ISRs. Up to version 2 the request does not contain the ISR's broker epochs."""
        registered_broker(self._view, request.broker_id, request.broker_epoch)
        changes = self._new_changes()
        response = AlterPartitionResponse(topics=[])
        count = 0
        for requested in request.topics:
            topic = self._view.topic_by_id(requested.topic_id)
            results = AlterPartitionResponseTopicData(topic_id=requested.topic_id, partitions=[])
            response.topics.append(results)
            for data in requested.partitions:
                if version < 3:
                    data.new_isr_with_epochs = [BrokerState(broker_id=each) for each in data.new_isr]
                if topic is None:
                    results.partitions.append(_error(data, ErrorCode.UNKNOWN_TOPIC_ID))
                else:
                    results.partitions.append(self._alter(changes, topic, request.broker_id, data))
                count += 1
                if count % STEPS_PER_YIELD == 0:
                    yield
        return Decision(response, changes.records, atomic=False)

    def _alter(
        self, changes: PartitionChanges, topic: TopicInfo, sender: int, data: AlterPartitionRequestPartitionData
    ) -> AlterPartitionResponsePartitionData:
        index = data.partition_index
        partition = changes.partition(topic, index)
        if partition is None:
            return _error(data, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        code = _check_epochs(partition, sender, data) or _check_isr(partition, data) or self._check_members(data)
        if code is not None:
            return _error(data, code)
        isr = tuple(member.broker_id for member in data.new_isr_with_epochs)
        changed = changes.change(topic, index, partition, Target(isr=isr, recovery_state=data.leader_recovery_state))
        if changed.leader != sender:
            return _error(data, ErrorCode.NEW_LEADER_ELECTED)
        return AlterPartitionResponsePartitionData(
            partition_index=index,
            leader_id=changed.leader,
            leader_epoch=changed.leader_epoch,
            isr=list(changed.isr),
            leader_recovery_state=changed.leader_recovery_state,
            partition_epoch=changed.partition_epoch,
        )

    def _check_members(self, data: AlterPartitionRequestPartitionData) -> ErrorCode | None:
        for member in data.new_isr_with_epochs:
            broker = self._view.broker(member.broker_id)
            if broker is None or not broker.active or member.broker_epoch not in (_ANY_EPOCH, broker.epoch):
                return ErrorCode.INELIGIBLE_REPLICA
        return None


def _check_epochs(partition: PartitionInfo, sender: int, data: AlterPartitionRequestPartitionData) -> ErrorCode | None:
    if data.leader_epoch > partition.leader_epoch or data.partition_epoch > partition.partition_epoch:
        return ErrorCode.NOT_CONTROLLER
    if data.leader_epoch < partition.leader_epoch:
        return ErrorCode.FENCED_LEADER_EPOCH
    if sender != partition.leader:
        return ErrorCode.INVALID_REQUEST
    if data.partition_epoch < partition.partition_epoch:
        return ErrorCode.INVALID_UPDATE_VERSION
    return None


def _check_isr(partition: PartitionInfo, data: AlterPartitionRequestPartitionData) -> ErrorCode | None:
    isr = [member.broker_id for member in data.new_isr_with_epochs]
    state = data.leader_recovery_state
    if partition.leader not in isr or not _are_distinct_replicas(isr, partition.replicas):
        return ErrorCode.INVALID_REQUEST
    if state not in (RECOVERED, RECOVERING):
        return ErrorCode.INVALID_REQUEST
    # A leader that recovers from an unclean election is alone in its ISR.
    if state == RECOVERING and (len(isr) > 1 or partition.leader_recovery_state == RECOVERED):
        return ErrorCode.INVALID_REQUEST
    return None


def _are_distinct_replicas(isr: Sequence[int], replicas: Sequence[int]) -> bool:
    return len(set(isr)) == len(isr) and all(member in replicas for member in isr)


def _error(data: AlterPartitionRequestPartitionData, code: ErrorCode) -> AlterPartitionResponsePartitionData:
    return AlterPartitionResponsePartitionData(partition_index=data.partition_index, error_code=code)
