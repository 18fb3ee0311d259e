"""DescribeClientQuotas, AlterClientQuotas: who may have which quota, and who is found by which filter."""

from __future__ import annotations

from typing import Any

from cluster.handlers.scripts.running import Asked, script
from cluster.handlers.talk import Talk
from strandline.protocol.apis import ApiKey
from strandline.protocol.messages.quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasRequestEntryData,
    AlterClientQuotasResponse,
    ComponentData,
    DescribeClientQuotasRequest,
    EntityData,
    OpData,
)

Parts = dict[str, str | None]
UNORDERED = ("entries", "entity", "values")


def entry(entity: Parts, *ops: OpData) -> AlterClientQuotasRequestEntryData:
    parts = [EntityData(entity_type=kind, entity_name=name) for kind, name in entity.items()]
    return AlterClientQuotasRequestEntryData(entity=parts, ops=list(ops))


def put(key: str, value: float) -> OpData:
    return OpData(key=key, value=value)


def take(key: str) -> OpData:
    return OpData(key=key, remove=True)


def are(talk: Talk, count: int, short: str) -> None:
    """Every change is known, and so many entities have quotas then."""
    talk.settle(short)
    assert len(talk.quietly(DescribeClientQuotasRequest()).entries) == count


@script(ApiKey.ALTER_CLIENT_QUOTAS, Asked.BOTH)
def quotas_altered(talk: Talk) -> None:
    user = talk.name("user")

    def ask(label: str, *entries: AlterClientQuotasRequestEntryData, **options: Any) -> AlterClientQuotasResponse:
        validate_only = options.pop("validate_only", False)
        request = AlterClientQuotasRequest(entries=list(entries), validate_only=validate_only)
        answer: AlterClientQuotasResponse = talk.ask(label, request, unordered=UNORDERED, **options)
        return answer

    def alone(label: str, entity: Parts, op: OpData, **options: Any) -> None:
        ask(label, entry(entity, op), **options)

    rate = put("producer_byte_rate", 1024.0)
    ask("nothing")
    alone("of a user", {"user": user}, rate)
    alone("of a user, only validated", {"user": user}, put("consumer_byte_rate", 9.0), validate_only=True)
    alone("of a client id", {"client-id": talk.name("client")}, rate)
    alone(
        "of a user with a client id", {"user": user, "client-id": talk.name("client")}, put("request_percentage", 0.5)
    )
    alone("of everybody else", {"user": None}, put("controller_mutation_rate", 2.5))
    alone("of an address", {"ip": "192.0.2.1"}, put("connection_creation_rate", 7.0))
    alone("of an address that is a word too many", {"ip": "192.0.2.1.5"}, put("connection_creation_rate", 7.0))
    alone("of an address and a user", {"ip": "192.0.2.1", "user": user}, rate)
    alone("of nobody", {}, rate)
    alone("of a type that is not there", {"group": "g"}, rate)
    alone("of an empty name", {"user": ""}, rate)
    alone("a key that is not there", {"user": user}, put("fame", 1.0))
    alone("a key of addresses, of a user", {"user": user}, put("connection_creation_rate", 7.0))
    alone("a key of users, of an address", {"ip": "192.0.2.1"}, rate)
    alone("nothing per second", {"user": user}, put("producer_byte_rate", 0.0))
    alone("less than nothing", {"user": user}, put("request_percentage", -1.0))
    alone("half a byte", {"user": user}, put("producer_byte_rate", 10.5))
    alone("too many connections", {"ip": "192.0.2.1"}, put("connection_creation_rate", 2.0**31))
    alone("what is not there, removed", {"user": user}, take("request_percentage"))
    alone("an unknown key, removed", {"user": user}, take("fame"))
    ask("a key twice", entry({"user": user}, rate, put("producer_byte_rate", 1.0)))
    ask("an entity twice", entry({"user": user}, rate), entry({"user": user}, take("producer_byte_rate")))
    ask("good and bad together", entry({"user": user}, rate), entry({"user": ""}, rate))
    ask("a good and a bad key together", entry({"user": user}, put("consumer_byte_rate", 5.0), put("fame", 1.0)))
    filter_ = DescribeClientQuotasRequest(components=[ComponentData(entity_type="user", match=user)], strict=True)
    are(talk, 5, "the-quotas")
    left = talk.quietly(filter_)
    talk.note("what has come of it", str(sorted((v.key, v.value) for e in left.entries or [] for v in e.values)))
    for entity in (
        {"user": user},
        {"user": user, "client-id": talk.name("client")},
        {"client-id": talk.name("client")},
    ):
        keys = ("producer_byte_rate", "consumer_byte_rate", "request_percentage")
        alone(f"removed, of {sorted(entity)}", entity, take(keys[0]))
        ask(f"the rest removed, of {sorted(entity)}", entry(entity, *map(take, keys)))
    alone("removed, of everybody else", {"user": None}, take("controller_mutation_rate"))
    alone("removed, of an address", {"ip": "192.0.2.1"}, take("connection_creation_rate"))
    are(talk, 0, "their-end")


@script(ApiKey.DESCRIBE_CLIENT_QUOTAS)
def quotas_described(talk: Talk) -> None:
    first, second, client = talk.name("first"), talk.name("second"), talk.name("client")
    entities: list[Parts] = [
        {"user": first},
        {"user": second},
        {"user": None},
        {"client-id": client},
        {"user": first, "client-id": client},
        {"user": first, "client-id": None},
        {"ip": "192.0.2.7"},
        {"ip": None},
    ]

    def key(entity: Parts) -> str:
        return "connection_creation_rate" if "ip" in entity else "producer_byte_rate"

    talk.quietly(AlterClientQuotasRequest(entries=[entry(each, put(key(each), 10.0)) for each in entities]))
    are(talk, len(entities), "the-quotas")

    def ask(label: str, *parts: tuple[str, int, str | None], strict: bool = False) -> None:
        components = [ComponentData(entity_type=kind, match_type=how, match=name) for kind, how, name in parts]
        request = DescribeClientQuotasRequest(components=components, strict=strict)
        talk.ask(label, request, unordered=UNORDERED)

    for strict in (False, True):
        said = ", strictly" if strict else ""
        ask(f"everything{said}", strict=strict)
        ask(f"a user{said}", ("user", 0, first), strict=strict)
        ask(f"the default user{said}", ("user", 1, None), strict=strict)
        ask(f"any user{said}", ("user", 2, None), strict=strict)
        ask(f"a user with any client id{said}", ("user", 0, first), ("client-id", 2, None), strict=strict)
        ask(f"any user with a client id{said}", ("user", 2, None), ("client-id", 0, client), strict=strict)
        ask(f"an address{said}", ("ip", 0, "192.0.2.7"), strict=strict)
        ask(f"any address{said}", ("ip", 2, None), strict=strict)
        ask(f"a user that has none{said}", ("user", 0, "nobody"), strict=strict)
    ask("an address and a user", ("ip", 2, None), ("user", 2, None))
    ask("a type twice", ("user", 2, None), ("user", 1, None))
    ask("an empty type", ("", 2, None))
    ask("a type that is not there", ("group", 2, None))
    ask("exactly nobody", ("user", 0, None))
    ask("the default, by name", ("user", 1, "name"))
    ask("any, by name", ("user", 2, "name"))
    ask("a way to match that is not there", ("user", 9, None))
    talk.quietly(AlterClientQuotasRequest(entries=[entry(each, take(key(each))) for each in entities]))
    are(talk, 0, "their-end")
