"""DescribeUserScramCredentials, AlterUserScramCredentials: what is kept of passwords, and what is told of them."""

from __future__ import annotations

from typing import Any

from cluster.handlers.scripts.running import Asked, script
from cluster.handlers.talk import Talk
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


def are(talk: Talk, users: set[str], short: str) -> None:
    """Every change is known, and these users have credentials then."""
    talk.settle(short)
    results = talk.quietly(DescribeUserScramCredentialsRequest(users=None)).results
    assert {each.user for each in results} == users


@script(ApiKey.ALTER_USER_SCRAM_CREDENTIALS, Asked.BOTH)
def credentials_altered(talk: Talk) -> None:
    def ask(label: str, *changes: ScramCredentialUpsertion | ScramCredentialDeletion, **options: Any) -> None:
        talk.ask(label, altering(*changes), unordered=UNORDERED, **options)

    user, other = talk.name("user"), talk.name("other")
    ask("nothing")
    ask("one made", upsert(user))
    ask("made anew", upsert(user, iterations=8192))
    ask("another mechanism", upsert(user, 2))
    ask("two users", upsert(user), upsert(other))
    ask("a mechanism that is not there", upsert(user, 3))
    ask("a mechanism below zero", upsert(user, -1))
    ask("no name", upsert(""))
    ask("too few iterations", upsert(user, iterations=4095))
    ask("too many iterations", upsert(user, iterations=16385))
    ask("as many iterations as may be", upsert(user, iterations=16384))
    ask("no salt", upsert(user, salt=b""))
    ask(
        "no salted password",
        upsert(other, 2, salted_password=b""),
        differs="Kafka fails in its own code, for a key may not be empty",
    )
    ask("a user twice", upsert(user), upsert(user, 2))
    ask("made and deleted at once", upsert(user), delete(user))
    ask("a bad one twice", upsert(user, 3), upsert(user))
    ask("good and bad together", upsert(user), upsert(other, iterations=1))
    ask("one deleted that is not there", delete(talk.name("nobody")))
    ask("a mechanism deleted that is not there", delete(other, 2))
    ask("deleted with no name", delete(""))
    ask("deleted by a mechanism that is unknown", delete(user, 9))
    ask("deleted", delete(other))
    ask("deleted twice", delete(user, 1), delete(user, 2))
    for mechanism in (1, 2):
        ask(f"deleted, mechanism {mechanism}", delete(user, mechanism))


@script(ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS, Asked.BOTH)
def credentials_described(talk: Talk) -> None:
    first, second = talk.name("first"), talk.name("second")
    talk.quietly(altering(upsert(first), upsert(second, 2, iterations=8192)))
    talk.quietly(altering(upsert(first, 2)))

    are(talk, {first, second}, "the-credentials")
    differs = "a controller of Kafka's advertises this and fails in its own code" if talk.controller else None

    def ask(label: str, users: list[str] | None) -> None:
        names = None if users is None else [UserName(name=name) for name in users]
        if talk.controller and talk.target.is_kafka and users is None:
            talk.note(label, "never answers", differs)
            return
        request = DescribeUserScramCredentialsRequest(users=names)
        talk.ask(label, request, unordered=UNORDERED, differs=differs)

    ask("all, by null", None)
    ask("all, by an empty list", [])
    ask("one", [first])
    ask("one twice", [first, first])
    ask("one that is there and one that is not", [second, "nobody"])
    ask("no name", [""])
    for name, mechanism in ((first, 1), (first, 2), (second, 2)):
        talk.quietly(altering(delete(name, mechanism)))
    are(talk, set(), "their-end")
