"""A restarted broker stays in the ELR only if it registers with its previous epoch."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from strandline.model.ids import Uuid
from strandline.protocol.apis import ApiKey
from strandline.protocol.messages import metadata_records as kinds
from strandline.protocol.messages.brokers import BrokerRegistrationRequest
from strandline.raft.disk.batches import MetadataBatch
from strandline.simulation.cluster.checkers.unclean_restarts import UncleanRestartsLoseEligibility
from strandline.simulation.cluster.chronicle import Chronicle
from strandline.simulation.cluster.cluster import Cluster
from strandline.simulation.cluster.metadata_model import MetadataModel
from strandline.simulation.cluster.plan import Layout, Options, draw_plan
from strandline.simulation.cluster.request_tap import ObservedRequest
from strandline.simulation.cluster.violation import Violation
from strandline.simulation.world import Simulation

TOPIC = Uuid.of(1, 1)
FIRST, SECOND = Uuid.of(1, 2), Uuid.of(1, 3)


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    with Simulation(1) as simulation:
        plan = draw_plan(1, Options(layout=Layout((1,), (11, 12)), faults=[]))
        yield Cluster(simulation, plan, Chronicle(simulation.loop))


def restart(cluster: Cluster, *, claim: int, elr: list[int]) -> None:
    """Broker 12 had epoch 7 and was in the ELR; it registers again with `claim` as its previous epoch."""
    model = MetadataModel()
    cluster.metadata.subscribe(model.replay)
    checker = UncleanRestartsLoseEligibility(cluster, model)
    request = BrokerRegistrationRequest(broker_id=12, incarnation_id=SECOND, previous_broker_epoch=claim)
    checker.request_written(ObservedRequest("node12", "node1", ApiKey.BROKER_REGISTRATION, 4, request))
    partition = kinds.PartitionRecord(
        partition_id=0, topic_id=TOPIC, replicas=[11, 12], isr=[11], leader=11, eligible_leader_replicas=[12]
    )
    records = (
        kinds.TopicRecord(name="t", topic_id=TOPIC),
        partition,
        kinds.RegisterBrokerRecord(broker_id=12, broker_epoch=7, incarnation_id=FIRST),
    )
    change = kinds.PartitionChangeRecord(partition_id=0, topic_id=TOPIC, eligible_leader_replicas=elr)
    again = kinds.RegisterBrokerRecord(broker_id=12, broker_epoch=9, incarnation_id=SECOND)
    for batch in (MetadataBatch(5, 8, 1, 0, 0, False, records), MetadataBatch(8, 10, 1, 0, 0, False, (change, again))):
        cluster.metadata.notify(batch)


def test_staying_in_the_elr_after_an_unclean_restart_violates_i_9(cluster: Cluster) -> None:
    with pytest.raises(Violation, match=r"I-9: broker 12 registers with previous epoch -1, which was 7; .*t-0"):
        restart(cluster, claim=-1, elr=[12])


def test_a_clean_restart_may_stay_in_the_elr_and_an_unclean_one_may_leave_it(cluster: Cluster) -> None:
    restart(cluster, claim=7, elr=[12])
    restart(cluster, claim=-1, elr=[])
