"""The error response of every API in every version, for any request."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random
from typing import Any

import pytest

from strandline.handlers.tables import ROWS
from strandline.model.errors import ErrorCode
from strandline.protocol.apis import API, Api, ApiKey
from strandline.protocol.codec import decode, encode_bytes
from strandline.protocol.messages.topics import (
    DeleteRecordsPartition,
    DeleteRecordsPartitionResult,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopic,
    DeleteRecordsTopicResult,
)
from strandline.protocol.types import Struct, layout
from unit.protocol.random_messages import random_message

SERVED = [api for api in API.values() if api.is_served]
# Lists whose elements are repeated with the error where the response has no error code of its own.
NAMED = (
    "topics",
    "topic_data",
    "topic_names",
    "topic_partitions",
    "resources",
    "coordinator_keys",
    "creations",
    "filters",
    "entries",
    "deletions",
    "upsertions",
)


@pytest.mark.parametrize("api", SERVED, ids=lambda api: api.name)
def test_every_version_of_every_api_has_an_error_response(api: Api) -> None:
    random = Random(api.key)
    for version in range(api.min_version, api.max_version + 1):
        for request in (api.request(), *(random_message(api.request, version, random) for _ in range(20))):
            if hasattr(request, "acks"):
                request.acks = -1
            response = ROWS[api.key].error_response(request, version, ErrorCode.NOT_CONTROLLER, "for a reason")
            assert response is not None
            data = encode_bytes(response, version)
            decoded, end = decode(api.response, version, data)
            assert end == len(data)
            codes = list(error_codes(decoded, version))
            assert set(codes) <= {ErrorCode.NOT_CONTROLLER}, decoded
            # Versions 1 and 2 of DescribeLogDirs have no error code.
            assert codes or nothing_to_repeat(request) or api.name == "DescribeLogDirs", decoded


def test_every_partition_of_the_request_is_repeated_with_its_identity_and_the_error() -> None:
    partitions = [DeleteRecordsPartition(partition_index=index, offset=9) for index in (4, 7)]
    request = DeleteRecordsRequest(topics=[DeleteRecordsTopic(name="t", partitions=partitions)])
    response = ROWS[ApiKey.DELETE_RECORDS].error_response(request, 2, ErrorCode.NOT_CONTROLLER, "for a reason")
    assert response == DeleteRecordsResponse(
        topics=[
            DeleteRecordsTopicResult(
                name="t",
                partitions=[
                    DeleteRecordsPartitionResult(
                        partition_index=index, low_watermark=-1, error_code=ErrorCode.NOT_CONTROLLER
                    )
                    for index in (4, 7)
                ],
            )
        ]
    )


def error_codes(value: Struct, version: int) -> Iterator[int]:
    for field in layout(type(value)):
        field_value = getattr(value, field.name)
        if field.name == "error_code" and version in field.present:
            yield field_value
        elif isinstance(field_value, list):
            for element in field_value:
                if isinstance(element, Struct):
                    yield from error_codes(element, version)


def nothing_to_repeat(request: Any) -> bool:
    """The request names nothing, or only topics without partitions."""
    lists = [getattr(request, name) or [] for name in NAMED if hasattr(request, name)]
    parts = [
        getattr(element, "partitions", getattr(element, "partition_data", None)) for each in lists for element in each
    ]
    return not any(lists) or not any(parts)


def test_a_failed_produce_without_acknowledgement_closes_the_connection() -> None:
    """There is no response, so only closing the connection makes the client refresh its metadata."""
    api = API[0]
    request: Any = api.request()
    request.acks = 0
    with pytest.raises(ConnectionAbortedError):
        ROWS[api.key].error_response(request, 9, ErrorCode.NOT_CONTROLLER, "for a reason")
