"""Admin requests: which node receives them, which errors are retried, and how responses are read."""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import pytest

from strandline.client.admin.elections import Election
from strandline.client.admin.features import UpgradeType
from strandline.client.client import Client
from strandline.client.core.descriptions import QuorumDescription, Reassignment
from strandline.model.errors import ErrorCode, KafkaError
from strandline.model.ids import Endpoint, TopicPartition, Uuid
from strandline.protocol.apis import API, ApiKey
from strandline.protocol.messages import api_versions, cluster, elections, metadata, quorum, reassignments
from strandline.protocol.types import Message
from strandline.runtime.world import World
from strandline.simulation.world import Simulation
from unit.client.fake_broker import PORT, FakeBroker

T = TypeVar("T")
DIRECTORY = Uuid.parse("JEXY6aqzQY-32P5TStzaFg")
OTHER = Uuid.parse("MvDxzVmcRsaTz33bUuRU6A")


class Scripted(FakeBroker):
    """Responds in the order of its script; the last response of an API is repeated."""

    def __init__(self, name: str, *, controller: bool = False, **script: list[Message]) -> None:
        super().__init__(name, {"t": 1})
        self.requests: list[Any] = []
        self._script = {ApiKey[key]: deque(responses) for key, responses in script.items()}
        self._is_controller = controller

    async def respond(self, key: ApiKey, version: int, request: Any) -> Message | None:
        if key not in self._script:
            return await super().respond(key, version, request)
        self.requests.append(request)
        responses = self._script[key]
        return responses.popleft() if len(responses) > 1 else responses[0]

    def _api_versions(self, version: int, request: Any) -> Message:
        served = [
            ApiKey.API_VERSIONS,
            *self._script,
            *([ApiKey.BROKER_REGISTRATION] if self._is_controller else [ApiKey.METADATA]),
        ]
        return api_versions.ApiVersionsResponse(
            api_keys=[
                api_versions.ApiVersion(api_key=key, min_version=API[key].min_version, max_version=API[key].max_version)
                for key in served
            ],
            supported_features=[api_versions.SupportedFeatureKey(name="a", min_version=0, max_version=2)],
            finalized_features=[api_versions.FinalizedFeatureKey(name="b", min_version_level=1, max_version_level=3)],
        )

    def _metadata(self, version: int, request: metadata.MetadataRequest) -> Message:
        response = super()._metadata(version, request)
        assert isinstance(response, metadata.MetadataResponse)
        # As with KRaft, the broker named as controller is any broker, here one that has failed.
        response.brokers.append(metadata.MetadataResponseBroker(node_id=2, host="gone", port=PORT))
        response.controller_id = 2
        return response


def play(scenario: Callable[[Client], Awaitable[T]], *brokers: Scripted) -> T:
    async def program(world: World) -> T:
        async with Client(world, f"{brokers[0].name}:{PORT}") as client:
            return await scenario(client)

    with Simulation(1) as simulation:
        for broker in brokers:
            simulation.machine(broker.name).boot(broker.run)
        simulation.machine("gone")
        return simulation.run(simulation.machine("client").boot(program), max_virtual_s=600)


def described(*voters: int, leader: int = 1, error: ErrorCode = ErrorCode.NONE) -> quorum.DescribeQuorumResponse:
    partition = quorum.DescribeQuorumResponsePartitionData(
        error_code=error,
        leader_id=leader,
        leader_epoch=7,
        high_watermark=90,
        current_voters=[
            quorum.ReplicaState(replica_id=each, replica_directory_id=DIRECTORY, log_end_offset=100 - each)
            for each in voters
        ],
        observers=[quorum.ReplicaState(replica_id=9, replica_directory_id=OTHER, log_end_offset=-1)],
    )
    topic = quorum.DescribeQuorumResponseTopicData(topic_name="__cluster_metadata", partitions=[partition])
    nodes = [
        quorum.Node(node_id=each, listeners=[quorum.Listener(name="CONTROLLER", host=f"c{each}", port=PORT)])
        for each in voters
    ]
    return quorum.DescribeQuorumResponse(topics=[topic], nodes=nodes)


async def describe(client: Client) -> QuorumDescription:
    return await client.quorum.describe()


def test_the_quorum_is_described_with_addresses_and_lag() -> None:
    found = play(describe, Scripted("b", DESCRIBE_QUORUM=[described(2, 1, 3)]))
    assert [voter.id for voter in found.voters] == [1, 2, 3] and found.log_end_offset == 99
    assert [found.lag(voter) for voter in found.voters] == [0, 1, 2]
    assert [found.lag(observer) for observer in found.observers] == [None]
    assert found.listeners[3] == [("CONTROLLER", Endpoint("c3", PORT))]


def test_of_a_node_with_two_directory_ids_the_one_that_fetched_last_is_used() -> None:
    response = described(1)
    response.topics[0].partitions[0].observers = [
        quorum.ReplicaState(replica_id=2, replica_directory_id=directory, last_fetch_timestamp=fetched)
        for directory, fetched in ((DIRECTORY, 5), (OTHER, 9))
    ]
    found = play(describe, Scripted("b", DESCRIBE_QUORUM=[response])).observer(2)
    assert found is not None and found.directory_id == OTHER


def test_describing_a_quorum_without_a_leader_is_retried() -> None:
    broker = Scripted("b", DESCRIBE_QUORUM=[described(1, error=ErrorCode.NOT_LEADER_OR_FOLLOWER), described(1)])
    assert play(describe, broker).leader_id == 1
    assert len(broker.requests) == 2


def test_at_a_controller_listener_the_active_controller_is_looked_up() -> None:
    controllers = cluster.DescribeClusterResponse(
        controller_id=3, brokers=[cluster.DescribeClusterBroker(broker_id=3, host="c3", port=PORT)]
    )
    standby = Scripted("c1", controller=True, DESCRIBE_CLUSTER=[controllers], DESCRIBE_QUORUM=[described(1)])
    active = Scripted("c3", controller=True, DESCRIBE_QUORUM=[described(3, leader=3)])
    assert play(describe, standby, active).leader_id == 3
    assert [type(each) for each in standby.requests] == [cluster.DescribeClusterRequest]
    assert standby.requests[0].endpoint_type == 2


def test_registered_controllers_are_requested_from_the_active_controller() -> None:
    controllers = cluster.DescribeClusterResponse(
        brokers=[cluster.DescribeClusterBroker(broker_id=each, host=f"c{each}", port=1) for each in (1, 4)]
    )
    broker = Scripted("b", DESCRIBE_QUORUM=[described(1)])
    active = Scripted("c1", controller=True, DESCRIBE_CLUSTER=[controllers])
    found = play(lambda client: client.quorum.controllers(), broker, active)
    assert found == {1: Endpoint("c1", 1), 4: Endpoint("c4", 1)}


def add(client: Client) -> Awaitable[None]:
    return client.quorum.add(2, DIRECTORY, [("CONTROLLER", Endpoint("c2", 1))])


def test_adding_a_voter_is_retried_until_it_has_caught_up() -> None:
    late = quorum.AddRaftVoterResponse(error_code=ErrorCode.REQUEST_TIMED_OUT)
    broker = Scripted("b", ADD_RAFT_VOTER=[late, late, quorum.AddRaftVoterResponse()])
    play(add, broker)
    assert len(broker.requests) == 3 and broker.requests[0].voter_directory_id == DIRECTORY
    assert [(each.name, each.host) for each in broker.requests[0].listeners] == [("CONTROLLER", "c2")]


def test_a_voter_added_by_an_attempt_whose_response_was_lost_counts_as_added() -> None:
    there = quorum.AddRaftVoterResponse(error_code=ErrorCode.DUPLICATE_VOTER)
    play(add, Scripted("b", ADD_RAFT_VOTER=[there], DESCRIBE_QUORUM=[described(1, 2)]))
    with pytest.raises(KafkaError) as rejected:
        other = quorum.AddRaftVoterResponse(error_code=ErrorCode.DUPLICATE_VOTER)
        play(
            lambda client: client.quorum.add(2, OTHER, []),
            Scripted("b", ADD_RAFT_VOTER=[other], DESCRIBE_QUORUM=[described(1, 2)]),
        )
    assert rejected.value.code == ErrorCode.DUPLICATE_VOTER


def test_removing_a_voter_that_is_already_removed_succeeds() -> None:
    unknown = quorum.RemoveRaftVoterResponse(error_code=ErrorCode.VOTER_NOT_FOUND)

    def remove(client: Client) -> Awaitable[None]:
        return client.quorum.remove(2, DIRECTORY)

    play(remove, Scripted("b", REMOVE_RAFT_VOTER=[unknown], DESCRIBE_QUORUM=[described(1)]))
    with pytest.raises(KafkaError):
        play(remove, Scripted("b", REMOVE_RAFT_VOTER=[unknown], DESCRIBE_QUORUM=[described(1, 2)]))


def test_reassignments_are_started_cancelled_and_listed() -> None:
    rejected = reassignments.AlterPartitionReassignmentsResponse(
        responses=[
            reassignments.ReassignableTopicResponse(
                name="t",
                partitions=[
                    reassignments.ReassignablePartitionResponse(partition_index=0),
                    reassignments.ReassignablePartitionResponse(
                        partition_index=1, error_code=ErrorCode.INVALID_REPLICA_ASSIGNMENT, error_message="no"
                    ),
                ],
            )
        ]
    )
    ongoing = reassignments.ListPartitionReassignmentsResponse(
        topics=[
            reassignments.OngoingTopicReassignment(
                name="t",
                partitions=[
                    reassignments.OngoingPartitionReassignment(
                        partition_index=0, replicas=[3, 2, 1], adding_replicas=[3], removing_replicas=[1]
                    )
                ],
            )
        ]
    )
    broker = Scripted("b", ALTER_PARTITION_REASSIGNMENTS=[rejected], LIST_PARTITION_REASSIGNMENTS=[ongoing])
    moves = {TopicPartition("t", 0): [3, 2], TopicPartition("t", 1): [9]}

    async def scenario(client: Client) -> tuple[dict[TopicPartition, KafkaError], list[Reassignment]]:
        begun = await client.reassignments.start(moves)
        await client.reassignments.cancel(moves)
        return begun, await client.reassignments.ongoing()

    begun, listed = play(scenario, broker)
    assert {each: error.code for each, error in begun.items()} == {
        TopicPartition("t", 1): ErrorCode.INVALID_REPLICA_ASSIGNMENT
    }
    assert [each.replicas for each in broker.requests[0].topics[0].partitions] == [[3, 2], [9]]
    assert [each.replicas for each in broker.requests[1].topics[0].partitions] == [None, None]
    assert broker.requests[2].topics is None
    assert [each.target for each in listed] == [(3, 2)]


def test_an_election_returns_the_outcome_of_each_partition() -> None:
    response = elections.ElectLeadersResponse(
        replica_election_results=[
            elections.ReplicaElectionResult(
                topic="t",
                partition_result=[
                    elections.PartitionResult(partition_id=0),
                    elections.PartitionResult(partition_id=1, error_code=ErrorCode.ELECTION_NOT_NEEDED),
                ],
            )
        ]
    )
    broker = Scripted("b", ELECT_LEADERS=[response])
    partitions = [TopicPartition("t", 0), TopicPartition("t", 1)]
    results = play(lambda client: client.elect_leaders(Election.UNCLEAN, partitions), broker)
    assert [error and error.code for error in results.values()] == [None, ErrorCode.ELECTION_NOT_NEEDED]
    assert broker.requests[0].election_type == 1 and broker.requests[0].topic_partitions[0].partitions == [0, 1]
    play(
        lambda client: client.elect_leaders(Election.PREFERRED, None),
        everything := Scripted("b", ELECT_LEADERS=[response]),
    )
    assert everything.requests[0].topic_partitions is None


def test_features_are_described_and_updated_in_one_request() -> None:
    moved = cluster.UpdateFeaturesResponse(error_code=ErrorCode.NOT_CONTROLLER)
    rejected = cluster.UpdateFeaturesResponse(error_code=ErrorCode.INVALID_UPDATE_VERSION, error_message="too high")
    broker = Scripted("b", UPDATE_FEATURES=[moved, rejected])
    found = play(lambda client: client.features.describe(), broker)
    assert [(each.name, each.supported, each.finalized) for each in found] == [("a", (0, 2), 0), ("b", None, 3)]
    with pytest.raises(KafkaError, match="too high"):
        play(lambda client: client.features.update({"a": 2, "b": 0}, UpgradeType.UNSAFE_DOWNGRADE), broker)
    assert [
        (each.feature, each.max_version_level, each.upgrade_type) for each in broker.requests[1].feature_updates
    ] == [
        ("a", 2, 3),
        ("b", 0, 3),
    ]


def test_a_broker_is_unregistered_even_if_the_broker_named_as_controller_has_failed() -> None:
    broker = Scripted("b", UNREGISTER_BROKER=[cluster.UnregisterBrokerResponse()])
    play(lambda client: client.cluster.unregister(2), broker)
    assert [each.broker_id for each in broker.requests] == [2]
