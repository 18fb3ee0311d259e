"""SCRAM credentials: AlterUserScramCredentials (51). Clients send salted and hashed passwords only.

The stored keys (RFC 5802) verify that a client knows the password without revealing it: StoredKey is the hash of
ClientKey = HMAC(salted password, "Client Key"), ServerKey = HMAC(salted password, "Server Key"). A user may appear only
once in a request, whatever the mechanism; each user has its own result.
"""

from __future__ import annotations

from collections import Counter
from typing import Final

from strandline.controller.decisions import Decision, check_size
from strandline.metadata.record_versions import SCRAM_SINCE
from strandline.metadata.views import View
from strandline.model.errors import ErrorCode, KafkaError
from strandline.protocol.messages.metadata_records import RemoveUserScramCredentialRecord, UserScramCredentialRecord
from strandline.protocol.messages.scram import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    AlterUserScramCredentialsResult,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)
from strandline.protocol.types import Message

# Kafka's codes of SCRAM-SHA-256 and SCRAM-SHA-512.
MECHANISMS: Final = {1: "sha256", 2: "sha512"}
_MIN_ITERATIONS: Final = 4096
_MAX_ITERATIONS: Final = 16384

Alteration = ScramCredentialDeletion | ScramCredentialUpsertion


class Scram:
    def __init__(self, view: View) -> None:
        self._view = view

    def alter(self, request: AlterUserScramCredentialsRequest) -> Decision[AlterUserScramCredentialsResponse]:
        alterations: list[Alteration] = [*request.deletions, *request.upsertions]
        times = Counter(each.name for each in alterations)
        records: list[Message] = []
        results: dict[str, AlterUserScramCredentialsResult] = {}
        for each in alterations:
            if each.name in results:
                continue
            code, why = ErrorCode.NONE, None
            try:
                record = self._change(each)
                if times[each.name] > 1:
                    raise KafkaError(ErrorCode.DUPLICATE_RESOURCE, "a user is altered twice in one request")
                records.append(record)
            except KafkaError as error:
                code, why = error.code, error.why
            results[each.name] = AlterUserScramCredentialsResult(user=each.name, error_code=code, error_message=why)
        check_size(len(records))
        return Decision(AlterUserScramCredentialsResponse(results=list(results.values())), records)

    def _change(self, alteration: Alteration) -> Message:
        if self._view.metadata_version < SCRAM_SINCE:
            raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, f"SCRAM needs metadata.version {SCRAM_SINCE}")
        if not alteration.name:
            raise KafkaError(ErrorCode.UNACCEPTABLE_CREDENTIAL, "the user name is empty")
        if alteration.mechanism not in MECHANISMS:
            raise KafkaError(ErrorCode.UNSUPPORTED_SASL_MECHANISM, f"{alteration.mechanism} is not a SCRAM mechanism")
        if isinstance(alteration, ScramCredentialUpsertion):
            return _credential(alteration)
        if self._view.scram_credential(alteration.name, alteration.mechanism) is None:
            raise KafkaError(ErrorCode.RESOURCE_NOT_FOUND, f"{alteration.name!r} has no such credential")
        return RemoveUserScramCredentialRecord(name=alteration.name, mechanism=alteration.mechanism)


def _credential(upsertion: ScramCredentialUpsertion) -> UserScramCredentialRecord:
    import hashlib  # slow to import, and not needed to start a node
    import hmac

    if not _MIN_ITERATIONS <= upsertion.iterations <= _MAX_ITERATIONS:
        raise KafkaError(
            ErrorCode.UNACCEPTABLE_CREDENTIAL,
            f"{upsertion.iterations} iterations: there must be {_MIN_ITERATIONS} to {_MAX_ITERATIONS}",
        )
    if not upsertion.salted_password:
        raise KafkaError(ErrorCode.UNACCEPTABLE_CREDENTIAL, "the salted password is empty")
    digest, salted = MECHANISMS[upsertion.mechanism], bytes(upsertion.salted_password)
    client_key = hmac.digest(salted, b"Client Key", digest)
    return UserScramCredentialRecord(
        name=upsertion.name,
        mechanism=upsertion.mechanism,
        salt=bytes(upsertion.salt),
        stored_key=hashlib.new(digest, client_key).digest(),
        server_key=hmac.digest(salted, b"Server Key", digest),
        iterations=upsertion.iterations,
    )
