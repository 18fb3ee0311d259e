"""CreateTopics, CreatePartitions and DeleteTopics."""

from __future__ import annotations

from typing import Any

import pytest

from strandline.controller.decisions import finish
from strandline.controller.settings import ControllerSettings
from strandline.model.errors import ErrorCode, KafkaError
from strandline.model.ids import DIRECTORY_UNASSIGNED, ZERO_UUID, Uuid
from strandline.protocol.messages.metadata_records import (
    BrokerRegistrationChangeRecord,
    ClearElrRecord,
    ConfigRecord,
    PartitionRecord,
    RegisterBrokerRecord,
    TopicRecord,
)
from strandline.protocol.messages.topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreatableTopicResult,
    CreatePartitionsAssignment,
    CreatePartitionsRequest,
    CreatePartitionsTopic,
    CreateTopicsRequest,
    DeleteTopicsRequest,
    DeleteTopicState,
)
from unit.controller.machine_cluster import MachineCluster, directory


def new_topic(name: str = "t", partitions: int = -1, factor: int = -1, **configs: str | None) -> CreatableTopic:
    return CreatableTopic(
        name=name,
        num_partitions=partitions,
        replication_factor=factor,
        configs=[CreatableTopicConfig(name=key.replace("_", "."), value=value) for key, value in configs.items()],
    )


def by_hand(name: str, *assignments: tuple[int, list[int]], partitions: int = -1, factor: int = -1) -> CreatableTopic:
    return CreatableTopic(
        name=name,
        num_partitions=partitions,
        replication_factor=factor,
        assignments=[CreatableReplicaAssignment(partition_index=i, broker_ids=b) for i, b in assignments],
    )


def create(cluster: MachineCluster, *topics: CreatableTopic, **options: Any) -> list[CreatableTopicResult]:
    return cluster.decide(cluster.topics.create(CreateTopicsRequest(topics=list(topics), **options))).topics


def test_the_records_of_a_topic_are_its_own_then_its_configs_then_its_partitions() -> None:
    cluster = MachineCluster()
    request = CreateTopicsRequest(topics=[new_topic("t", 2, 3, retention_ms="5", cleanup_policy="compact")])
    decision = finish(cluster.topics.create(request))
    assert [type(record) for record in decision.records] == [
        TopicRecord,
        ConfigRecord,
        ConfigRecord,
        PartitionRecord,
        PartitionRecord,
    ]
    partition = decision.records[3]
    assert isinstance(partition, PartitionRecord)
    assert sorted(partition.replicas) == sorted(partition.isr) == [1, 2, 3]
    assert partition.leader == partition.replicas[0]
    assert (partition.leader_epoch, partition.partition_epoch) == (0, 0)
    assert partition.directories == [directory(replica) for replica in partition.replicas]
    response = decision.response.topics[0]
    assert (response.error_code, response.error_message) == (0, None)
    assert (response.num_partitions, response.replication_factor) == (2, 3)
    assert response.topic_id == partition.topic_id != ZERO_UUID
    described = {config.name: (config.value, config.config_source) for config in response.configs or []}
    assert described["retention.ms"] == ("5", 1)
    assert described["cleanup.policy"] == ("compact", 1)
    assert described["segment.bytes"][1] == 5


def test_partitions_and_replication_factor_default_to_the_configs() -> None:
    cluster = MachineCluster(
        settings=ControllerSettings(100, "cluster", num_partitions=4, default_replication_factor=2)
    )
    (response,) = create(cluster, new_topic("t"))
    assert (response.num_partitions, response.replication_factor) == (4, 2)


def test_validating_only_has_the_same_response_and_writes_nothing() -> None:
    cluster = MachineCluster()
    decision = finish(
        cluster.topics.create(
            CreateTopicsRequest(topics=[new_topic("t", 2, 2), new_topic("u", 0, 1)], validate_only=True)
        )
    )
    assert [topic.error_code for topic in decision.response.topics] == [0, ErrorCode.INVALID_PARTITIONS]
    assert decision.records == []


def test_an_invalid_topic_does_not_affect_the_others() -> None:
    cluster = MachineCluster()
    responses = create(cluster, new_topic("good", 1, 1), new_topic("bad", 1, 9), new_topic("fine", 1, 1))
    assert [response.name for response in responses] == ["good", "bad", "fine"]
    assert [response.error_code for response in responses] == [0, ErrorCode.INVALID_REPLICATION_FACTOR, 0]
    assert [topic.name for topic in cluster.view.topics()] == ["fine", "good"]


def test_a_name_given_twice_is_rejected_once() -> None:
    cluster = MachineCluster()
    responses = create(cluster, new_topic("t", 1, 1), new_topic("t", 1, 1), new_topic("u", 1, 1))
    assert [(response.name, response.error_code) for response in responses] == [
        ("t", ErrorCode.INVALID_REQUEST),
        ("u", 0),
    ]
    assert responses[0].error_message == "the topic is given twice"


@pytest.mark.parametrize(
    ("topic", "code"),
    [
        (new_topic(""), ErrorCode.INVALID_TOPIC_EXCEPTION),
        (new_topic("."), ErrorCode.INVALID_TOPIC_EXCEPTION),
        (new_topic(".."), ErrorCode.INVALID_TOPIC_EXCEPTION),
        (new_topic("x" * 250), ErrorCode.INVALID_TOPIC_EXCEPTION),
        (new_topic("with space"), ErrorCode.INVALID_TOPIC_EXCEPTION),
        (new_topic("sl/ash"), ErrorCode.INVALID_TOPIC_EXCEPTION),
        (new_topic("line\n"), ErrorCode.INVALID_TOPIC_EXCEPTION),
        (new_topic("__cluster_metadata"), ErrorCode.INVALID_REQUEST),
        (new_topic("there"), ErrorCode.TOPIC_ALREADY_EXISTS),
        (new_topic("dot_ted"), ErrorCode.INVALID_TOPIC_EXCEPTION),
        (new_topic("t", 0), ErrorCode.INVALID_PARTITIONS),
        (new_topic("t", -2), ErrorCode.INVALID_PARTITIONS),
        (new_topic("t", 1, 0), ErrorCode.INVALID_REPLICATION_FACTOR),
        (new_topic("t", 1, -2), ErrorCode.INVALID_REPLICATION_FACTOR),
        (new_topic("t", 1, 4), ErrorCode.INVALID_REPLICATION_FACTOR),
        (new_topic("t", 1, 1, no_such_key="1"), ErrorCode.INVALID_CONFIG),
        (new_topic("t", 1, 1, retention_ms="soon"), ErrorCode.INVALID_CONFIG),
        (new_topic("t", 1, 1, retention_ms=None), ErrorCode.INVALID_CONFIG),
        (by_hand("t", (0, [1]), partitions=1), ErrorCode.INVALID_REQUEST),
        (by_hand("t", (0, [1]), factor=1), ErrorCode.INVALID_REQUEST),
        (by_hand("t", (0, [1]), (0, [2])), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (by_hand("t", (0, [1]), (2, [2])), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (by_hand("t", (1, [1])), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (by_hand("t", (0, [])), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (by_hand("t", (0, [1, 1])), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (by_hand("t", (0, [1, 2]), (1, [1])), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (by_hand("t", (0, [1, 9])), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (by_hand("t", (0, [3])), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
    ],
)
def test_an_invalid_topic_is_rejected_with_its_error_code(topic: CreatableTopic, code: ErrorCode) -> None:
    cluster = MachineCluster(2)
    cluster.register(3, fenced=True)
    create(cluster, new_topic("there", 1, 1), new_topic("dot.ted", 1, 1))
    (response,) = create(cluster, topic)
    assert ErrorCode(response.error_code) is code
    assert response.error_message
    assert cluster.view.topic("t") is None


def test_names_collide_with_existing_topics_only_as_in_kafka() -> None:
    cluster = MachineCluster()
    assert [response.error_code for response in create(cluster, new_topic("a.b", 1, 1), new_topic("a_b", 1, 1))] == [
        0,
        0,
    ]
    (response,) = create(cluster, new_topic("a_b.c", 1, 1))
    assert response.error_code == 0
    (response,) = create(cluster, new_topic("a.b_c", 1, 1))
    assert "the existing a_b.c differ" in (response.error_message or "")


def test_a_manual_assignment_is_kept_and_only_active_brokers_are_in_sync() -> None:
    cluster = MachineCluster(2)
    cluster.register(3, fenced=True)
    create(cluster, by_hand("t", (1, [3, 1]), (0, [2, 3])))
    assert cluster.partition("t", 0).replicas == (2, 3)
    assert cluster.partition("t", 1).replicas == (3, 1)
    assert (cluster.partition("t", 1).isr, cluster.partition("t", 1).leader) == ((1,), 1)


def test_a_replica_on_a_broker_with_several_directories_starts_unassigned() -> None:
    cluster = MachineCluster(0)
    cluster.write(
        RegisterBrokerRecord(
            broker_id=1, fenced=False, rack=None, log_dirs=[directory(1), directory(2)], broker_epoch=5
        )
    )
    create(cluster, new_topic("t", 1, 1))
    assert cluster.partition("t").directories == (DIRECTORY_UNASSIGNED,)


def test_a_broker_that_shuts_down_or_is_cordoned_gets_no_new_replicas() -> None:
    cluster = MachineCluster(3)
    cluster.write(
        BrokerRegistrationChangeRecord(broker_id=1, broker_epoch=cluster.epoch(1), in_controlled_shutdown=1),
        BrokerRegistrationChangeRecord(broker_id=2, broker_epoch=cluster.epoch(2), cordoned_log_dirs=[directory(2)]),
    )
    create(cluster, new_topic("t", 5, 1))
    known = cluster.view.topic("t")
    assert known is not None
    assert {partition.leader for partition in cluster.view.partitions(known.id)} == {3}


def test_without_live_brokers_no_topic_is_created() -> None:
    cluster = MachineCluster(0)
    (response,) = create(cluster, new_topic("t", 1, 1))
    assert response.error_code == ErrorCode.INVALID_REPLICATION_FACTOR
    assert "1 replicas cannot be placed" in (response.error_message or "")


def test_a_topic_with_its_own_min_insync_replicas_clears_the_elr() -> None:
    request = CreateTopicsRequest(topics=[new_topic("t", 1, 1, min_insync_replicas="2")])
    with_elr = finish(MachineCluster(elr=True).topics.create(request)).records
    without = finish(MachineCluster(elr=False).topics.create(request)).records
    assert [type(r) for r in with_elr] == [TopicRecord, ConfigRecord, ClearElrRecord, PartitionRecord]
    assert [type(r) for r in without] == [TopicRecord, ConfigRecord, PartitionRecord]


def test_too_many_partitions_in_one_request_are_rejected_as_a_whole() -> None:
    with pytest.raises(KafkaError, match="too many partitions") as error:
        create(MachineCluster(), new_topic("a", 6000, 1), new_topic("b", 4001, 1))
    assert error.value.code is ErrorCode.POLICY_VIOLATION


def test_creating_a_large_topic_yields_many_times() -> None:
    steps = MachineCluster().topics.create(CreateTopicsRequest(topics=[new_topic("t", 5000, 3)]))
    yields = sum(1 for _ in steps)
    assert yields >= 40


def extend(cluster: MachineCluster, *topics: CreatePartitionsTopic, **options: Any) -> list[tuple[str, ErrorCode]]:
    response = cluster.decide(cluster.topics.create_partitions(CreatePartitionsRequest(topics=list(topics), **options)))
    return [(result.name, ErrorCode(result.error_code)) for result in response.results]


def more(name: str, count: int, *assignments: list[int]) -> CreatePartitionsTopic:
    given = [CreatePartitionsAssignment(broker_ids=brokers) for brokers in assignments] if assignments else None
    return CreatePartitionsTopic(name=name, count=count, assignments=given)


def test_partitions_are_added_after_the_existing_ones_with_the_same_factor() -> None:
    cluster = MachineCluster()
    cluster.topic("t", [1, 2])
    assert extend(cluster, more("t", 3)) == [("t", ErrorCode.NONE)]
    known = cluster.view.topic("t")
    assert known is not None
    assert known.partition_count == 3
    assert [len(partition.replicas) for partition in cluster.view.partitions(known.id)] == [2, 2, 2]


@pytest.mark.parametrize(
    ("topic", "code"),
    [
        (more("nowhere", 3), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (more("t", 2), ErrorCode.INVALID_PARTITIONS),
        (more("t", 1), ErrorCode.INVALID_PARTITIONS),
        (more("t", -1), ErrorCode.INVALID_PARTITIONS),
        (more("t", 20_000), ErrorCode.POLICY_VIOLATION),
        (more("t", 4, [1, 2]), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (CreatePartitionsTopic(name="t", count=3, assignments=[]), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (more("t", 3, [1]), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (more("t", 3, [1, 1]), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (more("t", 3, [1, 8]), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
    ],
)
def test_an_invalid_create_partitions_is_rejected_with_its_error_code(
    topic: CreatePartitionsTopic, code: ErrorCode
) -> None:
    cluster = MachineCluster()
    cluster.topic("t", [1, 2], [2, 3])
    assert extend(cluster, topic) == [(topic.name, code)]
    known = cluster.view.topic("t")
    assert known is not None
    assert known.partition_count == 2


def test_added_partitions_can_have_a_manual_assignment_and_be_only_validated() -> None:
    cluster = MachineCluster()
    cluster.topic("t", [1, 2])
    assert extend(cluster, more("t", 2, [3, 1]), validate_only=True) == [("t", ErrorCode.NONE)]
    assert extend(cluster, more("t", 2, [3, 1])) == [("t", ErrorCode.NONE)]
    assert cluster.partition("t", 1).replicas == (3, 1)
    assert extend(cluster, more("t", 5), more("t", 6)) == [("t", ErrorCode.INVALID_REQUEST)]


def delete(
    cluster: MachineCluster, *topics: DeleteTopicState, version: int = 6
) -> list[tuple[str | None, Uuid, ErrorCode]]:
    request = DeleteTopicsRequest(topics=list(topics))
    response = cluster.decide(cluster.topics.delete(request, version))
    return [(r.name, r.topic_id, ErrorCode(r.error_code)) for r in response.responses]


def test_topics_are_deleted_by_name_or_by_id() -> None:
    cluster = MachineCluster()
    first, second = cluster.topic("a", [1]), cluster.topic("b", [1])
    assert delete(cluster, DeleteTopicState(name="a"), DeleteTopicState(topic_id=second)) == [
        ("a", first, ErrorCode.NONE),
        ("b", second, ErrorCode.NONE),
    ]
    assert cluster.view.topics() == []


def test_older_versions_delete_by_name_only() -> None:
    cluster = MachineCluster()
    topic_id = cluster.topic("a", [1])
    response = cluster.decide(cluster.topics.delete(DeleteTopicsRequest(topic_names=["a", "x"]), 5))
    assert [(r.name, r.topic_id, r.error_code) for r in response.responses] == [
        ("a", topic_id, 0),
        ("x", ZERO_UUID, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    ]


def test_an_invalid_deletion_is_rejected_with_its_error_code() -> None:
    cluster = MachineCluster()
    topic_id, unknown = cluster.topic("a", [1]), Uuid.of(4, 4444)
    asked_for = [
        DeleteTopicState(name="x"),
        DeleteTopicState(topic_id=unknown),
        DeleteTopicState(name="a", topic_id=topic_id),
        DeleteTopicState(),
        DeleteTopicState(name="twice"),
        DeleteTopicState(name="twice"),
    ]
    assert [code for _, _, code in delete(cluster, *asked_for)] == [
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.INVALID_REQUEST,
        ErrorCode.INVALID_REQUEST,
        ErrorCode.INVALID_REQUEST,
    ]
    assert cluster.view.topic("a") is not None


def test_a_topic_given_by_name_and_by_id_is_rejected_once_and_stays() -> None:
    cluster = MachineCluster()
    topic_id = cluster.topic("a", [1])
    responses = delete(cluster, DeleteTopicState(name="a"), DeleteTopicState(topic_id=topic_id))
    assert responses == [("a", topic_id, ErrorCode.INVALID_REQUEST)]
    assert cluster.view.topic("a") is not None


@pytest.mark.parametrize(("version", "code"), [(2, ErrorCode.INVALID_REQUEST), (6, ErrorCode.TOPIC_DELETION_DISABLED)])
def test_deletion_can_be_disabled(version: int, code: ErrorCode) -> None:
    cluster = MachineCluster(settings=ControllerSettings(100, "cluster", delete_topic_enable=False))
    with pytest.raises(KafkaError) as error:
        delete(cluster, DeleteTopicState(name="a"), version=version)
    assert error.value.code is code


def test_a_name_is_free_again_as_soon_as_its_topic_is_deleted() -> None:
    cluster = MachineCluster()
    old = cluster.topic("a", [1])
    delete(cluster, DeleteTopicState(name="a"))
    assert cluster.topic("a", [1]) != old


def test_checking_many_topics_and_assignments_yields_many_times() -> None:
    cluster = MachineCluster()
    made = sum(
        1 for _ in cluster.topics.create(CreateTopicsRequest(topics=[by_hand("t", *[(n, [1]) for n in range(1000)])]))
    )
    assert made == 10, "a yield per batch of checks and of records"
    cluster.topic("t", [1])
    request = CreatePartitionsRequest(topics=[more("t", 1001, *([[1]] * 1000))])
    assert sum(1 for _ in cluster.topics.create_partitions(request)) == 10
    names = [DeleteTopicState(name=f"t{number}") for number in range(1000)]
    assert sum(1 for _ in cluster.topics.delete(DeleteTopicsRequest(topics=names), 6)) == 5
