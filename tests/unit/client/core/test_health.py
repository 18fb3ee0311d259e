from __future__ import annotations

from strandline.client.core.cluster_metadata import PartitionMetadata
from strandline.client.core.descriptions import (
    BrokerDescription,
    ClusterDescription,
    QuorumDescription,
    QuorumMember,
    Reassignment,
    TopicDescription,
)
from strandline.client.core.health import MAX_FETCH_AGE_MS, Health, assess
from strandline.model.ids import ZERO_UUID, Endpoint, TopicPartition

NOW_MS = 1_700_000_000_000


def cluster(fenced: tuple[int, ...] = ()) -> ClusterDescription:
    brokers = [BrokerDescription(number, Endpoint("h", 1), None, number in fenced) for number in (1, 2, 3)]
    return ClusterDescription("c", 1, brokers)


def member(number: int, offset: int = 100, silent_ms: int = 0) -> QuorumMember:
    return QuorumMember(number, ZERO_UUID, offset, NOW_MS - silent_ms, NOW_MS - silent_ms)


def quorum(*voters: QuorumMember, leader: int = 1) -> QuorumDescription:
    return QuorumDescription(leader, 5, 100, list(voters) or [member(1), member(2), member(3)], [], {})


def topic(*partitions: PartitionMetadata) -> TopicDescription:
    return TopicDescription("t", ZERO_UUID, False, list(partitions))


WHOLE = PartitionMetadata(0, 1, 3, (1, 2, 3), (1, 2, 3))


def judged(health: Health) -> list[str]:
    return [problem.partition(":")[0] for problem in health.problems]


def test_a_cluster_without_deviations_is_healthy() -> None:
    health = assess(cluster(), quorum(), [topic(WHOLE)])
    assert health.is_healthy and health.notes == []
    assert health.facts["ActiveControllerCount"] == 1 and health.facts["ActiveBrokerCount"] == 3
    assert (health.facts["GlobalTopicCount"], health.facts["GlobalPartitionCount"]) == (1, 1)


def test_a_fenced_broker_is_a_problem() -> None:
    health = assess(cluster(fenced=(2,)), quorum(), [])
    assert judged(health) == ["fenced brokers"] and health.facts["FencedBrokerCount"] == 1
    assert assess(cluster(fenced=(1, 2, 3)), quorum(), []).problems[-1] == "no broker is active"


def test_a_partition_without_leader_is_offline() -> None:
    health = assess(cluster(), quorum(), [topic(PartitionMetadata(0, -1, 3, (1, 2), (1, 2)))])
    assert health.problems == ["partitions without a leader: t-0"]
    assert health.facts["OfflinePartitionsCount"] == 1


def test_a_replica_out_of_sync_is_a_problem_unless_it_is_being_added() -> None:
    lagging = topic(PartitionMetadata(0, 1, 3, (1, 2, 3), (1, 2)))
    assert judged(assess(cluster(), quorum(), [lagging])) == ["under-replicated partitions"]
    coming = Reassignment(TopicPartition("t", 0), (1, 2, 3), (3,), ())
    health = assess(cluster(), quorum(), [lagging], [coming])
    assert health.is_healthy and health.notes == ["replicas of 1 partitions are being moved"]


def test_a_leader_that_is_not_preferred_is_only_noted() -> None:
    health = assess(cluster(), quorum(), [topic(PartitionMetadata(0, 2, 3, (1, 2), (1, 2)))])
    assert health.is_healthy and health.facts["PreferredReplicaImbalanceCount"] == 1
    assert health.notes == ["partitions not led by their preferred replica: t-0"]


def test_a_voter_that_does_not_fetch_is_a_problem_and_a_slow_one_is_not() -> None:
    slow = assess(cluster(), quorum(member(1), member(2, 60, MAX_FETCH_AGE_MS), member(3)), [])
    assert slow.is_healthy
    assert (slow.facts["MaxFollowerLag"], slow.facts["MaxFollowerLagTimeMs"]) == (40, MAX_FETCH_AGE_MS)
    silent = assess(cluster(), quorum(member(1), member(2, 60, MAX_FETCH_AGE_MS + 1), member(3)), [])
    assert silent.problems == ["voters that do not fetch from the active controller: 2"]


def test_a_voter_that_has_never_fetched_lags_by_the_whole_log() -> None:
    never = QuorumMember(2, ZERO_UUID, -1, -1, -1)
    health = assess(cluster(), quorum(member(1), never), [])
    assert (health.facts["MaxFollowerLag"], health.facts["MaxFollowerLagTimeMs"]) == (101, -1)
    assert judged(health) == ["voters that do not fetch from the active controller"]


def test_a_missing_active_controller_is_a_problem() -> None:
    for unknown in ("no controller responds", quorum(leader=-1)):
        health = assess(cluster(), unknown, [topic(WHOLE)])
        assert health.facts["ActiveControllerCount"] == 0
        assert judged(health) == ["no active controller"]


def test_a_long_list_of_problems_is_shortened() -> None:
    many = topic(*(PartitionMetadata(index, -1, 0, (1,), (1,)) for index in range(9)))
    assert assess(cluster(), quorum(), [many]).problems == [
        "partitions without a leader: t-0, t-1, t-2, t-3, t-4 and 4 more"
    ]


def test_metrics_of_the_nodes_are_part_of_the_facts() -> None:
    shown = {
        1: {
            "kafka_controller_kafkacontroller_lastappliedrecordoffset": 99.0,
            "kafka_controller_kafkacontroller_metadataerrorcount": 2.0,
            'kafka_controller_controllereventmanager_eventqueuetimems{quantile="0.99"}': 7.0,
            "kafka_server_replicamanager_underminisrpartitioncount": 1.0,
        },
        2: {
            "kafka_controller_kafkacontroller_lastappliedrecordoffset": 42.0,
            "kafka_server_replicamanager_underminisrpartitioncount": 3.0,
        },
        3: {},
    }
    health = assess(cluster(), quorum(), [topic(WHOLE)], metrics=shown)
    assert (health.facts["LastAppliedRecordOffset"], health.facts["EventQueueTimeMs"]) == (99, 7)
    assert (health.facts["UnderMinIsrPartitionCount"], health.facts["MetadataErrorCount"]) == (4, 2)
    assert health.notes == ["the active controller had errors in metadata: see the log of node 1"]


def test_a_cluster_without_metrics_pages_is_assessed_without_metrics() -> None:
    facts = assess(cluster(), quorum(), [topic(WHOLE)], metrics={1: {}, 2: {}, 3: {}}).facts
    assert "EventQueueTimeMs" not in facts and "UnderMinIsrPartitionCount" not in facts
