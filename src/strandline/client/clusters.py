"""The cluster itself: its brokers, features, quorum and disks."""

from __future__ import annotations

from dataclasses import dataclass

from strandline import __version__
from strandline.client.connection import SOFTWARE_NAME
from strandline.client.errors import code_of, error_of
from strandline.client.routing import Router
from strandline.client.versions import BrokerVersions
from strandline.model.errors import ErrorCode
from strandline.model.ids import METADATA_TOPIC, Endpoint, TopicPartition, Uuid
from strandline.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from strandline.protocol.messages.cluster import (
    DescribeClusterRequest,
    DescribeClusterResponse,
    FeatureUpdateKey,
    UpdateFeaturesRequest,
    UpdateFeaturesResponse,
)
from strandline.protocol.messages.log_dirs import DescribeLogDirsRequest, DescribeLogDirsResponse
from strandline.protocol.messages.quorum import (
    DescribeQuorumRequest,
    DescribeQuorumRequestPartitionData,
    DescribeQuorumRequestTopicData,
    DescribeQuorumResponse,
    ReplicaState,
)


@dataclass(frozen=True, slots=True)
class BrokerDescription:
    id: int
    endpoint: Endpoint
    rack: str | None
    fenced: bool


@dataclass(frozen=True, slots=True)
class ClusterDescription:
    cluster_id: str
    controller_id: int
    brokers: list[BrokerDescription]


@dataclass(frozen=True, slots=True)
class Feature:
    """`finalized` is 0 for a feature that is supported but not in use."""

    name: str
    supported: tuple[int, int] | None
    finalized: int


@dataclass(frozen=True, slots=True)
class QuorumMember:
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


@dataclass(frozen=True, slots=True)
class LogDirectory:
    path: str
    error: ErrorCode
    total_bytes: int
    usable_bytes: int
    partition_bytes: dict[TopicPartition, int]


class Clusters:
    def __init__(self, router: Router) -> None:
        self._router = router

    async def describe(self) -> ClusterDescription:
        connection = await self._router.retrying(self._router.any_broker, self._router.deadline_ms())
        version = connection.versions.newest_common(DescribeClusterRequest)
        request = DescribeClusterRequest(include_fenced_brokers=version >= 2)
        answer = await self._router.call(request, DescribeClusterResponse, version=version)
        if answer.error_code:
            raise error_of(answer.error_code, answer.error_message)
        brokers = [
            BrokerDescription(broker.broker_id, Endpoint(broker.host, broker.port), broker.rack, broker.is_fenced)
            for broker in sorted(answer.brokers, key=lambda each: each.broker_id)
        ]
        return ClusterDescription(answer.cluster_id, answer.controller_id, brokers)

    async def features(self) -> list[Feature]:
        """As one broker sees them, asked anew: what a connection learned is from when it was opened."""
        versions = BrokerVersions(
            await self._router.call(
                ApiVersionsRequest(client_software_name=SOFTWARE_NAME, client_software_version=__version__),
                ApiVersionsResponse,
            )
        )
        names = sorted({*versions.supported_features, *versions.finalized_features})
        return [
            Feature(name, versions.supported_features.get(name), versions.finalized_features.get(name, 0))
            for name in names
        ]

    async def update_feature(
        self, name: str, level: int, *, downgrade: bool = False, validate_only: bool = False
    ) -> None:
        connection = await self._router.retrying(self._router.any_broker, self._router.deadline_ms())
        version = connection.versions.newest_common(UpdateFeaturesRequest)
        update = FeatureUpdateKey(feature=name, max_version_level=level)
        if version == 0:
            update.allow_downgrade = downgrade
        else:
            update.upgrade_type = 2 if downgrade else 1
        request = UpdateFeaturesRequest(feature_updates=[update], validate_only=validate_only)
        answer = await self._router.call(request, UpdateFeaturesResponse, version=version, controller=True)
        outcomes = [(answer.error_code, answer.error_message)]
        outcomes += [(result.error_code, result.error_message) for result in answer.results]
        for code, message in outcomes:
            if code:
                raise error_of(code, message or f"feature {name!r}")

    async def quorum(self) -> QuorumDescription:
        topic = DescribeQuorumRequestTopicData(
            topic_name=METADATA_TOPIC, partitions=[DescribeQuorumRequestPartitionData(partition_index=0)]
        )
        answer = await self._router.call(DescribeQuorumRequest(topics=[topic]), DescribeQuorumResponse)
        if answer.error_code:
            raise error_of(answer.error_code, answer.error_message)
        partition = answer.topics[0].partitions[0]
        if partition.error_code:
            raise error_of(partition.error_code, partition.error_message)
        return QuorumDescription(
            partition.leader_id,
            partition.leader_epoch,
            partition.high_watermark,
            [_member(each) for each in partition.current_voters],
            [_member(each) for each in partition.observers],
        )

    async def log_directories(self, broker_id: int) -> list[LogDirectory]:
        request = DescribeLogDirsRequest(topics=None)
        answer = await self._router.call_broker(broker_id, request, DescribeLogDirsResponse)
        if answer.error_code:
            raise error_of(answer.error_code, f"broker {broker_id}")
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
            for each in answer.results
        ]


def _member(state: ReplicaState) -> QuorumMember:
    return QuorumMember(
        state.replica_id,
        state.replica_directory_id,
        state.log_end_offset,
        state.last_fetch_timestamp,
        state.last_caught_up_timestamp,
    )
