"""The quorum of controllers: who leads, who votes, how far everybody is; voters added and removed (KIP-853).

Brokers pass these questions on to the active controller. Asked at a controller's own listener, only the active one
answers, so it is looked up first: that is the way in when no broker is left.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeVar

from strandline.client.connection import Connection
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


@dataclass(frozen=True, slots=True)
class QuorumMember:
    """-1 where the leader does not know."""

    id: int
    directory_id: Uuid
    log_end_offset: int
    last_fetch_ms: int
    last_caught_up_ms: int


@dataclass(frozen=True, slots=True)
class QuorumDescription:
    leader_id: int
    leader_epoch: int
    high_watermark: int
    voters: list[QuorumMember]
    observers: list[QuorumMember]
    listeners: dict[int, list[tuple[str, Endpoint]]]
    """Of the voters, by name; empty from a cluster before kraft.version 1."""

    @property
    def log_end_offset(self) -> int:
        """The leader's."""
        return next((each.log_end_offset for each in self.voters if each.id == self.leader_id), self.high_watermark)

    def voter(self, node_id: int) -> QuorumMember | None:
        return next((each for each in self.voters if each.id == node_id), None)

    def observer(self, node_id: int) -> QuorumMember | None:
        """The one heard from last: a node whose disk was replaced is remembered under its old directory for a while."""
        same = [each for each in self.observers if each.id == node_id]
        return max(same, key=lambda each: each.last_fetch_ms, default=None)

    def lag(self, member: QuorumMember) -> int | None:
        """How many records it is behind the leader."""
        return None if member.log_end_offset < 0 else max(0, self.log_end_offset - member.log_end_offset)


class Quorum:
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

        async def ask() -> QuorumDescription:
            answer = await self._ask(request, DescribeQuorumResponse, deadline_ms)
            if answer.error_code:
                raise error_of(answer.error_code, answer.error_message)
            partition = answer.topics[0].partitions[0]
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
                    for node in answer.nodes
                },
            )

        return await self._router.retrying(ask, deadline_ms)

    async def controllers(self) -> dict[int, Endpoint]:
        """Where the registered controllers are, voters or not, as the active one knows them."""
        described = await self.describe()
        listeners = described.listeners.get(described.leader_id)
        if not listeners:
            return {}
        answer = await _describe_controllers(await self._router.at(listeners[0][1]))
        return {each.broker_id: Endpoint(each.host, each.port) for each in answer.brokers}

    async def add(self, voter_id: int, directory_id: Uuid, listeners: list[tuple[str, Endpoint]]) -> None:
        """Done when the new voter set is committed. Whoever is a voter already, with this directory, stays one."""
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
            # Perhaps it was ourselves: the answer to an earlier try was lost.
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
        self, request: Message, response: type[AddRaftVoterResponse] | type[RemoveRaftVoterResponse], what: str
    ) -> None:
        deadline_ms = self._router.deadline_ms()

        async def ask() -> None:
            answer = await self._ask(request, response, deadline_ms)
            if answer.error_code:
                raise error_of(answer.error_code, answer.error_message or what)

        await self._router.retrying(ask, deadline_ms)

    async def _ask(self, request: Message, response: type[R], deadline_ms: int) -> R:
        connection = await self._door()
        remaining_ms = max(1, min(self._router.settings.request_timeout_ms, deadline_ms - self._router.now_ms()))
        return await connection.call(request, response, timeout_ms=remaining_ms)

    async def _door(self) -> Connection:
        """A broker, which passes questions on, or the active controller."""
        connection = await self._router.any_broker()
        if connection.versions.serves(MetadataRequest):
            return connection
        answer = await _describe_controllers(connection)
        active = [each for each in answer.brokers if each.broker_id == answer.controller_id]
        if not active:
            raise KafkaError(ErrorCode.NOT_CONTROLLER, "the controllers have not elected a leader")
        return await self._router.at(Endpoint(active[0].host, active[0].port))


async def _describe_controllers(connection: Connection) -> DescribeClusterResponse:
    answer = await connection.call(DescribeClusterRequest(endpoint_type=CONTROLLERS), DescribeClusterResponse)
    if answer.error_code:
        raise error_of(answer.error_code, answer.error_message)
    return answer


def _member(state: ReplicaState) -> QuorumMember:
    return QuorumMember(
        state.replica_id,
        state.replica_directory_id,
        state.log_end_offset,
        state.last_fetch_timestamp,
        state.last_caught_up_timestamp,
    )
