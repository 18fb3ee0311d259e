"""Who leads, who is in sync, and where replicas are: elections, reassignments, ISRs, directories."""

from __future__ import annotations

from typing import Any

from cluster.handlers.scripts.brokers import Newcomer
from cluster.handlers.scripts.running import Asked, script
from cluster.handlers.talk import Talk
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

NOWHERE = Uuid(b"topic of nobody ")
DIRECTORY = Uuid(b"another log dir ")


def topic_id(talk: Talk, name: str) -> Uuid:
    found: Uuid = talk.quietly(MetadataRequest(topics=[MetadataRequestTopic(name=name)])).topics[0].topic_id
    return found


@script(ApiKey.ELECT_LEADERS, Asked.BOTH)
def elections(talk: Talk) -> None:
    topic = talk.topic("t", partitions=2)

    def only_ours(answer: ElectLeadersResponse) -> None:
        """Asked about everything, a node speaks of the topics of other scripts as well."""
        answer.replica_election_results = [
            result for result in answer.replica_election_results if result.topic in (topic, "nowhere")
        ]

    def ask(label: str, topics: list[TopicPartitions] | None, election_type: int = 0) -> None:
        request = ElectLeadersRequest(topic_partitions=topics)
        if talk.version >= 1:
            request.election_type = election_type
        talk.ask(label, request, change=only_ours)

    ask("of the preferred leader, who leads", [TopicPartitions(topic=topic, partitions=[0])])
    ask("of a partition that is not there", [TopicPartitions(topic=topic, partitions=[9])])
    ask("of a topic that is not there", [TopicPartitions(topic="nowhere", partitions=[0])])
    ask("of nothing", [])
    ask("of everything", None)
    if talk.version >= 1:
        ask("unclean, of a partition with a leader", [TopicPartitions(topic=topic, partitions=[0, 1])], 1)
        ask("of an unknown kind", [TopicPartitions(topic=topic, partitions=[0])], 7)


@script(ApiKey.ALTER_PARTITION_REASSIGNMENTS, Asked.BOTH)
def reassignments(talk: Talk) -> None:
    topic = talk.topic("t", partitions=2)
    me = talk.target.node_id

    def ask(label: str, name: str, *moves: tuple[int, list[int] | None], **fields: Any) -> None:
        partitions = [ReassignablePartition(partition_index=index, replicas=replicas) for index, replicas in moves]
        request = AlterPartitionReassignmentsRequest(topics=[ReassignableTopic(name=name, partitions=partitions)])
        for field, value in fields.items():
            setattr(request, field, value)
        talk.ask(label, request)

    ask("to where it is", topic, (0, [me]))
    ask("to a broker that is not there", topic, (0, [77]))
    ask("to nobody", topic, (0, []))
    ask("twice to the same", topic, (0, [me, me]))
    ask("to a broker of negative id", topic, (0, [-1]))
    ask("of a partition that is not there", topic, (9, [me]))
    ask("of a topic that is not there", "nowhere", (0, [me]))
    ask("taken back where there is none", topic, (0, None), (1, None))
    if talk.version >= 1:
        ask("that would change the number of replicas", topic, (0, [me, 77]), allow_replication_factor_change=False)
    talk.ask("of nothing", AlterPartitionReassignmentsRequest())


@script(ApiKey.LIST_PARTITION_REASSIGNMENTS, Asked.BOTH)
def what_is_being_moved(talk: Talk) -> None:
    topic = talk.topic("t")
    talk.ask("everywhere", ListPartitionReassignmentsRequest())
    for label, name, indexes in (
        ("in a topic", topic, [0]),
        ("in a partition that is not there", topic, [9]),
        ("in a topic that is not there", "nowhere", [0]),
    ):
        asked = ListPartitionReassignmentsTopics(name=name, partition_indexes=indexes)
        talk.ask(label, ListPartitionReassignmentsRequest(topics=[asked]))


@script(ApiKey.ALTER_PARTITION, Asked.CONTROLLER)
def proposals_of_an_isr(talk: Talk) -> None:
    topic = topic_id(talk, talk.topic("t"))
    talk.names.ids[topic] = "t"
    newcomer = Newcomer(talk, 100 + talk.version)
    epoch = talk.quietly(newcomer.registration(), on_controller=True).broker_epoch

    def ask(
        label: str, *, of: Uuid = topic, broker_epoch: int = epoch, members: tuple[int, ...], **fields: Any
    ) -> None:
        partition = AlterPartitionRequestPartitionData()
        if talk.version >= 3:
            partition.new_isr_with_epochs = [BrokerState(broker_id=member) for member in members]
        else:
            partition.new_isr = list(members)
        for name, value in fields.items():
            setattr(partition, name, value)
        request = AlterPartitionRequest(
            broker_id=newcomer.broker_id,
            broker_epoch=broker_epoch,
            topics=[AlterPartitionRequestTopicData(topic_id=of, partitions=[partition])],
        )
        talk.ask(label, request)

    ask("with an old broker epoch", broker_epoch=epoch - 1, members=(1,))
    ask("by somebody who does not lead", members=(1,))
    ask("in a leader epoch to come", members=(1,), leader_epoch=5)
    ask("in a partition epoch to come", members=(1,), partition_epoch=5)
    ask("in an old leader epoch", members=(1,), leader_epoch=-1)
    ask("of a partition that is not there", members=(1,), partition_index=9)
    ask("of a topic that is not there", of=NOWHERE, members=(1,))
    newcomer.gone()


@script(ApiKey.ASSIGN_REPLICAS_TO_DIRS, Asked.CONTROLLER)
def directories_of_replicas(talk: Talk) -> None:
    topic = topic_id(talk, talk.topic("t"))
    talk.names.ids[topic] = "t"
    newcomer = Newcomer(talk, 110 + talk.version)
    epoch = talk.quietly(newcomer.registration(), on_controller=True).broker_epoch

    def ask(label: str, *, of: Uuid = topic, index: int = 0, broker_epoch: int = epoch) -> None:
        partition = AssignReplicasToDirsRequestPartitionData(partition_index=index)
        data = AssignReplicasToDirsRequestTopicData(topic_id=of, partitions=[partition])
        directory = AssignReplicasToDirsRequestDirectoryData(id=DIRECTORY, topics=[data])
        talk.ask(
            label,
            AssignReplicasToDirsRequest(
                broker_id=newcomer.broker_id, broker_epoch=broker_epoch, directories=[directory]
            ),
        )

    ask("with an old broker epoch", broker_epoch=epoch - 1)
    ask("by a broker that has no replica")
    ask("of a partition that is not there", index=9)
    ask("of a topic that is not there", of=NOWHERE)
    newcomer.gone()
