"""Feature levels: what the brokers support, what the cluster has agreed on, and changing that."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum

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


@dataclass(frozen=True, slots=True)
class Feature:
    """`finalized` is 0 for a feature that is supported but not in use."""

    name: str
    supported: tuple[int, int] | None
    finalized: int


class FeatureAdmin:
    def __init__(self, router: Router) -> None:
        self._router = router

    async def describe(self) -> list[Feature]:
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

    async def update(self, levels: Mapping[str, int], how: UpgradeType, *, validate_only: bool = False) -> None:
        """All of them or none, from brokers new enough to promise that; level 0 takes a feature out of use."""
        connection = await self._router.retrying(self._router.any_broker, self._router.deadline_ms())
        version = connection.versions.newest_common_version(UpdateFeaturesRequest)
        updates = [FeatureUpdateKey(feature=name, max_version_level=level) for name, level in levels.items()]
        for update in updates:
            if version == 0:
                update.allow_downgrade = how != UpgradeType.UPGRADE
            else:
                update.upgrade_type = how
        request = UpdateFeaturesRequest(feature_updates=updates, validate_only=validate_only)

        async def ask() -> None:
            answer = await self._router.call(request, UpdateFeaturesResponse, version=version, controller=True)
            outcomes = [(answer.error_code, answer.error_message, ", ".join(levels))]
            outcomes += [(result.error_code, result.error_message, result.feature) for result in answer.results]
            for code, message, what in outcomes:
                if code:
                    raise error_of(code, message or f"feature {what}")

        await self._router.retrying(ask, self._router.deadline_ms())
