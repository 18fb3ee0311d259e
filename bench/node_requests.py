"""Blocking requests to single nodes, for `three_nodes`: one connection per address, opened again after a failure.

There are no retries and no routing, so that a measured time is the node's. Works with Strandline and Apache Kafka.
"""

from __future__ import annotations

import asyncio
from typing import Any, TypeVar

from strandline.client.bootstrap import parse_bootstrap
from strandline.client.connection import Connection
from strandline.client.errors import ConnectionLost, error_of
from strandline.client.settings import ClientSettings
from strandline.launch.readiness import live_brokers
from strandline.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from strandline.protocol.messages.quorum import (
    DescribeQuorumRequest,
    DescribeQuorumRequestPartitionData,
    DescribeQuorumRequestTopicData,
    DescribeQuorumResponse,
)
from strandline.protocol.messages.topics import CreatableTopic, CreateTopicsRequest, CreateTopicsResponse
from strandline.protocol.types import Message
from strandline.runtime.network import SystemNetwork

R = TypeVar("R", bound=Message)


class NodeRequests:
    """Every method raises KafkaError if the node does not respond, or responds with an error."""

    def __init__(self) -> None:
        self._runner = asyncio.Runner()
        self._network = SystemNetwork()
        self._connections: dict[str, Connection] = {}

    def send(self, address: str, request: Message, response: type[R], *, timeout_s: float = 30.0) -> R:
        return self._runner.run(self._send(address, request, response, int(timeout_s * 1000)))

    async def _send(self, address: str, request: Message, response: type[R], timeout_ms: int) -> R:
        connection = self._connections.pop(address, None)
        if connection is not None:
            try:
                return await self._call(connection, request, response, timeout_ms)
            except ConnectionLost:
                pass  # The node closed it since the last request, maybe because it was restarted.
        (endpoint,) = parse_bootstrap(address)
        settings = ClientSettings(client_id="bench", connect_timeout_ms=timeout_ms)
        connection = await Connection.open(self._network, endpoint, settings)
        return await self._call(connection, request, response, timeout_ms)

    async def _call(self, connection: Connection, request: Message, response: type[R], timeout_ms: int) -> R:
        received = await connection.call(request, response, timeout_ms=timeout_ms)
        self._connections[str(connection.endpoint)] = connection
        return received

    def close(self) -> None:
        for connection in self._connections.values():
            connection.close()
        self._runner.close()

    def create_topic(
        self, address: str, name: str, partitions: int, replicas: int, *, timeout_ms: int, timeout_s: float
    ) -> None:
        topic = CreatableTopic(name=name, num_partitions=partitions, replication_factor=replicas)
        request = CreateTopicsRequest(topics=[topic], timeout_ms=timeout_ms)
        result = self.send(address, request, CreateTopicsResponse, timeout_s=timeout_s).topics[0]
        if result.error_code:
            raise error_of(result.error_code, result.error_message)

    def partitions(self, address: str, topic: str) -> list[Any]:
        request = MetadataRequest(topics=[MetadataRequestTopic(name=topic)], allow_auto_topic_creation=False)
        return self.send(address, request, MetadataResponse, timeout_s=10.0).topics[0].partitions

    def quorum_leader(self, controller: str) -> int:
        """Only the active controller responds without an error."""
        partition = DescribeQuorumRequestPartitionData(partition_index=0)
        topic = DescribeQuorumRequestTopicData(topic_name="__cluster_metadata", partitions=[partition])
        response = self.send(controller, DescribeQuorumRequest(topics=[topic]), DescribeQuorumResponse, timeout_s=5.0)
        if response.error_code:
            raise error_of(response.error_code, response.error_message)
        described = response.topics[0].partitions[0]
        if described.error_code:
            raise error_of(described.error_code, described.error_message)
        return described.leader_id


def sees_brokers(address: str, ids: set[int]) -> bool:
    host, _, port = address.rpartition(":")
    return set(live_brokers(host, int(port), 20.0)) == ids
