"""ApiVersions (18), versions 0-4: what this listener serves, and which features the cluster has settled on.

A version we do not speak never gets here: dispatch answers it in the body of version 0.
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
                raise KafkaError(
                    ErrorCode.INVALID_REQUEST, "the client's software name and version are not plain words"
                )
    ranges = node.api_ranges[call.listener]
    return ApiVersionsResponse(
        api_keys=[
            # librdkafka reads the age of a broker off Produce's least version (KAFKA-18659), so it starts at 0 though
            # 0-2 are refused.
            ApiVersion(api_key=key, min_version=0 if key == ApiKey.PRODUCE else least, max_version=most)
            for key, (least, most) in sorted(ranges.items())
        ],
        supported_features=[
            SupportedFeatureKey(name=name, min_version=least, max_version=most)
            for name, (least, most) in sorted(SUPPORTED_FEATURES.items())
            # Clients older than version 4 reject a feature whose least level is 0.
            if least > 0 or call.version >= 4
        ],
        finalized_features_epoch=node.view.offset,
        finalized_features=[
            FinalizedFeatureKey(name=name, max_version_level=level, min_version_level=level)
            # The quorum's own version is in its control records, not among the features of the metadata.
            for name, level in sorted({**node.view.features(), KRAFT_VERSION: node.kraft_version()}.items())
            if level > 0
        ],
    )
