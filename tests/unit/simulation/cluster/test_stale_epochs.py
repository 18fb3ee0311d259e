"""Requests of brokers that are not what they were: refused, or found out."""

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
from strandline.protocol.messages.metadata_records import PartitionRecord, RegisterBrokerRecord, TopicRecord
from strandline.protocol.messages.producers import AllocateProducerIdsRequest, AllocateProducerIdsResponse
from strandline.protocol.types import Message
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
    """Nobody runs; broker 11 is registered for the second time, with epoch 1."""
    plan = draw_plan(1, Options(layout=Layout((1,), (11, 12)), faults=[]))
    with Simulation(1) as simulation:
        cluster = Cluster(simulation, plan, Chronicle(simulation.loop))
        for epoch, incarnation in enumerate((FIRST, SECOND)):
            record = RegisterBrokerRecord(broker_id=11, broker_epoch=epoch, incarnation_id=incarnation)
            cluster.ledger.image.replay_batch(epoch, [record])
        cluster.ledger.image.commit(2)
        yield cluster


def ask(checker: Checker, request: Message, answer: Message) -> None:
    asked = ObservedRequest("node11", "node1", ApiKey(request.api_key or 0), 0, request)
    checker.asked(asked)
    checker.arrived(asked)
    checker.answered(asked, answer)


def altered(error: int) -> AlterPartitionResponse:
    partition = AlterPartitionResponsePartitionData(partition_index=0, error_code=error)
    return AlterPartitionResponse(topics=[AlterPartitionResponseTopicData(topic_id=FIRST, partitions=[partition])])


def alter(epoch: int, follower_epoch: int) -> AlterPartitionRequest:
    isr = [BrokerState(broker_id=11, broker_epoch=follower_epoch)]
    partition = AlterPartitionRequestPartitionData(partition_index=0, new_isr_with_epochs=isr)
    topic = AlterPartitionRequestTopicData(topic_id=FIRST, partitions=[partition])
    return AlterPartitionRequest(broker_id=11, broker_epoch=epoch, topics=[topic])


@pytest.mark.parametrize(
    ("request_", "answer"),
    [
        (BrokerHeartbeatRequest(broker_id=11, broker_epoch=0), BrokerHeartbeatResponse()),
        (AssignReplicasToDirsRequest(broker_id=11, broker_epoch=0), AssignReplicasToDirsResponse()),
        (AllocateProducerIdsRequest(broker_id=11, broker_epoch=0), AllocateProducerIdsResponse()),
        (alter(0, 1), altered(0)),
        (alter(1, 0), altered(0)),
    ],
    ids=lambda value: type(value).__name__,
)
def test_nobody_speaks_with_the_epoch_of_an_earlier_registration(
    cluster: Cluster, request_: Message, answer: Message
) -> None:
    with pytest.raises(Violation, match=r"I-7: node1 accepts .* with epoch 0; it had registered with epoch 1"):
        ask(StaleBrokerEpochsAreRejected(cluster), request_, answer)


@pytest.mark.parametrize(
    ("request_", "answer"),
    [
        (BrokerHeartbeatRequest(broker_id=11, broker_epoch=0), BrokerHeartbeatResponse(error_code=STALE)),
        (BrokerHeartbeatRequest(broker_id=11, broker_epoch=1), BrokerHeartbeatResponse()),
        (BrokerHeartbeatRequest(broker_id=12, broker_epoch=0), BrokerHeartbeatResponse()),
        (alter(1, 0), altered(STALE)),
        (alter(1, 1), altered(0)),
    ],
    ids=lambda value: type(value).__name__,
)
def test_who_is_refused_or_speaks_as_what_it_is_breaks_nothing(
    cluster: Cluster, request_: Message, answer: Message
) -> None:
    ask(StaleBrokerEpochsAreRejected(cluster), request_, answer)


def test_a_word_that_is_refused_in_one_place_may_be_taken_in_another(cluster: Cluster) -> None:
    request, answer = alter(1, 0), altered(STALE)
    request.topics[0].partitions.append(AlterPartitionRequestPartitionData(partition_index=1))
    answer.topics[0].partitions.append(AlterPartitionResponsePartitionData(partition_index=1))
    ask(StaleBrokerEpochsAreRejected(cluster), request, answer)


@pytest.mark.parametrize(("epoch", "is_old"), [(3, False), (2, True)])
def test_an_isr_is_proposed_for_a_partition_as_it_is(cluster: Cluster, epoch: int, is_old: bool) -> None:
    image = cluster.ledger.image
    partition = PartitionRecord(
        partition_id=0, topic_id=FIRST, replicas=[11], isr=[11], leader=11, leader_epoch=1, partition_epoch=3
    )
    image.replay_batch(2, [TopicRecord(name="t", topic_id=FIRST), partition])
    image.commit(4)
    request = alter(1, 1)
    request.topics[0].partitions[0].leader_epoch, request.topics[0].partitions[0].partition_epoch = 1, epoch
    ask(StaleIsrProposalsAreRejected(cluster), request, altered(STALE))
    with (
        pytest.raises(Violation, match=r"I-7: node1 adopts .*\(1, 2\); they were \(1, 3\)") if is_old else nullcontext()
    ):
        ask(StaleIsrProposalsAreRejected(cluster), request, altered(0))


def registration(incarnation: Uuid) -> BrokerRegistrationRequest:
    return BrokerRegistrationRequest(broker_id=11, incarnation_id=incarnation)


def living(cluster: Cluster) -> tuple[StaleRegistrationsAreRejected, ObservedRequest]:
    """Two processes have registered; the second is heard, and what the first had asked is still on its way."""
    checker = StaleRegistrationsAreRejected(cluster)
    late = ObservedRequest("node11", "node1", ApiKey.BROKER_REGISTRATION, 4, registration(FIRST))
    checker.asked(late)
    cluster.member(11).machine.boots += 1
    ask(checker, registration(SECOND), BrokerRegistrationResponse(broker_epoch=1))
    ask(checker, BrokerHeartbeatRequest(broker_id=11, broker_epoch=1), BrokerHeartbeatResponse())
    return checker, late


def test_the_late_registration_of_a_predecessor_does_not_replace_one_that_is_heard(cluster: Cluster) -> None:
    checker, late = living(cluster)
    checker.arrived(late)
    with pytest.raises(Violation, match="I-7: node1 registers an earlier process of broker 11 in the place of epoch 1"):
        checker.answered(late, BrokerRegistrationResponse(broker_epoch=9))


def test_it_may_be_refused_and_a_third_process_may_follow(cluster: Cluster) -> None:
    checker, late = living(cluster)
    checker.arrived(late)
    checker.answered(late, BrokerRegistrationResponse(error_code=STALE))
    cluster.member(11).machine.boots += 1
    ask(checker, registration(Uuid.of(3, 3)), BrokerRegistrationResponse(broker_epoch=9))
