"""The cluster as a whole: UpdateFeatures (57), DescribeCluster (60), UnregisterBroker (64)."""

from __future__ import annotations

from typing import Annotated

from strandline.protocol.types import Message, Struct, boolean, i8, i16, i32, ignorable, since, string, until


class DescribeClusterRequest(Message, api_key=60, versions=(0, 2), flexible=0):
    """v1 brokers or controllers (KIP-919), v2 fenced brokers too (KIP-1073)."""

    include_cluster_authorized_operations: boolean = False
    endpoint_type: Annotated[i8, since(1)] = 1  # 1 brokers, 2 controllers
    include_fenced_brokers: Annotated[boolean, since(2)] = False


class DescribeClusterResponse(Message, api_key=60, versions=(0, 2), flexible=0):
    """v1 endpoint type, v2 whether brokers are fenced."""

    throttle_time_ms: i32 = 0
    error_code: i16 = 0
    error_message: string | None = None
    endpoint_type: Annotated[i8, since(1)] = 1
    cluster_id: string = ""
    controller_id: i32 = -1
    brokers: list[DescribeClusterBroker] = []
    cluster_authorized_operations: i32 = -0x80000000


class DescribeClusterBroker(Struct):
    broker_id: i32 = 0
    host: string = ""
    port: i32 = 0
    rack: string | None = None
    is_fenced: Annotated[boolean, since(2)] = False


class UpdateFeaturesRequest(Message, api_key=57, versions=(0, 2), flexible=0):
    """v0 allows downgrades or not, v1 has the upgrade type and validate-only (KIP-584, KIP-778)."""

    timeout_ms: i32 = 60000
    feature_updates: list[FeatureUpdateKey] = []
    validate_only: Annotated[boolean, since(1)] = False


class FeatureUpdateKey(Struct):
    feature: string = ""
    max_version_level: i16 = 0
    allow_downgrade: Annotated[boolean, until(0)] = False
    upgrade_type: Annotated[i8, since(1)] = 1


class UpdateFeaturesResponse(Message, api_key=57, versions=(0, 2), flexible=0):
    """v2 has no results per feature: all or nothing."""

    throttle_time_ms: i32 = 0
    error_code: i16 = 0
    error_message: string | None = ""
    results: Annotated[list[UpdatableFeatureResult], until(1), ignorable] = []


class UpdatableFeatureResult(Struct):
    feature: string = ""
    error_code: i16 = 0
    error_message: string | None = ""


class UnregisterBrokerRequest(Message, api_key=64, versions=(0, 0), flexible=0):
    """Removes the registration of a broker."""

    broker_id: i32 = 0


class UnregisterBrokerResponse(Message, api_key=64, versions=(0, 0), flexible=0):
    throttle_time_ms: i32 = 0
    error_code: i16 = 0
    error_message: string | None = ""
