"""Delegation tokens: Create (38), Renew (39), Expire (40), Describe (41). All are rejected: a token is issued to an
authenticated principal, and there are only listeners without authentication."""

from __future__ import annotations

from typing import Final

from strandline.handlers.context import Call, NodeContext
from strandline.model.errors import ErrorCode
from strandline.protocol.messages.tokens import (
    CreateDelegationTokenRequest,
    CreateDelegationTokenResponse,
    DescribeDelegationTokenRequest,
    DescribeDelegationTokenResponse,
    ExpireDelegationTokenRequest,
    ExpireDelegationTokenResponse,
    RenewDelegationTokenRequest,
    RenewDelegationTokenResponse,
)

_NOT_ALLOWED: Final = ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED
_NO_TIME: Final = -1


async def handle_create_delegation_token(
    node: NodeContext, call: Call, request: CreateDelegationTokenRequest
) -> CreateDelegationTokenResponse:
    kind, _, name = call.principal.partition(":")
    # Before version 3 a token was always for the requester itself.
    requester = (kind, name) if call.version >= 3 else ("", "")
    return CreateDelegationTokenResponse(
        error_code=_NOT_ALLOWED,
        principal_type=kind,
        principal_name=name,
        token_requester_principal_type=requester[0],
        token_requester_principal_name=requester[1],
        issue_timestamp_ms=_NO_TIME,
        expiry_timestamp_ms=_NO_TIME,
        max_timestamp_ms=_NO_TIME,
    )


async def handle_renew_delegation_token(
    node: NodeContext, call: Call, request: RenewDelegationTokenRequest
) -> RenewDelegationTokenResponse:
    return RenewDelegationTokenResponse(error_code=_NOT_ALLOWED, expiry_timestamp_ms=_NO_TIME)


async def handle_expire_delegation_token(
    node: NodeContext, call: Call, request: ExpireDelegationTokenRequest
) -> ExpireDelegationTokenResponse:
    return ExpireDelegationTokenResponse(error_code=_NOT_ALLOWED, expiry_timestamp_ms=_NO_TIME)


async def handle_describe_delegation_token(
    node: NodeContext, call: Call, request: DescribeDelegationTokenRequest
) -> DescribeDelegationTokenResponse:
    return DescribeDelegationTokenResponse(error_code=_NOT_ALLOWED)
