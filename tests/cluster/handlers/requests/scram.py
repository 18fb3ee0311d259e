"""DescribeUserScramCredentials, AlterUserScramCredentials."""

from __future__ import annotations

from typing import Any

from cluster.handlers.script_run import CONTROLLER_THROWS, ScriptRun
from cluster.handlers.script_runner import Listeners, script
from strandline.protocol.apis import ApiKey
from strandline.protocol.messages.scram import (
    AlterUserScramCredentialsRequest,
    DescribeUserScramCredentialsRequest,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
    UserName,
)

UNORDERED = ("results", "credential_infos")


def upsert(name: str, mechanism: int = 1, **fields: Any) -> ScramCredentialUpsertion:
    given: dict[str, Any] = {"iterations": 4096, "salt": b"salt", "salted_password": b"secret" * 5}
    return ScramCredentialUpsertion(name=name, mechanism=mechanism, **{**given, **fields})


def delete(name: str, mechanism: int = 1) -> ScramCredentialDeletion:
    return ScramCredentialDeletion(name=name, mechanism=mechanism)


def altering(*changes: ScramCredentialUpsertion | ScramCredentialDeletion) -> AlterUserScramCredentialsRequest:
    return AlterUserScramCredentialsRequest(
        deletions=[each for each in changes if isinstance(each, ScramCredentialDeletion)],
        upsertions=[each for each in changes if isinstance(each, ScramCredentialUpsertion)],
    )


def wait_for_users(run: ScriptRun, users: set[str], short: str) -> None:
    """Waits until every change is replayed; then these users have credentials."""
    run.wait_until_replayed(short)
    results = run.call(DescribeUserScramCredentialsRequest(users=None)).results
    assert {each.user for each in results} == users


@script(ApiKey.ALTER_USER_SCRAM_CREDENTIALS, Listeners.BOTH)
def credentials_altered(run: ScriptRun) -> None:
    def record(label: str, *changes: ScramCredentialUpsertion | ScramCredentialDeletion, **options: Any) -> None:
        run.record(label, altering(*changes), unordered=UNORDERED, **options)

    user, other = run.name("user"), run.name("other")
    record("an empty request")
    record("one created", upsert(user))
    record("replaced", upsert(user, iterations=8192))
    record("another mechanism", upsert(user, 2))
    record("two users", upsert(user), upsert(other))
    record("an unknown mechanism", upsert(user, 3))
    record("a negative mechanism", upsert(user, -1))
    record("no name", upsert(""))
    record("too few iterations", upsert(user, iterations=4095))
    record("too many iterations", upsert(user, iterations=16385))
    record("the largest number of iterations", upsert(user, iterations=16384))
    record("no salt", upsert(user, salt=b""))
    record(
        "no salted password",
        upsert(other, 2, salted_password=b""),
        differs="Kafka throws an exception: a key may not be empty",
    )
    record("a user twice", upsert(user), upsert(user, 2))
    record("created and deleted in one request", upsert(user), delete(user))
    record("a bad one twice", upsert(user, 3), upsert(user))
    record("good and bad together", upsert(user), upsert(other, iterations=1))
    record("an unknown user deleted", delete(run.name("nobody")))
    record("a mechanism deleted that the user does not have", delete(other, 2))
    record("deleted with no name", delete(""))
    record("deleted by an unknown mechanism", delete(user, 9))
    record("deleted", delete(other))
    record("deleted twice", delete(user, 1), delete(user, 2))
    for mechanism in (1, 2):
        record(f"deleted, mechanism {mechanism}", delete(user, mechanism))


@script(ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS, Listeners.BOTH)
def credentials_described(run: ScriptRun) -> None:
    first, second = run.name("first"), run.name("second")
    run.call(altering(upsert(first), upsert(second, 2, iterations=8192)))
    run.call(altering(upsert(first, 2)))

    wait_for_users(run, {first, second}, "credentials")
    differs = CONTROLLER_THROWS if run.controller else None

    def record(label: str, users: list[str] | None) -> None:
        names = None if users is None else [UserName(name=name) for name in users]
        if run.controller and run.node.is_kafka and users is None:
            run.add(label, "never responds", differs)
            return
        request = DescribeUserScramCredentialsRequest(users=names)
        run.record(label, request, unordered=UNORDERED, differs=differs)

    record("all, by null", None)
    record("all, by an empty list", [])
    record("one", [first])
    record("one twice", [first, first])
    record("one known, one unknown", [second, "nobody"])
    record("no name", [""])
    for name, mechanism in ((first, 1), (first, 2), (second, 2)):
        run.call(altering(delete(name, mechanism)))
    wait_for_users(run, set(), "deletion")
