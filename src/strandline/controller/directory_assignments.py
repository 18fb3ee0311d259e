"""Log directories of replicas: AssignReplicasToDirs (73, KIP-858).

A broker with several log directories chooses the one for a new replica by itself, and reports it afterwards; only then
does the controller know which replicas are lost when a directory fails. The order of the two reports does not matter: a
replica assigned to a directory that is not online is treated as if its directory had just failed. Failed directories
are reported in heartbeats: see `controller.brokers`.

A broker that finds a single replica damaged reports it in the directory LOST and then, because the replica will be
replicated again, in its own directory. If no other replica could take over, the second report makes it leader.
"""

from __future__ import annotations

from collections.abc import Callable, Generator

from strandline.controller.brokers import registered_broker
from strandline.controller.decisions import STEPS_PER_YIELD, Decision, Steps
from strandline.controller.leader_eligibility import elr_enabled, is_online
from strandline.controller.partition_changes import PartitionChanges
from strandline.controller.partitions import Election, Target
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
    def __init__(self, view: View, new_changes: Callable[[], PartitionChanges]) -> None:
        self._view = view
        self._new_changes = new_changes

    def assign(self, request: AssignReplicasToDirsRequest) -> Steps[AssignReplicasToDirsResponse]:
        if self._view.metadata_version < DIRECTORIES_SINCE:
            raise KafkaError(
                ErrorCode.UNSUPPORTED_VERSION, f"directories are assigned from metadata.version {DIRECTORIES_SINCE} on"
            )
        broker = registered_broker(self._view, request.broker_id, request.broker_epoch)
        changes = self._new_changes()
        response = AssignReplicasToDirsResponse(directories=[])
        for directory in request.directories:
            results = AssignReplicasToDirsResponseDirectoryData(id=directory.id, topics=[])
            response.directories.append(results)
            for number, topic in enumerate(directory.topics, 1):
                results.topics.append((yield from self._assign_topic(changes, broker, directory.id, topic)))
                if number % STEPS_PER_YIELD == 0:
                    yield
        return Decision(response, changes.records, atomic=False)

    def _assign_topic(
        self,
        changes: PartitionChanges,
        broker: BrokerInfo,
        directory: Uuid,
        topic: AssignReplicasToDirsRequestTopicData,
    ) -> Generator[None, None, AssignReplicasToDirsResponseTopicData]:
        results = AssignReplicasToDirsResponseTopicData(topic_id=topic.topic_id, partitions=[])
        for number, data in enumerate(topic.partitions, 1):
            index = data.partition_index
            code = self._assign(changes, broker, directory, topic.topic_id, index)
            results.partitions.append(AssignReplicasToDirsResponsePartitionData(index, code))
            if number % STEPS_PER_YIELD == 0:
                yield
        return results

    def _assign(
        self, changes: PartitionChanges, broker: BrokerInfo, directory: Uuid, topic_id: Uuid, index: int
    ) -> ErrorCode:
        topic = self._view.topic_by_id(topic_id)
        if topic is None:
            return ErrorCode.UNKNOWN_TOPIC_ID
        partition = changes.partition(topic, index)
        if partition is None:
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        if broker.id not in partition.replicas:
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        if is_online(directory, broker.directories):
            target = Target(directory=(broker.id, directory), election=Election.ONLINE)
            moved = changes.change(topic, index, partition, target)
            if moved.leader == NO_LEADER and partition.directory_of(broker.id) == DIRECTORY_LOST:
                changes.change(topic, index, moved, Target(election=Election.ONLINE))
        else:
            isr = tuple(replica for replica in partition.isr if replica != broker.id)
            # The replica may have lost records, as when `brokers` learns of a failed directory.
            lost = (broker.id,) if elr_enabled(self._view) else ()
            target = Target(directory=(broker.id, directory), isr=isr, unclean_shutdown=lost)
            changes.change(topic, index, partition, target, leaving=broker.id)
        return ErrorCode.NONE
