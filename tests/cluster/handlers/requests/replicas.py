"""Leader elections, reassignments, changes of the ISR, and log directories of replicas."""

from __future__ import annotations

from typing import Any

from cluster.handlers.requests.brokers import FencedBroker
from cluster.handlers.script_run import UNKNOWN_TOPIC_ID, ScriptRun
from cluster.handlers.script_runner import Listeners, script
from strandline.model.ids import Uuid
from strandline.protocol.apis import ApiKey
from strandline.protocol.messages.brokers import (
    AlterPartitionRequest,
    AlterPartitionRequestPartitionData,
    AlterPartitionRequestTopicData,
    AssignReplicasToDirsRequest,
    AssignReplicasToDirsRequestDirectoryData,
    AssignReplicasToDirsRequestPartitionData,
    AssignReplicasToDirsRequestTopicData,
    BrokerState,
)
from strandline.protocol.messages.elections import ElectLeadersRequest, ElectLeadersResponse, TopicPartitions
from strandline.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from strandline.protocol.messages.reassignments import (
    AlterPartitionReassignmentsRequest,
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsTopics,
    ReassignablePartition,
    ReassignableTopic,
)

DIRECTORY = Uuid(b"another log dir ")


def topic_id(run: ScriptRun, name: str) -> Uuid:
    found: Uuid = run.call(MetadataRequest(topics=[MetadataRequestTopic(name=name)])).topics[0].topic_id
    return found


@script(ApiKey.ELECT_LEADERS, Listeners.BOTH)
def leader_elections(run: ScriptRun) -> None:
    topic = run.topic("t", partitions=2)

    def only_own(response: ElectLeadersResponse) -> None:
        """An election of all partitions also returns the topics of other scripts."""
        response.replica_election_results = [
            result for result in response.replica_election_results if result.topic in (topic, "nowhere")
        ]

    def record(label: str, topics: list[TopicPartitions] | None, election_type: int = 0) -> None:
        request = ElectLeadersRequest(topic_partitions=topics)
        if run.version >= 1:
            request.election_type = election_type
        run.record(label, request, change=only_own)

    record("of the preferred leader, which leads already", [TopicPartitions(topic=topic, partitions=[0])])
    record("of an unknown partition", [TopicPartitions(topic=topic, partitions=[9])])
    record("of an unknown topic", [TopicPartitions(topic="nowhere", partitions=[0])])
    record("an empty request", [])
    record("of everything", None)
    if run.version >= 1:
        record("unclean, of a partition with a leader", [TopicPartitions(topic=topic, partitions=[0, 1])], 1)
        record("of an unknown kind", [TopicPartitions(topic=topic, partitions=[0])], 7)


@script(ApiKey.ALTER_PARTITION_REASSIGNMENTS, Listeners.BOTH)
def reassignments(run: ScriptRun) -> None:
    topic = run.topic("t", partitions=2)
    me = run.node.node_id

    def record(label: str, name: str, *moves: tuple[int, list[int] | None], **fields: Any) -> None:
        partitions = [ReassignablePartition(partition_index=index, replicas=replicas) for index, replicas in moves]
        request = AlterPartitionReassignmentsRequest(topics=[ReassignableTopic(name=name, partitions=partitions)])
        for field, value in fields.items():
            setattr(request, field, value)
        run.record(label, request)

    record("to its current replicas", topic, (0, [me]))
    record("to an unknown broker", topic, (0, [77]))
    record("to no broker", topic, (0, []))
    record("twice to the same broker", topic, (0, [me, me]))
    record("to a negative broker id", topic, (0, [-1]))
    record("of an unknown partition", topic, (9, [me]))
    record("of an unknown topic", "nowhere", (0, [me]))
    record("cancelled where none is in progress", topic, (0, None), (1, None))
    if run.version >= 1:
        record("that would change the number of replicas", topic, (0, [me, 77]), allow_replication_factor_change=False)
    run.record("an empty request", AlterPartitionReassignmentsRequest())


@script(ApiKey.LIST_PARTITION_REASSIGNMENTS, Listeners.BOTH)
def reassignments_listed(run: ScriptRun) -> None:
    topic = run.topic("t")
    run.record("everywhere", ListPartitionReassignmentsRequest())
    for label, name, indexes in (
        ("in a topic", topic, [0]),
        ("in an unknown partition", topic, [9]),
        ("in an unknown topic", "nowhere", [0]),
    ):
        asked = ListPartitionReassignmentsTopics(name=name, partition_indexes=indexes)
        run.record(label, ListPartitionReassignmentsRequest(topics=[asked]))


@script(ApiKey.ALTER_PARTITION, Listeners.CONTROLLER)
def isr_proposals(run: ScriptRun) -> None:
    topic = topic_id(run, run.topic("t"))
    run.names.ids[topic] = "t"
    broker = FencedBroker(run, 100 + run.version)
    epoch = run.call(broker.registration(), on_controller=True).broker_epoch

    def record(
        label: str, *, of: Uuid = topic, broker_epoch: int = epoch, members: tuple[int, ...], **fields: Any
    ) -> None:
        partition = AlterPartitionRequestPartitionData()
        if run.version >= 3:
            partition.new_isr_with_epochs = [BrokerState(broker_id=member) for member in members]
        else:
            partition.new_isr = list(members)
        for name, value in fields.items():
            setattr(partition, name, value)
        request = AlterPartitionRequest(
            broker_id=broker.broker_id,
            broker_epoch=broker_epoch,
            topics=[AlterPartitionRequestTopicData(topic_id=of, partitions=[partition])],
        )
        run.record(label, request)

    record("with an old broker epoch", broker_epoch=epoch - 1, members=(1,))
    record("by a broker that is not the leader", members=(1,))
    record("in a future leader epoch", members=(1,), leader_epoch=5)
    record("in a future partition epoch", members=(1,), partition_epoch=5)
    record("in an old leader epoch", members=(1,), leader_epoch=-1)
    record("of an unknown partition", members=(1,), partition_index=9)
    record("of an unknown topic", of=UNKNOWN_TOPIC_ID, members=(1,))
    broker.unregister()


@script(ApiKey.ASSIGN_REPLICAS_TO_DIRS, Listeners.CONTROLLER)
def replica_directories(run: ScriptRun) -> None:
    topic = topic_id(run, run.topic("t"))
    run.names.ids[topic] = "t"
    broker = FencedBroker(run, 110 + run.version)
    epoch = run.call(broker.registration(), on_controller=True).broker_epoch

    def record(label: str, *, of: Uuid = topic, index: int = 0, broker_epoch: int = epoch) -> None:
        partition = AssignReplicasToDirsRequestPartitionData(partition_index=index)
        data = AssignReplicasToDirsRequestTopicData(topic_id=of, partitions=[partition])
        directory = AssignReplicasToDirsRequestDirectoryData(id=DIRECTORY, topics=[data])
        run.record(
            label,
            AssignReplicasToDirsRequest(broker_id=broker.broker_id, broker_epoch=broker_epoch, directories=[directory]),
        )

    record("with an old broker epoch", broker_epoch=epoch - 1)
    record("by a broker that has no replica")
    record("of an unknown partition", index=9)
    record("of an unknown topic", of=UNKNOWN_TOPIC_ID)
    broker.unregister()
