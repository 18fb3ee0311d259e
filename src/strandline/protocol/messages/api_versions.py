"""ApiVersions (18): the APIs of a listener and the finalized features of the cluster."""

from __future__ import annotations

from typing import Annotated

from strandline.protocol.types import Message, Struct, boolean, i16, i32, i64, ignorable, since, string, tag


class ApiVersionsRequest(Message, api_key=18, versions=(0, 4), flexible=3):
    """v3 flexible, names the client's software (KIP-511); v4 can read features whose minimum is 0."""

    client_software_name: Annotated[string, since(3), ignorable] = ""
    client_software_version: Annotated[string, since(3), ignorable] = ""


class ApiVersionsResponse(Message, api_key=18, versions=(0, 4), flexible=3):
    """v1 throttle time, v3 flexible, with features (KIP-584). The header never is, since the client does not know the
    versions yet."""

    error_code: i16 = 0
    api_keys: list[ApiVersion] = []
    throttle_time_ms: Annotated[i32, since(1), ignorable] = 0
    supported_features: Annotated[list[SupportedFeatureKey], since(3), tag(0), ignorable] = []
    finalized_features_epoch: Annotated[i64, since(3), tag(1), ignorable] = -1
    finalized_features: Annotated[list[FinalizedFeatureKey], since(3), tag(2), ignorable] = []
    zk_migration_ready: Annotated[boolean, since(3), tag(3), ignorable] = False


class ApiVersion(Struct):
    api_key: i16 = 0
    min_version: i16 = 0
    max_version: i16 = 0


class SupportedFeatureKey(Struct):
    name: string = ""
    min_version: i16 = 0
    max_version: i16 = 0


class FinalizedFeatureKey(Struct):
    name: string = ""
    max_version_level: i16 = 0
    min_version_level: i16 = 0
