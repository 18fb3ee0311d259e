"""The API versions that both a broker and this client support. A core, built from one ApiVersions response."""

from __future__ import annotations

from strandline.client.errors import NotABroker, UnsupportedVersion
from strandline.protocol.apis import ApiKey
from strandline.protocol.messages.api_versions import ApiVersionsResponse
from strandline.protocol.types import Message


class BrokerVersions:
    def __init__(self, response: ApiVersionsResponse) -> None:
        self._ranges = {entry.api_key: (entry.min_version, entry.max_version) for entry in response.api_keys}
        self.supported_features = {
            feature.name: (feature.min_version, feature.max_version) for feature in response.supported_features
        }
        self.finalized_features = {feature.name: feature.max_version_level for feature in response.finalized_features}
        self.finalized_features_epoch = response.finalized_features_epoch

    def serves(self, request: type[Message]) -> bool:
        return request.api_key in self._ranges

    def newest_common_version(self, request: type[Message], cap: int | None = None) -> int:
        """The newest version both sides support, not above `cap`."""
        name = request.__name__.removesuffix("Request")
        theirs = self._ranges.get(request.api_key if request.api_key is not None else -1)
        if theirs is None and ApiKey.METADATA not in self._ranges and ApiKey.BROKER_REGISTRATION in self._ranges:
            raise NotABroker(f"this is a controller listener, which does not serve {name}")
        if theirs is None:
            raise UnsupportedVersion(f"the broker does not serve {name}")
        ours = request.versions
        newest = min(theirs[1], ours[1], ours[1] if cap is None else cap)
        if newest < max(theirs[0], ours[0]):
            raise UnsupportedVersion(
                f"the broker supports {name} {theirs[0]} to {theirs[1]}, this client {ours[0]} to {ours[1]}"
            )
        return newest


def retry_version(response: ApiVersionsResponse, api_key: int, ours: tuple[int, int]) -> int:
    """The ApiVersions version to retry with after the broker rejected the first one."""
    for entry in response.api_keys:
        if entry.api_key == api_key and entry.min_version <= ours[1]:
            return max(ours[0], min(ours[1], entry.max_version))
    return 0
