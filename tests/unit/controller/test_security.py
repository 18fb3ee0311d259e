"""SCRAM credentials, ACLs and delegation tokens."""

from __future__ import annotations

import hashlib
import hmac
from random import Random
from typing import Any

import pytest

from strandline.controller.acls import Acls
from strandline.controller.delegation_tokens import expire_tokens
from strandline.controller.scram import Scram
from strandline.model.errors import ErrorCode, KafkaError
from strandline.protocol.messages.acls import (
    AclCreation,
    CreateAclsRequest,
    DeleteAclsFilter,
    DeleteAclsRequest,
    DeleteAclsResponse,
)
from strandline.protocol.messages.metadata_records import DelegationTokenRecord, FeatureLevelRecord
from strandline.protocol.messages.scram import (
    AlterUserScramCredentialsRequest,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)
from unit.controller.machine_cluster import MachineCluster

SHA_256, SHA_512 = 1, 2


def salted(password: bytes, salt: bytes, iterations: int, digest: str) -> bytes:
    return hashlib.pbkdf2_hmac(digest, password, salt, iterations)


def upsert(name: str, mechanism: int = SHA_256, iterations: int = 4096) -> ScramCredentialUpsertion:
    digest = "sha256" if mechanism == SHA_256 else "sha512"
    return ScramCredentialUpsertion(
        name=name,
        mechanism=mechanism,
        iterations=iterations,
        salt=b"pepper",
        salted_password=salted(b"secret", b"pepper", iterations, digest),
    )


def alter(
    cluster: MachineCluster, *changes: ScramCredentialUpsertion | ScramCredentialDeletion
) -> dict[str, ErrorCode]:
    request = AlterUserScramCredentialsRequest(
        deletions=[each for each in changes if isinstance(each, ScramCredentialDeletion)],
        upsertions=[each for each in changes if isinstance(each, ScramCredentialUpsertion)],
    )
    response = cluster.decide(Scram(cluster.view).alter(request))
    return {each.user: ErrorCode(each.error_code) for each in response.results}


@pytest.mark.parametrize(("mechanism", "digest"), [(SHA_256, "sha256"), (SHA_512, "sha512")])
def test_a_stored_credential_verifies_the_password_by_rfc_5802(mechanism: int, digest: str) -> None:
    cluster = MachineCluster(0)
    assert alter(cluster, upsert("alice", mechanism)) == {"alice": ErrorCode.NONE}
    kept = cluster.view.scram_credential("alice", mechanism)
    assert kept is not None
    # The client's proof, for any authentication message.
    message = b"the exchange so far"
    client_key = hmac.digest(salted(b"secret", b"pepper", 4096, digest), b"Client Key", digest)
    signature = hmac.digest(kept.stored_key, message, digest)
    proof = bytes(a ^ b for a, b in zip(client_key, signature, strict=True))
    recovered = bytes(a ^ b for a, b in zip(proof, signature, strict=True))
    assert hashlib.new(digest, recovered).digest() == kept.stored_key
    assert kept.server_key == hmac.digest(salted(b"secret", b"pepper", 4096, digest), b"Server Key", digest)
    assert b"secret" not in kept.stored_key + kept.server_key


def test_a_credential_is_replaced_and_deleted_by_mechanism() -> None:
    cluster = MachineCluster(0)
    alter(cluster, upsert("alice"))
    alter(cluster, upsert("alice", SHA_512))
    alter(cluster, upsert("alice", iterations=8192))
    assert [(c.mechanism, c.iterations) for c in cluster.view.scram_credentials()] == [(1, 8192), (2, 4096)]
    assert alter(cluster, ScramCredentialDeletion(name="alice", mechanism=SHA_256)) == {"alice": ErrorCode.NONE}
    assert [c.mechanism for c in cluster.view.scram_credentials()] == [SHA_512]


@pytest.mark.parametrize(
    ("change", "code"),
    [
        (upsert(""), ErrorCode.UNACCEPTABLE_CREDENTIAL),
        (upsert("a", 3), ErrorCode.UNSUPPORTED_SASL_MECHANISM),
        (upsert("a", iterations=4095), ErrorCode.UNACCEPTABLE_CREDENTIAL),
        (upsert("a", iterations=16385), ErrorCode.UNACCEPTABLE_CREDENTIAL),
        (ScramCredentialUpsertion(name="a", mechanism=1, iterations=4096), ErrorCode.UNACCEPTABLE_CREDENTIAL),
        (ScramCredentialDeletion(name="a", mechanism=1), ErrorCode.RESOURCE_NOT_FOUND),
        (ScramCredentialDeletion(name="a", mechanism=7), ErrorCode.UNSUPPORTED_SASL_MECHANISM),
    ],
)
def test_an_invalid_alteration_does_not_affect_the_others(
    change: ScramCredentialUpsertion | ScramCredentialDeletion, code: ErrorCode
) -> None:
    cluster = MachineCluster(0)
    assert alter(cluster, change, upsert("bob")) == {change.name: code, "bob": ErrorCode.NONE}
    assert [c.name for c in cluster.view.scram_credentials()] == ["bob"]


def test_a_user_altered_twice_in_a_request_is_rejected() -> None:
    cluster = MachineCluster(0)
    assert alter(cluster, upsert("alice"), upsert("alice", SHA_512)) == {"alice": ErrorCode.DUPLICATE_RESOURCE}
    assert cluster.view.scram_credentials() == []


def test_credentials_are_rejected_below_the_metadata_version_that_introduced_them() -> None:
    cluster = MachineCluster(0, elr=False)
    cluster.write(FeatureLevelRecord(name="metadata.version", feature_level=10))
    assert alter(cluster, upsert("alice")) == {"alice": ErrorCode.UNSUPPORTED_VERSION}


def creation(**fields: Any) -> AclCreation:
    given: dict[str, Any] = {
        "resource_type": 2,
        "resource_name": "orders",
        "resource_pattern_type": 3,
        "principal": "User:alice",
        "host": "*",
        "operation": 3,
        "permission_type": 3,
    }
    return AclCreation(**{**given, **fields})


class Access:
    """ACLs of a cluster."""

    def __init__(self, *, authorizer: bool = True) -> None:
        self.cluster = MachineCluster(0)
        self.acls = Acls(self.cluster.view, Random(1), authorizer=authorizer)

    def create(self, *creations: AclCreation) -> list[ErrorCode]:
        response = self.cluster.decide(self.acls.create(CreateAclsRequest(creations=list(creations))))
        return [ErrorCode(each.error_code) for each in response.results]

    def delete(self, **fields: Any) -> DeleteAclsResponse:
        given: dict[str, Any] = {
            "resource_type_filter": 1,
            "resource_name_filter": None,
            "pattern_type_filter": 1,
            "principal_filter": None,
            "host_filter": None,
            "operation": 1,
            "permission_type": 1,
        }
        request = DeleteAclsRequest(filters=[DeleteAclsFilter(**{**given, **fields})])
        return self.cluster.decide(self.acls.delete(request))

    def names(self) -> list[str]:
        return sorted(acl.resource_name for acl in self.cluster.view.acls())


def test_without_an_authorizer_acls_are_neither_created_nor_deleted() -> None:
    access = Access(authorizer=False)
    for decide in (lambda: access.create(creation()), lambda: access.delete()):
        with pytest.raises(KafkaError) as error:
            decide()
        assert error.value.code is ErrorCode.SECURITY_DISABLED


def test_creating_an_existing_acl_writes_nothing() -> None:
    access = Access()
    assert access.create(creation(), creation(), creation(operation=4)) == [ErrorCode.NONE] * 3
    assert access.create(creation()) == [ErrorCode.NONE]
    assert len(access.cluster.view.acls()) == 2
    assert len({acl.id for acl in access.cluster.view.acls()}) == 2


@pytest.mark.parametrize(
    "fields",
    [
        {"resource_type": 1},
        {"resource_type": 8},
        {"resource_pattern_type": 2},
        {"operation": 1},
        {"operation": 16},
        {"permission_type": 1},
        {"resource_name": ""},
        {"principal": "alice"},
    ],
)
def test_an_invalid_acl_is_rejected(fields: dict[str, Any]) -> None:
    access = Access()
    assert access.create(creation(**fields), creation()) == [ErrorCode.INVALID_REQUEST, ErrorCode.NONE]
    assert len(access.cluster.view.acls()) == 1


@pytest.mark.parametrize(
    ("fields", "deleted"),
    [
        ({}, ["*", "ord", "orders", "users"]),
        ({"resource_name_filter": "orders"}, ["orders"]),
        ({"resource_name_filter": "orders", "pattern_type_filter": 2}, ["*", "ord", "orders"]),
        ({"resource_name_filter": "order", "pattern_type_filter": 4}, []),
        ({"pattern_type_filter": 4}, ["ord"]),
        ({"principal_filter": "User:bob"}, ["users"]),
        ({"host_filter": "192.0.2.1"}, []),
        ({"operation": 4}, []),
        ({"permission_type": 2}, []),
        ({"resource_type_filter": 3}, []),
    ],
)
def test_acls_are_deleted_by_filter(fields: dict[str, Any], deleted: list[str]) -> None:
    access = Access()
    access.create(
        creation(),
        creation(resource_name="ord", resource_pattern_type=4),
        creation(resource_name="*"),
        creation(resource_name="users", principal="User:bob"),
    )
    response = access.delete(**fields)
    assert sorted(acl.resource_name for acl in response.filter_results[0].matching_acls) == deleted
    assert access.names() == sorted({"*", "ord", "orders", "users"}.difference(deleted))


def test_a_filter_with_an_unknown_code_is_rejected() -> None:
    access = Access()
    access.create(creation())
    assert access.delete(operation=0).filter_results[0].error_code == ErrorCode.INVALID_REQUEST
    assert access.names() == ["orders"]


def test_expired_tokens_are_removed_a_thousand_at_a_time() -> None:
    cluster = MachineCluster(0)
    for number in range(1200):
        cluster.write(DelegationTokenRecord(token_id=f"t{number:04}", expiration_timestamp=500, max_timestamp=900))
    cluster.write(
        DelegationTokenRecord(token_id="kept", expiration_timestamp=1000, max_timestamp=1000),
        DelegationTokenRecord(token_id="too old", expiration_timestamp=5000, max_timestamp=900),
    )
    assert cluster.decide(expire_tokens(cluster.view, 1000)) is True
    assert len(cluster.view.tokens()) == 202
    assert cluster.decide(expire_tokens(cluster.view, 1000)) is False
    assert [token.token_id for token in cluster.view.tokens()] == ["kept"]
    before = cluster.image.end_offset
    assert cluster.decide(expire_tokens(cluster.view, 1000)) is False
    assert cluster.image.end_offset == before
