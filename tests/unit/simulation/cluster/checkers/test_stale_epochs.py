"""The checkers of requests with stale epochs."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import nullcontext

import pytest

from strandline.model.ids import Uuid
from strandline.protocol.apis import ApiKey
from strandline.protocol.messages.brokers import (
    AlterPartitionRequest,
    AlterPartitionRequestPartitionData,
    AlterPartitionRequestTopicData,
    AlterPartitionResponse,
    AlterPartitionResponsePartitionData,
    AlterPartitionResponseTopicData,
    AssignReplicasToDirsRequest,
    AssignReplicasToDirsResponse,
    BrokerHeartbeatRequest,
    BrokerHeartbeatResponse,
    BrokerRegistrationRequest,
    BrokerRegistrationResponse,
    BrokerState,
)
from strandline.protocol.messages.metadata_records import (
    BrokerRegistrationChangeRecord,
    PartitionRecord,
    RegisterBrokerRecord,
    TopicRecord,
)
from strandline.protocol.messages.producers import AllocateProducerIdsRequest, AllocateProducerIdsResponse
from strandline.protocol.types import Message
from strandline.raft.disk.batches import MetadataBatch
from strandline.simulation.cluster.checker import Checker
from strandline.simulation.cluster.checkers.stale_epochs import (
    StaleBrokerEpochsAreRejected,
    StaleIsrProposalsAreRejected,
    StaleRegistrationsAreRejected,
)
from strandline.simulation.cluster.chronicle import Chronicle
from strandline.simulation.cluster.cluster import Cluster
from strandline.simulation.cluster.plan import Layout, Options, draw_plan
from strandline.simulation.cluster.request_tap import ObservedRequest
from strandline.simulation.cluster.violation import Violation
from strandline.simulation.world import Simulation

FIRST, SECOND = Uuid.of(1, 1), Uuid.of(2, 2)
STALE = 77


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    """No node runs; broker 11 is registered for the second time, with epoch 1."""
    plan = draw_plan(1, Options(layout=Layout((1,), (11, 12)), faults=[]))
    with Simulation(1) as simulation:
        cluster = Cluster(simulation, plan, Chronicle(simulation.loop))
        for epoch, incarnation in enumerate((FIRST, SECOND)):
            record = RegisterBrokerRecord(broker_id=11, broker_epoch=epoch, incarnation_id=incarnation)
            cluster.metadata.image.replay_batch(epoch, [record])
        cluster.metadata.image.commit(2)
        yield cluster


def exchange(checker: Checker, request: Message, response: Message) -> None:
    observed = ObservedRequest("node11", "node1", ApiKey(request.api_key or 0), 0, request)
    checker.request_written(observed)
    checker.request_arrived(observed)
    checker.response_written(observed, response)


def altered(error: int) -> AlterPartitionResponse:
    partition = AlterPartitionResponsePartitionData(partition_index=0, error_code=error)
    return AlterPartitionResponse(topics=[AlterPartitionResponseTopicData(topic_id=FIRST, partitions=[partition])])


def alter(epoch: int, follower_epoch: int) -> AlterPartitionRequest:
    isr = [BrokerState(broker_id=11, broker_epoch=follower_epoch)]
    partition = AlterPartitionRequestPartitionData(partition_index=0, new_isr_with_epochs=isr)
    topic = AlterPartitionRequestTopicData(topic_id=FIRST, partitions=[partition])
    return AlterPartitionRequest(broker_id=11, broker_epoch=epoch, topics=[topic])


@pytest.mark.parametrize(
    ("request_", "response"),
    [
        (BrokerHeartbeatRequest(broker_id=11, broker_epoch=0), BrokerHeartbeatResponse()),
        (AssignReplicasToDirsRequest(broker_id=11, broker_epoch=0), AssignReplicasToDirsResponse()),
        (AllocateProducerIdsRequest(broker_id=11, broker_epoch=0), AllocateProducerIdsResponse()),
        (alter(0, 1), altered(0)),
        (alter(1, 0), altered(0)),
    ],
    ids=lambda value: type(value).__name__,
)
def test_accepting_a_stale_broker_epoch_violates_i_7(cluster: Cluster, request_: Message, response: Message) -> None:
    with pytest.raises(Violation, match=r"I-7: node1 accepts .* with epoch 0; its registration has epoch 1"):
        exchange(StaleBrokerEpochsAreRejected(cluster), request_, response)


@pytest.mark.parametrize(
    ("request_", "response"),
    [
        (BrokerHeartbeatRequest(broker_id=11, broker_epoch=0), BrokerHeartbeatResponse(error_code=STALE)),
        (BrokerHeartbeatRequest(broker_id=11, broker_epoch=1), BrokerHeartbeatResponse()),
        (BrokerHeartbeatRequest(broker_id=12, broker_epoch=0), BrokerHeartbeatResponse()),
        (alter(1, 0), altered(STALE)),
        (alter(1, 1), altered(0)),
    ],
    ids=lambda value: type(value).__name__,
)
def test_rejected_requests_and_current_broker_epochs_violate_nothing(
    cluster: Cluster, request_: Message, response: Message
) -> None:
    exchange(StaleBrokerEpochsAreRejected(cluster), request_, response)


def test_a_request_may_be_rejected_for_one_partition_and_accepted_for_another(cluster: Cluster) -> None:
    request, response = alter(1, 0), altered(STALE)
    request.topics[0].partitions.append(AlterPartitionRequestPartitionData(partition_index=1))
    response.topics[0].partitions.append(AlterPartitionResponsePartitionData(partition_index=1))
    exchange(StaleBrokerEpochsAreRejected(cluster), request, response)


@pytest.mark.parametrize(("epoch", "is_old"), [(3, False), (2, True)])
def test_accepting_a_proposal_with_a_stale_partition_epoch_violates_i_7(
    cluster: Cluster, epoch: int, is_old: bool
) -> None:
    image = cluster.metadata.image
    partition = PartitionRecord(
        partition_id=0, topic_id=FIRST, replicas=[11], isr=[11], leader=11, leader_epoch=1, partition_epoch=3
    )
    image.replay_batch(2, [TopicRecord(name="t", topic_id=FIRST), partition])
    image.commit(4)
    request = alter(1, 1)
    request.topics[0].partitions[0].leader_epoch, request.topics[0].partitions[0].partition_epoch = 1, epoch
    exchange(StaleIsrProposalsAreRejected(cluster), request, altered(STALE))
    with (
        pytest.raises(Violation, match=r"I-7: node1 accepts .*\(1, 2\); they were \(1, 3\)")
        if is_old
        else nullcontext()
    ):
        exchange(StaleIsrProposalsAreRejected(cluster), request, altered(0))


def registration(incarnation: Uuid) -> BrokerRegistrationRequest:
    return BrokerRegistrationRequest(broker_id=11, incarnation_id=incarnation)


def two_registrations(cluster: Cluster) -> tuple[StaleRegistrationsAreRejected, ObservedRequest]:
    """Two processes of a broker: the second has registered and sends heartbeats, while a registration request of the
    first is still in flight."""
    checker = StaleRegistrationsAreRejected(cluster)
    late = ObservedRequest("node11", "node1", ApiKey.BROKER_REGISTRATION, 4, registration(FIRST))
    checker.request_written(late)
    cluster.member(11).machine.boots += 1
    exchange(checker, registration(SECOND), BrokerRegistrationResponse(broker_epoch=1))
    exchange(checker, BrokerHeartbeatRequest(broker_id=11, broker_epoch=1), BrokerHeartbeatResponse())
    return checker, late


def test_accepting_a_late_registration_of_a_former_process_violates_i_7(cluster: Cluster) -> None:
    checker, late = two_registrations(cluster)
    checker.request_arrived(late)
    with pytest.raises(Violation, match="I-7: node1 registers an earlier process of broker 11 in place of epoch 1"):
        checker.response_written(late, BrokerRegistrationResponse(broker_epoch=9))


@pytest.mark.parametrize("when", ["before the request arrives", "before it is answered", "and unfenced again"])
def test_a_late_registration_may_replace_a_fenced_one(cluster: Cluster, when: str) -> None:
    checker, late = two_registrations(cluster)
    changes = [BrokerRegistrationChangeRecord(broker_id=11, broker_epoch=1, fenced=1)]
    if when == "and unfenced again":
        changes.append(BrokerRegistrationChangeRecord(broker_id=11, broker_epoch=1, fenced=-1))
    if when == "before the request arrives":
        cluster_commits(checker, changes)
    checker.request_arrived(late)
    if when != "before the request arrives":
        cluster_commits(checker, changes)
    with pytest.raises(Violation) if when == "and unfenced again" else nullcontext():
        checker.response_written(late, BrokerRegistrationResponse(broker_epoch=9))


def cluster_commits(checker: StaleRegistrationsAreRejected, records: list[BrokerRegistrationChangeRecord]) -> None:
    for record in records:
        checker._on_batch(MetadataBatch(2, 3, 0, 0, 0, False, (record,)))


def test_a_late_registration_may_be_rejected_and_a_third_process_may_register(cluster: Cluster) -> None:
    checker, late = two_registrations(cluster)
    checker.request_arrived(late)
    checker.response_written(late, BrokerRegistrationResponse(error_code=STALE))
    cluster.member(11).machine.boots += 1
    exchange(checker, registration(Uuid.of(3, 3)), BrokerRegistrationResponse(broker_epoch=9))
