"""Describes the cluster, its brokers and their log directories; unregisters brokers."""

from __future__ import annotations

import msgspec

from strandline.client.core.descriptions import BrokerDescription, ClusterDescription
from strandline.client.errors import error_of
from strandline.client.routing import Router
from strandline.model.errors import ErrorCode, code_of
from strandline.model.ids import Endpoint, TopicPartition
from strandline.protocol.messages.cluster import (
    DescribeClusterRequest,
    DescribeClusterResponse,
    UnregisterBrokerRequest,
    UnregisterBrokerResponse,
)
from strandline.protocol.messages.log_dirs import DescribeLogDirsRequest, DescribeLogDirsResponse


class LogDirectory(msgspec.Struct, frozen=True):
    path: str
    error: ErrorCode
    total_bytes: int
    usable_bytes: int
    partition_bytes: dict[TopicPartition, int]


class ClusterAdmin:
    def __init__(self, router: Router) -> None:
        self._router = router

    async def describe(self) -> ClusterDescription:
        connection = await self._router.retrying(self._router.any_broker, self._router.deadline_ms())
        version = connection.versions.newest_common_version(DescribeClusterRequest)
        request = DescribeClusterRequest(include_fenced_brokers=version >= 2)
        response = await self._router.call(request, DescribeClusterResponse, version=version)
        if response.error_code:
            raise error_of(response.error_code, response.error_message)
        brokers = [
            BrokerDescription(broker.broker_id, Endpoint(broker.host, broker.port), broker.rack, broker.is_fenced)
            for broker in sorted(response.brokers, key=lambda each: each.broker_id)
        ]
        return ClusterDescription(response.cluster_id, response.controller_id, brokers)

    async def unregister(self, broker_id: int) -> None:
        """Removes the registration of a stopped broker; its replicas stay assigned to it until they are reassigned."""

        async def attempt() -> None:
            request = UnregisterBrokerRequest(broker_id=broker_id)
            response = await self._router.call(request, UnregisterBrokerResponse, controller=True)
            if response.error_code:
                raise error_of(response.error_code, response.error_message or f"broker {broker_id}")

        await self._router.retrying(attempt, self._router.deadline_ms())

    async def log_directories(self, broker_id: int) -> list[LogDirectory]:
        request = DescribeLogDirsRequest(topics=None)
        response = await self._router.call_broker(broker_id, request, DescribeLogDirsResponse)
        if response.error_code:
            raise error_of(response.error_code, f"broker {broker_id}")
        return [
            LogDirectory(
                each.log_dir,
                code_of(each.error_code),
                each.total_bytes,
                each.usable_bytes,
                {
                    TopicPartition(topic.name, entry.partition_index): entry.partition_size
                    for topic in each.topics
                    for entry in topic.partitions
                },
            )
            for each in response.results
        ]
