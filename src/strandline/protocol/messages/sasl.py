"""SASL: SaslHandshake (17), SaslAuthenticate (36)."""

from __future__ import annotations

from typing import Annotated

from strandline.protocol.types import Message, bytes_, i16, i64, ignorable, since, string


class SaslHandshakeRequest(Message, api_key=17, versions=(0, 1)):
    """v1 means that SaslAuthenticate follows; before that, bare SASL frames do. Never flexible (KAFKA-9577)."""

    mechanism: string = ""


class SaslHandshakeResponse(Message, api_key=17, versions=(0, 1)):
    error_code: i16 = 0
    mechanisms: list[string] = []


class SaslAuthenticateRequest(Message, api_key=36, versions=(0, 2), flexible=2):
    """v2 flexible."""

    auth_bytes: bytes_ = b""


class SaslAuthenticateResponse(Message, api_key=36, versions=(0, 2), flexible=2):
    """v1 session lifetime (KIP-368), v2 flexible."""

    error_code: i16 = 0
    error_message: string | None = ""
    auth_bytes: bytes_ = b""
    session_lifetime_ms: Annotated[i64, since(1), ignorable] = 0
