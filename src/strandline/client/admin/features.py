"""Feature levels: the supported ranges, the finalized levels, and changes of the finalized levels."""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum

import msgspec

from strandline import __version__
from strandline.client.connection import SOFTWARE_NAME
from strandline.client.core.broker_versions import BrokerVersions
from strandline.client.errors import error_of
from strandline.client.routing import Router
from strandline.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from strandline.protocol.messages.cluster import FeatureUpdateKey, UpdateFeaturesRequest, UpdateFeaturesResponse


class UpgradeType(IntEnum):
    UPGRADE = 1
    SAFE_DOWNGRADE = 2
    UNSAFE_DOWNGRADE = 3


class Feature(msgspec.Struct, frozen=True):
    """`finalized` is 0 for a feature that is supported but not finalized."""

    name: str
    supported: tuple[int, int] | None
    finalized: int


class FeatureAdmin:
    def __init__(self, router: Router) -> None:
        self._router = router

    async def describe(self) -> list[Feature]:
        """The features as one broker reports them now: what a connection negotiated dates from its start."""
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

    async def update(self, levels: Mapping[str, int], how: UpgradeType, *, validate_only: bool = False) -> None:
        """Level 0 removes a feature. Newer brokers apply all changes or none."""
        connection = await self._router.retrying(self._router.any_broker, self._router.deadline_ms())
        version = connection.versions.newest_common_version(UpdateFeaturesRequest)
        updates = [FeatureUpdateKey(feature=name, max_version_level=level) for name, level in levels.items()]
        for update in updates:
            if version == 0:
                update.allow_downgrade = how != UpgradeType.UPGRADE
            else:
                update.upgrade_type = how
        request = UpdateFeaturesRequest(feature_updates=updates, validate_only=validate_only)

        async def attempt() -> None:
            response = await self._router.call(request, UpdateFeaturesResponse, version=version, controller=True)
            outcomes = [(response.error_code, response.error_message, ", ".join(levels))]
            outcomes += [(result.error_code, result.error_message, result.feature) for result in response.results]
            for code, message, what in outcomes:
                if code:
                    raise error_of(code, message or f"feature {what}")

        await self._router.retrying(attempt, self._router.deadline_ms())
