"""DescribeUserScramCredentials (50), from committed metadata: mechanisms and iterations, no secrets."""

from __future__ import annotations

from collections import Counter

from strandline.handlers.context import Call, NodeContext
from strandline.model.errors import ErrorCode
from strandline.protocol.messages.scram import (
    CredentialInfo,
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
    DescribeUserScramCredentialsResult,
)


async def handle_describe_user_scram_credentials(
    node: NodeContext, call: Call, request: DescribeUserScramCredentialsRequest
) -> DescribeUserScramCredentialsResponse:
    """An empty or null list of users means every user that has a credential."""
    known: dict[str, list[CredentialInfo]] = {}
    for credential in sorted(node.view.scram_credentials(), key=lambda each: (each.name, each.mechanism)):
        info = CredentialInfo(mechanism=credential.mechanism, iterations=credential.iterations)
        known.setdefault(credential.name, []).append(info)
    named = Counter(user.name for user in request.users) if request.users else dict.fromkeys(known, 1)
    results = [_described(name, times, known.get(name, [])) for name, times in named.items()]
    return DescribeUserScramCredentialsResponse(results=results)


def _described(name: str, times: int, infos: list[CredentialInfo]) -> DescribeUserScramCredentialsResult:
    code, why = ErrorCode.NONE, ""
    if times > 1:
        code, why, infos = ErrorCode.DUPLICATE_RESOURCE, "the request names the user twice", []
    elif not infos:
        code, why = ErrorCode.RESOURCE_NOT_FOUND, "the user has no credential"
    return DescribeUserScramCredentialsResult(user=name, error_code=code, error_message=why, credential_infos=infos)
