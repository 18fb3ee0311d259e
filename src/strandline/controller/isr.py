"""Who is in sync, as the leaders tell: AlterPartition (56).

Only the leader of a partition knows which followers have its records, so only the leader proposes an ISR. It does so on
what it knows, and the controller takes it only if both know the same: two counters are compared,

    leader epoch      of another leadership? It ended: FENCED_LEADER_EPOCH
    partition epoch   something else changed meanwhile? Look again: INVALID_UPDATE_VERSION

A counter ahead of ours means that *we* are behind: NOT_CONTROLLER, for somebody else must be the controller by now.

A follower enters an ISR only in the incarnation that the leader saw fetching (KIP-903): a broker that was restarted
with an empty disk has another broker epoch. Nor does one that is fenced or leaving enter: INELIGIBLE_REPLICA (KIP-841).

When the new ISR ends a reassignment that removes the leader, another one leads: NEW_LEADER_ELECTED.

The shell calls `alter` for `alter_partition`, which only brokers may ask for.
"""

from __future__ import annotations

from collections.abc import Sequence

from strandline.controller.decisions import STEPS_PER_YIELD, Decision, Steps
from strandline.controller.drafts import PartitionChanges
from strandline.controller.live_brokers import registered_broker
from strandline.controller.partitions import Target
from strandline.controller.settings import ControllerSettings
from strandline.controller.unconfirmed_failures import UnconfirmedFailures
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
    def __init__(self, view: View, settings: ControllerSettings, doubts: UnconfirmedFailures | None = None) -> None:
        self._view = view
        self._settings = settings
        self._doubts = doubts

    def alter(self, request: AlterPartitionRequest, version: int) -> Steps[AlterPartitionResponse]:
        """Up to version 2 the members of an ISR come without their broker epochs."""
        registered_broker(self._view, request.broker_id, request.broker_epoch)
        draft = PartitionChanges(self._view, self._settings, self._doubts)
        response = AlterPartitionResponse(topics=[])
        count = 0
        for asked in request.topics:
            topic = self._view.topic_by_id(asked.topic_id)
            answers = AlterPartitionResponseTopicData(topic_id=asked.topic_id, partitions=[])
            response.topics.append(answers)
            for data in asked.partitions:
                if version < 3:
                    data.new_isr_with_epochs = [BrokerState(broker_id=each) for each in data.new_isr]
                if topic is None:
                    answers.partitions.append(_refusal(data, ErrorCode.UNKNOWN_TOPIC_ID))
                else:
                    answers.partitions.append(self._alter(draft, topic, request.broker_id, data))
                count += 1
                if count % STEPS_PER_YIELD == 0:
                    yield
        return Decision(response, draft.records, atomic=False)

    def _alter(
        self, draft: PartitionChanges, topic: TopicInfo, sender: int, data: AlterPartitionRequestPartitionData
    ) -> AlterPartitionResponsePartitionData:
        index = data.partition_index
        partition = draft.partition(topic, index)
        if partition is None:
            return _refusal(data, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        code = _check_epochs(partition, sender, data) or _check_isr(partition, data) or self._check_members(data)
        if code is not None:
            return _refusal(data, code)
        isr = tuple(member.broker_id for member in data.new_isr_with_epochs)
        changed = draft.change(topic, index, partition, Target(isr=isr, recovery_state=data.leader_recovery_state))
        if changed.leader != sender:
            return _refusal(data, ErrorCode.NEW_LEADER_ELECTED)
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
    # A leader that still recovers from an unclean election has nothing that a follower could be in sync with.
    if state == RECOVERING and (len(isr) > 1 or partition.leader_recovery_state == RECOVERED):
        return ErrorCode.INVALID_REQUEST
    return None


def _are_distinct_replicas(isr: Sequence[int], replicas: Sequence[int]) -> bool:
    return len(set(isr)) == len(isr) and all(member in replicas for member in isr)


def _refusal(data: AlterPartitionRequestPartitionData, code: ErrorCode) -> AlterPartitionResponsePartitionData:
    return AlterPartitionResponsePartitionData(partition_index=data.partition_index, error_code=code)
