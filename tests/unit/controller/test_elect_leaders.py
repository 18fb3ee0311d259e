"""ElectLeaders, and the periodic preferred and unclean elections."""

from __future__ import annotations

import pytest

from strandline.controller.decisions import finish
from strandline.controller.elect_leaders import MAX_ELECTIONS_PER_DECISION, LeaderElections, allows_unclean
from strandline.metadata.values import NO_LEADER
from strandline.model.errors import ErrorCode, KafkaError
from strandline.protocol.messages.elections import ElectLeadersRequest, TopicPartitions
from strandline.protocol.messages.metadata_records import ConfigRecord, PartitionChangeRecord
from unit.controller.machine_cluster import MachineCluster

PREFERRED, UNCLEAN = 0, 1


def elect(cluster: MachineCluster, kind: int, *requested: tuple[str, list[int]]) -> dict[tuple[str, int], ErrorCode]:
    """Requests an election; without partitions for all of them."""
    topics = [TopicPartitions(topic=topic, partitions=partitions) for topic, partitions in requested]
    request = ElectLeadersRequest(election_type=kind, topic_partitions=topics or None)
    response = cluster.decide(LeaderElections(cluster.view, cluster.new_changes).elect(request))
    return {
        (topic.topic, result.partition_id): ErrorCode(result.error_code)
        for topic in response.replica_election_results
        for result in topic.partition_result
    }


def led_by(cluster: MachineCluster, leader: int, *, topic: str = "t", index: int = 0) -> None:
    known = cluster.view.topic(topic)
    assert known is not None
    cluster.write(PartitionChangeRecord(topic_id=known.id, partition_id=index, leader=leader))


def rejoin(cluster: MachineCluster, *isr: int, topic: str = "t") -> None:
    known = cluster.view.topic(topic)
    assert known is not None
    for index in range(known.partition_count):
        cluster.write(
            PartitionChangeRecord(
                topic_id=known.id, partition_id=index, isr=list(isr), eligible_leader_replicas=[], last_known_elr=[]
            )
        )


def test_the_preferred_replica_leads_again_on_request() -> None:
    cluster = MachineCluster()
    cluster.topic("t", [1, 2, 3])
    led_by(cluster, 2)
    assert elect(cluster, PREFERRED, ("t", [0])) == {("t", 0): ErrorCode.NONE}
    found = cluster.partition("t")
    assert (found.leader, found.leader_epoch, found.isr) == (1, 2, (1, 2, 3))


def test_an_election_that_is_not_needed_or_not_possible_has_its_own_error_code() -> None:
    cluster = MachineCluster()
    cluster.topic("t", [1, 2], [1, 2])
    cluster.fence(1)
    cluster.topic("u", [2, 3])
    assert elect(cluster, PREFERRED, ("t", [0, 9]), ("u", [0]), ("nowhere", [0])) == {
        ("t", 0): ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE,
        ("t", 9): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ("u", 0): ErrorCode.ELECTION_NOT_NEEDED,
        ("nowhere", 0): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    }
    assert elect(cluster, UNCLEAN, ("t", [1])) == {("t", 1): ErrorCode.ELECTION_NOT_NEEDED}
    cluster.fence(2)
    assert elect(cluster, UNCLEAN, ("t", [1])) == {("t", 1): ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE}


def test_a_request_without_partitions_means_all_and_omits_those_that_need_no_election() -> None:
    cluster = MachineCluster()
    cluster.topic("t", [1, 2], [2, 1])
    cluster.topic("u", [2, 1])
    led_by(cluster, 2, topic="t", index=0)
    led_by(cluster, 1, topic="u", index=0)
    cluster.fence(2)
    cluster.unfence(2)
    found = elect(cluster, PREFERRED)
    assert found == {
        ("t", 1): ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE,
        ("u", 0): ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE,
    }
    rejoin(cluster, 1, 2)
    rejoin(cluster, 1, 2, topic="u")
    assert elect(cluster, PREFERRED) == {("t", 1): ErrorCode.NONE, ("u", 0): ErrorCode.NONE}
    assert elect(cluster, PREFERRED) == {}


@pytest.mark.parametrize("elr", [False, True])
def test_an_unclean_leader_is_elected_on_request_even_where_the_topic_does_not_allow_it(elr: bool) -> None:
    cluster = MachineCluster(elr=elr)
    cluster.topic("t", [1, 2])
    cluster.fence(2)
    cluster.fence(1)
    cluster.unfence(2)
    # With ELR and min.insync.replicas at 1, broker 2 was not eligible either.
    assert cluster.partition("t").leader == NO_LEADER
    assert elect(cluster, UNCLEAN, ("t", [0, 0])) == {("t", 0): ErrorCode.ELECTION_NOT_NEEDED}
    found = cluster.partition("t")
    assert (found.leader, found.isr, found.leader_recovery_state) == (2, (2,), 1)
    assert found.leader_epoch == 2, "given twice, elected once"


def test_an_unknown_election_type_is_rejected() -> None:
    with pytest.raises(KafkaError) as error:
        elect(MachineCluster(), 5)
    assert error.value.code is ErrorCode.INVALID_REQUEST


def test_preferred_leaders_are_elected_in_several_decisions() -> None:
    cluster = MachineCluster()
    cluster.topic("t", *([[1, 2]] * (MAX_ELECTIONS_PER_DECISION + 1)))
    cluster.fence(1)
    cluster.unfence(1)
    rejoin(cluster, 1, 2)
    leaders = LeaderElections(cluster.view, cluster.new_changes)
    assert cluster.decide(leaders.balance()) is True
    assert cluster.decide(leaders.balance()) is False
    known = cluster.view.topic("t")
    assert known is not None
    assert {partition.leader for partition in cluster.view.partitions(known.id)} == {1}
    assert finish(leaders.balance()).records == []


def test_a_preferred_leader_that_cannot_be_elected_does_not_keep_the_task_running() -> None:
    cluster = MachineCluster()
    cluster.topic("t", [1, 2])
    cluster.fence(1)
    decision = finish(LeaderElections(cluster.view, cluster.new_changes).balance())
    assert (decision.response, decision.records) == (False, [])


def test_unclean_leaders_are_elected_where_the_topic_allows_them() -> None:
    cluster = MachineCluster()
    for topic in ("t", "u"):
        cluster.topic(topic, [1, 2])
    cluster.fence(2)
    cluster.fence(1)
    cluster.unfence(2)
    leaders = LeaderElections(cluster.view, cluster.new_changes)
    assert finish(leaders.elect_unclean()).records == []
    cluster.configure("u", "unclean.leader.election.enable", "true")
    assert cluster.decide(leaders.elect_unclean()) is False
    assert (cluster.partition("t").leader, cluster.partition("u").leader) == (NO_LEADER, 2)


@pytest.mark.parametrize("name", ["", "100"])
def test_unclean_leaders_may_be_allowed_for_the_cluster_or_for_the_controllers_own_node(name: str) -> None:
    cluster = MachineCluster()
    cluster.topic("t", [1, 2])
    cluster.fence(2)
    cluster.fence(1)
    cluster.unfence(2)
    allowed = ConfigRecord(resource_type=4, resource_name=name, name="unclean.leader.election.enable", value="true")
    assert allows_unclean([allowed])
    cluster.write(allowed)
    cluster.decide(LeaderElections(cluster.view, cluster.new_changes).elect_unclean())
    assert cluster.partition("t").leader == 2


def test_only_a_config_that_allows_unclean_leaders_starts_an_election() -> None:
    def record(name: str, value: str | None) -> ConfigRecord:
        return ConfigRecord(resource_type=2, resource_name="t", name=name, value=value)

    assert not allows_unclean([])
    assert not allows_unclean([record("unclean.leader.election.enable", "false")])
    assert not allows_unclean([record("unclean.leader.election.enable", None)])
    assert not allows_unclean([record("min.insync.replicas", "2")])
