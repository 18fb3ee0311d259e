"""ApiVersions (18), versions 0-4: the APIs of this listener, and the finalized features of the cluster.

Requests in an unknown version do not reach this handler: `server/dispatch` responds in version 0.
"""

from __future__ import annotations

import re

from strandline.handlers.context import Call, NodeContext
from strandline.metadata.features import KRAFT_VERSION, SUPPORTED_FEATURES
from strandline.model.errors import ErrorCode, KafkaError
from strandline.protocol.apis import ApiKey
from strandline.protocol.messages.api_versions import (
    ApiVersion,
    ApiVersionsRequest,
    ApiVersionsResponse,
    FinalizedFeatureKey,
    SupportedFeatureKey,
)

_SOFTWARE = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")


async def handle_api_versions(node: NodeContext, call: Call, request: ApiVersionsRequest) -> ApiVersionsResponse:
    if call.version >= 3:
        for text in (request.client_software_name, request.client_software_version):
            if not _SOFTWARE.fullmatch(text):
                raise KafkaError(ErrorCode.INVALID_REQUEST, "the client's software name or version is not valid")
    ranges = node.api_ranges[call.listener]
    return ApiVersionsResponse(
        api_keys=[
            # librdkafka derives features from Produce's lowest version (KAFKA-18659), so 0 is advertised though 0-2
            # are rejected.
            ApiVersion(api_key=key, min_version=0 if key == ApiKey.PRODUCE else least, max_version=most)
            for key, (least, most) in sorted(ranges.items())
        ],
        supported_features=[
            SupportedFeatureKey(name=name, min_version=least, max_version=most)
            for name, (least, most) in sorted(SUPPORTED_FEATURES.items())
            # Clients older than version 4 reject a feature whose lowest level is 0.
            if least > 0 or call.version >= 4
        ],
        finalized_features_epoch=node.view.offset,
        finalized_features=[
            FinalizedFeatureKey(name=name, max_version_level=level, min_version_level=level)
            # kraft.version is in the control records of the quorum, not in the metadata.
            for name, level in sorted({**node.view.features(), KRAFT_VERSION: node.kraft_version()}.items())
            if level > 0
        ],
    )
