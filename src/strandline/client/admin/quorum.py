"""Describes the metadata quorum (leader, voters, observers and their lag); adds and removes voters (KIP-853).

Brokers forward these requests to the active controller. Of the controllers only the active one handles them, so a
client that is connected to controller listeners, for example while no broker runs, looks it up first.
"""

from __future__ import annotations

from typing import TypeVar

from strandline.client.connection import Connection
from strandline.client.core.descriptions import QuorumDescription, QuorumMember
from strandline.client.errors import error_of
from strandline.client.routing import Router
from strandline.model.errors import ErrorCode, KafkaError
from strandline.model.ids import METADATA_TOPIC, Endpoint, Uuid
from strandline.protocol.messages.cluster import DescribeClusterRequest, DescribeClusterResponse
from strandline.protocol.messages.metadata import MetadataRequest
from strandline.protocol.messages.quorum import (
    AddRaftVoterRequest,
    AddRaftVoterResponse,
    DescribeQuorumRequest,
    DescribeQuorumRequestPartitionData,
    DescribeQuorumRequestTopicData,
    DescribeQuorumResponse,
    Listener,
    RemoveRaftVoterRequest,
    RemoveRaftVoterResponse,
    ReplicaState,
)
from strandline.protocol.types import Message

R = TypeVar("R", bound=Message)
CONTROLLERS = 2


class QuorumAdmin:
    def __init__(self, router: Router) -> None:
        self._router = router

    async def describe(self) -> QuorumDescription:
        request = DescribeQuorumRequest(
            topics=[
                DescribeQuorumRequestTopicData(
                    topic_name=METADATA_TOPIC, partitions=[DescribeQuorumRequestPartitionData(partition_index=0)]
                )
            ]
        )

        deadline_ms = self._router.deadline_ms()

        async def attempt() -> QuorumDescription:
            response = await self._send(request, DescribeQuorumResponse, deadline_ms)
            if response.error_code:
                raise error_of(response.error_code, response.error_message)
            partition = response.topics[0].partitions[0]
            if partition.error_code:
                raise error_of(partition.error_code, partition.error_message)
            return QuorumDescription(
                partition.leader_id,
                partition.leader_epoch,
                partition.high_watermark,
                [_member(each) for each in sorted(partition.current_voters, key=lambda each: each.replica_id)],
                [_member(each) for each in sorted(partition.observers, key=lambda each: each.replica_id)],
                {
                    node.node_id: [(each.name, Endpoint(each.host, each.port)) for each in node.listeners]
                    for node in response.nodes
                },
            )

        return await self._router.retrying(attempt, deadline_ms)

    async def controllers(self) -> dict[int, Endpoint]:
        """The endpoints of the registered controllers, voters or not."""
        described = await self.describe()
        listeners = described.listeners.get(described.leader_id)
        if not listeners:
            return {}
        response = await _describe_controllers(await self._router.connection_to(listeners[0][1]))
        return {each.broker_id: Endpoint(each.host, each.port) for each in response.brokers}

    async def add(self, voter_id: int, directory_id: Uuid, listeners: list[tuple[str, Endpoint]]) -> None:
        """Returns when the new voter set is committed, or if the node is a voter with this directory id already."""
        request = AddRaftVoterRequest(
            cluster_id=None,
            timeout_ms=self._router.settings.request_timeout_ms,
            voter_id=voter_id,
            voter_directory_id=directory_id,
            listeners=[Listener(name=name, host=at.host, port=at.port) for name, at in listeners],
        )
        try:
            await self._change(request, AddRaftVoterResponse, f"voter {voter_id}")
        except KafkaError as error:
            if error.code != ErrorCode.DUPLICATE_VOTER:
                raise
            # It may have been added by an earlier attempt whose response was lost.
            voter = (await self.describe()).voter(voter_id)
            if voter is None or voter.directory_id != directory_id:
                raise

    async def remove(self, voter_id: int, directory_id: Uuid) -> None:
        request = RemoveRaftVoterRequest(cluster_id=None, voter_id=voter_id, voter_directory_id=directory_id)
        try:
            await self._change(request, RemoveRaftVoterResponse, f"voter {voter_id}")
        except KafkaError as error:
            if error.code != ErrorCode.VOTER_NOT_FOUND or (await self.describe()).voter(voter_id) is not None:
                raise

    async def _change(
        self, request: Message, response_type: type[AddRaftVoterResponse] | type[RemoveRaftVoterResponse], what: str
    ) -> None:
        deadline_ms = self._router.deadline_ms()

        async def attempt() -> None:
            response = await self._send(request, response_type, deadline_ms)
            if response.error_code:
                raise error_of(response.error_code, response.error_message or what)

        await self._router.retrying(attempt, deadline_ms)

    async def _send(self, request: Message, response_type: type[R], deadline_ms: int) -> R:
        connection = await self._voter_api_connection()
        remaining_ms = max(1, min(self._router.settings.request_timeout_ms, deadline_ms - self._router.now_ms()))
        return await connection.call(request, response_type, timeout_ms=remaining_ms)

    async def _voter_api_connection(self) -> Connection:
        """A connection to a broker, which forwards the request, or to the active controller."""
        connection = await self._router.any_broker()
        if connection.versions.serves(MetadataRequest):
            return connection
        response = await _describe_controllers(connection)
        active = [each for each in response.brokers if each.broker_id == response.controller_id]
        if not active:
            raise KafkaError(ErrorCode.NOT_CONTROLLER, "the controllers have not elected a leader")
        return await self._router.connection_to(Endpoint(active[0].host, active[0].port))


async def _describe_controllers(connection: Connection) -> DescribeClusterResponse:
    response = await connection.call(DescribeClusterRequest(endpoint_type=CONTROLLERS), DescribeClusterResponse)
    if response.error_code:
        raise error_of(response.error_code, response.error_message)
    return response


def _member(state: ReplicaState) -> QuorumMember:
    return QuorumMember(
        state.replica_id,
        state.replica_directory_id,
        state.log_end_offset,
        state.last_fetch_timestamp,
        state.last_caught_up_timestamp,
    )
