"""DescribeCluster on the controller listener."""

from __future__ import annotations

from typing import Any, cast

from strandline.handlers.cluster import handle_describe_quorum_nodes
from strandline.model.ids import Endpoint
from strandline.protocol.apis import ApiKey
from strandline.protocol.messages.cluster import DescribeClusterRequest
from strandline.protocol.messages.metadata_records import ControllerEndpoint, RegisterControllerRecord
from strandline.raft.machine.voters import Voter
from unit.handlers.metadata_broker import FakeCall, MetadataBroker, run

CONTROLLER = "CONTROLLER"


def voter(node_id: int, port: int) -> Voter:
    return Voter(node_id, listeners=((CONTROLLER, Endpoint("voter", port)),))


def describe(metadata: MetadataBroker, *voters: Voter) -> list[tuple[int, str, int]]:
    call = cast(Any, FakeCall(ApiKey.DESCRIBE_CLUSTER, 1, listener=CONTROLLER))
    response = run(
        handle_describe_quorum_nodes(metadata.controller(*voters), call, DescribeClusterRequest(endpoint_type=2))
    )
    return [(node.broker_id, node.host, node.port) for node in response.brokers]


def registered(node_id: int, port: int, listener: str = CONTROLLER) -> RegisterControllerRecord:
    endpoint = ControllerEndpoint(name=listener, host="registered", port=port)
    return RegisterControllerRecord(controller_id=node_id, end_points=[endpoint])


def test_voters_are_listed_before_they_have_registered() -> None:
    assert describe(MetadataBroker(), voter(1, 11), voter(2, 12)) == [(1, "voter", 11), (2, "voter", 12)]


def test_registered_controllers_are_listed_with_their_registered_address_voters_or_not() -> None:
    metadata = MetadataBroker()
    metadata.write(registered(2, 22), registered(4, 24))
    assert describe(metadata, voter(1, 11), voter(2, 12)) == [
        (1, "voter", 11),
        (2, "registered", 22),
        (4, "registered", 24),
    ]


def test_a_controller_without_an_address_on_the_listener_is_not_listed() -> None:
    metadata = MetadataBroker()
    metadata.write(registered(1, 21, "ANOTHER"))
    assert describe(metadata, voter(1, 11), Voter(2)) == []
