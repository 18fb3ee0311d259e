from __future__ import annotations

import pytest

from strandline.client.core.broker_versions import BrokerVersions, retry_version
from strandline.client.errors import NotABroker, UnsupportedVersion
from strandline.protocol.messages.api_versions import (
    ApiVersion,
    ApiVersionsRequest,
    ApiVersionsResponse,
    FinalizedFeatureKey,
)
from strandline.protocol.messages.fetch import FetchRequest
from strandline.protocol.messages.metadata import MetadataRequest


def speaking(**ranges: tuple[int, int]) -> ApiVersionsResponse:
    keys = {"fetch": 1, "metadata": 3, "api_versions": 18, "broker_registration": 62}
    return ApiVersionsResponse(
        api_keys=[
            ApiVersion(api_key=keys[name], min_version=low, max_version=high) for name, (low, high) in ranges.items()
        ],
        finalized_features=[FinalizedFeatureKey(name="metadata.version", max_version_level=30)],
    )


def test_the_newest_common_version_is_used() -> None:
    versions = BrokerVersions(speaking(fetch=(0, 11), metadata=(0, 99)))
    assert versions.newest_common_version(FetchRequest) == 11
    assert versions.newest_common_version(MetadataRequest) == MetadataRequest.versions[1]
    assert versions.newest_common_version(MetadataRequest, cap=9) == 9
    assert versions.finalized_features == {"metadata.version": 30}


def test_the_error_for_no_common_version_has_both_ranges() -> None:
    versions = BrokerVersions(speaking(fetch=(0, 3)))
    with pytest.raises(UnsupportedVersion, match="supports Fetch 0 to 3, this client 4 to 18"):
        versions.newest_common_version(FetchRequest)
    with pytest.raises(UnsupportedVersion, match="does not serve Metadata"):
        versions.newest_common_version(MetadataRequest)


def test_a_listener_that_registers_brokers_and_serves_no_metadata_is_a_controller_listener() -> None:
    versions = BrokerVersions(speaking(fetch=(4, 18), broker_registration=(0, 4)))
    assert versions.newest_common_version(FetchRequest) == 18
    with pytest.raises(NotABroker, match="a controller listener, which does not serve Metadata"):
        versions.newest_common_version(MetadataRequest)


def test_api_versions_is_retried_with_a_version_of_the_broker() -> None:
    assert retry_version(speaking(api_versions=(0, 2)), 18, ApiVersionsRequest.versions) == 2
    assert retry_version(speaking(), 18, ApiVersionsRequest.versions) == 0
