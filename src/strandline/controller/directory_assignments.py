"""Where replicas live: AssignReplicasToDirs (73, KIP-858).

A broker with several log directories decides by itself into which one a new replica goes, and tells afterwards; only
then does the controller know which replicas are lost when a directory fails. The order of the two messages does not
matter: a replica assigned to a directory that is not online is treated like one whose directory just failed.

A broker that finds a single replica damaged says so in the same words: the replica is in the directory LOST, and then,
since it will get its records back from the others, in its own again. If nobody could take over, that is when it leads.

The shell calls `assign` for `assign_replicas_to_dirs`, which only brokers may ask for. DirectoryAssignments that
fail are told
in heartbeats: see `controller.brokers`.
"""

from __future__ import annotations

from collections.abc import Generator

from strandline.controller.decisions import STEPS_PER_YIELD, Decision, Steps
from strandline.controller.drafts import PartitionChanges
from strandline.controller.election_rules import elr_enabled
from strandline.controller.live_brokers import is_online, registered_broker
from strandline.controller.partitions import Election, Target
from strandline.controller.settings import ControllerSettings
from strandline.controller.unconfirmed_failures import UnconfirmedFailures
from strandline.metadata.record_versions import DIRECTORIES_SINCE
from strandline.metadata.values import NO_LEADER, BrokerInfo
from strandline.metadata.views import View
from strandline.model.errors import ErrorCode, KafkaError
from strandline.model.ids import DIRECTORY_LOST, Uuid
from strandline.protocol.messages.brokers import (
    AssignReplicasToDirsRequest,
    AssignReplicasToDirsRequestTopicData,
    AssignReplicasToDirsResponse,
    AssignReplicasToDirsResponseDirectoryData,
    AssignReplicasToDirsResponsePartitionData,
    AssignReplicasToDirsResponseTopicData,
)


class DirectoryAssignments:
    def __init__(self, view: View, settings: ControllerSettings, doubts: UnconfirmedFailures | None = None) -> None:
        self._view = view
        self._settings = settings
        self._doubts = doubts

    def assign(self, request: AssignReplicasToDirsRequest) -> Steps[AssignReplicasToDirsResponse]:
        if self._view.metadata_version < DIRECTORIES_SINCE:
            raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, "at this metadata version directories are not assigned")
        broker = registered_broker(self._view, request.broker_id, request.broker_epoch)
        draft = PartitionChanges(self._view, self._settings, self._doubts)
        response = AssignReplicasToDirsResponse(directories=[])
        for directory in request.directories:
            answers = AssignReplicasToDirsResponseDirectoryData(id=directory.id, topics=[])
            response.directories.append(answers)
            for number, topic in enumerate(directory.topics, 1):
                answers.topics.append((yield from self._assign_topic(draft, broker, directory.id, topic)))
                if number % STEPS_PER_YIELD == 0:
                    yield
        return Decision(response, draft.records, atomic=False)

    def _assign_topic(
        self, draft: PartitionChanges, broker: BrokerInfo, directory: Uuid, topic: AssignReplicasToDirsRequestTopicData
    ) -> Generator[None, None, AssignReplicasToDirsResponseTopicData]:
        results = AssignReplicasToDirsResponseTopicData(topic_id=topic.topic_id, partitions=[])
        for number, data in enumerate(topic.partitions, 1):
            index = data.partition_index
            code = self._assign(draft, broker, directory, topic.topic_id, index)
            results.partitions.append(AssignReplicasToDirsResponsePartitionData(index, code))
            if number % STEPS_PER_YIELD == 0:
                yield
        return results

    def _assign(
        self, draft: PartitionChanges, broker: BrokerInfo, directory: Uuid, topic_id: Uuid, index: int
    ) -> ErrorCode:
        topic = self._view.topic_by_id(topic_id)
        if topic is None:
            return ErrorCode.UNKNOWN_TOPIC_ID
        partition = draft.partition(topic, index)
        if partition is None:
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        if broker.id not in partition.replicas:
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        if is_online(directory, broker.directories):
            target = Target(directory=(broker.id, directory), election=Election.ONLINE)
            moved = draft.change(topic, index, partition, target)
            if moved.leader == NO_LEADER and partition.directory_of(broker.id) == DIRECTORY_LOST:
                draft.change(topic, index, moved, Target(election=Election.ONLINE))
        else:
            isr = tuple(replica for replica in partition.isr if replica != broker.id)
            # What was in it is not to be trusted again: see `brokers`, where a directory fails.
            lost = (broker.id,) if elr_enabled(self._view) else ()
            target = Target(directory=(broker.id, directory), isr=isr, unclean_shutdown=lost)
            draft.change(topic, index, partition, target, leaving=broker.id)
        return ErrorCode.NONE
