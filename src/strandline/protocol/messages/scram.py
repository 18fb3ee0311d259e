"""SCRAM credentials: DescribeUserScramCredentials (50), AlterUserScramCredentials (51)."""

from __future__ import annotations

from strandline.protocol.types import Message, Struct, bytes_, i8, i16, i32, string


class DescribeUserScramCredentialsRequest(Message, api_key=50, versions=(0, 0), flexible=0):
    """KIP-554. Null users means all."""

    users: list[UserName] | None = []


class UserName(Struct):
    name: string = ""


class DescribeUserScramCredentialsResponse(Message, api_key=50, versions=(0, 0), flexible=0):
    throttle_time_ms: i32 = 0
    error_code: i16 = 0
    error_message: string | None = ""
    results: list[DescribeUserScramCredentialsResult] = []


class DescribeUserScramCredentialsResult(Struct):
    user: string = ""
    error_code: i16 = 0
    error_message: string | None = ""
    credential_infos: list[CredentialInfo] = []


class CredentialInfo(Struct):
    mechanism: i8 = 0
    iterations: i32 = 0


class AlterUserScramCredentialsRequest(Message, api_key=51, versions=(0, 0), flexible=0):
    """KIP-554. The client salts the password; the password itself is not sent."""

    deletions: list[ScramCredentialDeletion] = []
    upsertions: list[ScramCredentialUpsertion] = []


class ScramCredentialDeletion(Struct):
    name: string = ""
    mechanism: i8 = 0


class ScramCredentialUpsertion(Struct):
    name: string = ""
    mechanism: i8 = 0
    iterations: i32 = 0
    salt: bytes_ = b""
    salted_password: bytes_ = b""


class AlterUserScramCredentialsResponse(Message, api_key=51, versions=(0, 0), flexible=0):
    throttle_time_ms: i32 = 0
    results: list[AlterUserScramCredentialsResult] = []


class AlterUserScramCredentialsResult(Struct):
    user: string = ""
    error_code: i16 = 0
    error_message: string | None = ""
