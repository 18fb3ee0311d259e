"""The headers of requests and responses. `framing` encodes and decodes them by hand; tests compare it with
these."""

from __future__ import annotations

from typing import Annotated

from strandline.protocol.types import Message, i16, i32, never_compact, string


class RequestHeader(Message, versions=(1, 2), flexible=2):
    """v2 flexible, except for the client id."""

    request_api_key: i16 = 0
    request_api_version: i16 = 0
    correlation_id: i32 = 0
    client_id: Annotated[string | None, never_compact] = ""


class ResponseHeader(Message, versions=(0, 1), flexible=1):
    """v1 flexible."""

    correlation_id: i32 = 0
