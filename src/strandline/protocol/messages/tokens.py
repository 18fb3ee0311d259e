"""Delegation tokens: Create (38), Renew (39), Expire (40), Describe (41)."""

from __future__ import annotations

from typing import Annotated

from strandline.protocol.types import Message, Struct, bytes_, i16, i32, i64, since, string


class CreateDelegationTokenRequest(Message, api_key=38, versions=(1, 3), flexible=2):
    """v2 flexible, v3 on behalf of another owner (KIP-373)."""

    owner_principal_type: Annotated[string | None, since(3)] = ""
    owner_principal_name: Annotated[string | None, since(3)] = ""
    renewers: list[CreatableRenewers] = []
    max_lifetime_ms: i64 = 0


class CreatableRenewers(Struct):
    principal_type: string = ""
    principal_name: string = ""


class CreateDelegationTokenResponse(Message, api_key=38, versions=(1, 3), flexible=2):
    error_code: i16 = 0
    principal_type: string = ""
    principal_name: string = ""
    token_requester_principal_type: Annotated[string, since(3)] = ""
    token_requester_principal_name: Annotated[string, since(3)] = ""
    issue_timestamp_ms: i64 = 0
    expiry_timestamp_ms: i64 = 0
    max_timestamp_ms: i64 = 0
    token_id: string = ""
    hmac: bytes_ = b""
    throttle_time_ms: i32 = 0


class RenewDelegationTokenRequest(Message, api_key=39, versions=(1, 2), flexible=2):
    """v2 flexible."""

    hmac: bytes_ = b""
    renew_period_ms: i64 = 0


class RenewDelegationTokenResponse(Message, api_key=39, versions=(1, 2), flexible=2):
    error_code: i16 = 0
    expiry_timestamp_ms: i64 = 0
    throttle_time_ms: i32 = 0


class ExpireDelegationTokenRequest(Message, api_key=40, versions=(1, 2), flexible=2):
    """v2 flexible."""

    hmac: bytes_ = b""
    expiry_time_period_ms: i64 = 0


class ExpireDelegationTokenResponse(Message, api_key=40, versions=(1, 2), flexible=2):
    error_code: i16 = 0
    expiry_timestamp_ms: i64 = 0
    throttle_time_ms: i32 = 0


class DescribeDelegationTokenRequest(Message, api_key=41, versions=(1, 3), flexible=2):
    """v2 flexible. Null owners means all."""

    owners: list[DescribeDelegationTokenOwner] | None = []


class DescribeDelegationTokenOwner(Struct):
    principal_type: string = ""
    principal_name: string = ""


class DescribeDelegationTokenResponse(Message, api_key=41, versions=(1, 3), flexible=2):
    """v2 flexible, v3 the requester of the token."""

    error_code: i16 = 0
    tokens: list[DescribedDelegationToken] = []
    throttle_time_ms: i32 = 0


class DescribedDelegationToken(Struct):
    principal_type: string = ""
    principal_name: string = ""
    token_requester_principal_type: Annotated[string, since(3)] = ""
    token_requester_principal_name: Annotated[string, since(3)] = ""
    issue_timestamp: i64 = 0
    expiry_timestamp: i64 = 0
    max_timestamp: i64 = 0
    token_id: string = ""
    hmac: bytes_ = b""
    renewers: list[DescribedDelegationTokenRenewer] = []


class DescribedDelegationTokenRenewer(Struct):
    principal_type: string = ""
    principal_name: string = ""
