"""Every API can say in every version that a request cannot proceed, whatever was in the request."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random
from typing import Any

import pytest

from strandline.handlers.tables import ROWS
from strandline.model.errors import ErrorCode
from strandline.protocol.apis import API, Api
from strandline.protocol.codec import decode, encode_bytes
from strandline.protocol.types import Struct, layout
from unit.protocol.random_messages import random_message

SERVED = [api for api in API.values() if api.is_served]
# Lists whose elements are each answered, where the answer has no error of its own.
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
def test_a_failure_has_a_shape_in_every_version(api: Api) -> None:
    random = Random(api.key)
    for version in range(api.min_version, api.max_version + 1):
        for request in (api.request(), *(random_message(api.request, version, random) for _ in range(20))):
            if hasattr(request, "acks"):
                request.acks = -1
            answer = ROWS[api.key].error_response(request, version, ErrorCode.NOT_CONTROLLER, "for a reason")
            assert answer is not None
            data = encode_bytes(answer, version)
            told, end = decode(api.response, version, data)
            assert end == len(data)
            codes = list(error_codes(told, version))
            assert set(codes) <= {ErrorCode.NOT_CONTROLLER}, told
            # Versions 1 and 2 of DescribeLogDirs have no word for it.
            assert codes or nothing_to_repeat(request) or api.name == "DescribeLogDirs", told


def error_codes(value: Struct, version: int) -> Iterator[int]:
    for field in layout(type(value)):
        held = getattr(value, field.name)
        if field.name == "error_code" and version in field.present:
            yield held
        elif isinstance(held, list):
            for element in held:
                if isinstance(element, Struct):
                    yield from error_codes(element, version)


def nothing_to_repeat(request: Any) -> bool:
    """Nothing was asked about, or only things that themselves have no parts."""
    lists = [getattr(request, name) or [] for name in NAMED if hasattr(request, name)]
    parts = [
        getattr(element, "partitions", getattr(element, "partition_data", None)) for each in lists for element in each
    ]
    return not any(lists) or not any(parts)


def test_a_failed_produce_without_acknowledgement_closes_the_connection() -> None:
    """Nothing can be answered, so closing is the only way to make the client look again."""
    api = API[0]
    request: Any = api.request()
    request.acks = 0
    with pytest.raises(ConnectionAbortedError):
        ROWS[api.key].error_response(request, 9, ErrorCode.NOT_CONTROLLER, "for a reason")
