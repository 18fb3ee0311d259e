"""DescribeClientQuotas, AlterClientQuotas: valid and invalid quotas of entities, and filters that match them."""

from __future__ import annotations

from typing import Any

from cluster.handlers.script_run import ScriptRun
from cluster.handlers.script_runner import Listeners, script
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


def remove(key: str) -> OpData:
    return OpData(key=key, remove=True)


def wait_for_count(run: ScriptRun, count: int, short: str) -> None:
    """Waits until every change is replayed; then this many entities have quotas."""
    run.wait_until_replayed(short)
    assert len(run.call(DescribeClientQuotasRequest()).entries) == count


@script(ApiKey.ALTER_CLIENT_QUOTAS, Listeners.BOTH)
def quotas_altered(run: ScriptRun) -> None:
    user = run.name("user")

    def record(label: str, *entries: AlterClientQuotasRequestEntryData, **options: Any) -> AlterClientQuotasResponse:
        validate_only = options.pop("validate_only", False)
        request = AlterClientQuotasRequest(entries=list(entries), validate_only=validate_only)
        response: AlterClientQuotasResponse = run.record(label, request, unordered=UNORDERED, **options)
        return response

    def record_one(label: str, entity: Parts, op: OpData, **options: Any) -> None:
        record(label, entry(entity, op), **options)

    rate = put("producer_byte_rate", 1024.0)
    record("an empty request")
    record_one("of a user", {"user": user}, rate)
    record_one("of a user, only validated", {"user": user}, put("consumer_byte_rate", 9.0), validate_only=True)
    record_one("of a client id", {"client-id": run.name("client")}, rate)
    record_one(
        "of a user with a client id", {"user": user, "client-id": run.name("client")}, put("request_percentage", 0.5)
    )
    record_one("of the default user", {"user": None}, put("controller_mutation_rate", 2.5))
    record_one("of an address", {"ip": "192.0.2.1"}, put("connection_creation_rate", 7.0))
    record_one("of an invalid address", {"ip": "192.0.2.1.5"}, put("connection_creation_rate", 7.0))
    record_one("of an address and a user", {"ip": "192.0.2.1", "user": user}, rate)
    record_one("of an empty entity", {}, rate)
    record_one("of an unknown entity type", {"group": "g"}, rate)
    record_one("of an empty name", {"user": ""}, rate)
    record_one("an unknown key", {"user": user}, put("fame", 1.0))
    record_one("a key of addresses, of a user", {"user": user}, put("connection_creation_rate", 7.0))
    record_one("a key of users, of an address", {"ip": "192.0.2.1"}, rate)
    record_one("a rate of zero", {"user": user}, put("producer_byte_rate", 0.0))
    record_one("a negative percentage", {"user": user}, put("request_percentage", -1.0))
    record_one("a fraction of a byte", {"user": user}, put("producer_byte_rate", 10.5))
    record_one("too many connections", {"ip": "192.0.2.1"}, put("connection_creation_rate", 2.0**31))
    record_one("an absent key removed", {"user": user}, remove("request_percentage"))
    record_one("an unknown key, removed", {"user": user}, remove("fame"))
    record("a key twice", entry({"user": user}, rate, put("producer_byte_rate", 1.0)))
    record("an entity twice", entry({"user": user}, rate), entry({"user": user}, remove("producer_byte_rate")))
    record("good and bad together", entry({"user": user}, rate), entry({"user": ""}, rate))
    record("a good and a bad key together", entry({"user": user}, put("consumer_byte_rate", 5.0), put("fame", 1.0)))
    filter_ = DescribeClientQuotasRequest(components=[ComponentData(entity_type="user", match=user)], strict=True)
    wait_for_count(run, 5, "quotas")
    left = run.call(filter_)
    run.add("the resulting quotas", str(sorted((v.key, v.value) for e in left.entries or [] for v in e.values)))
    for entity in (
        {"user": user},
        {"user": user, "client-id": run.name("client")},
        {"client-id": run.name("client")},
    ):
        keys = ("producer_byte_rate", "consumer_byte_rate", "request_percentage")
        record_one(f"removed, of {sorted(entity)}", entity, remove(keys[0]))
        record(f"the rest removed, of {sorted(entity)}", entry(entity, *map(remove, keys)))
    record_one("removed, of the default user", {"user": None}, remove("controller_mutation_rate"))
    record_one("removed, of an address", {"ip": "192.0.2.1"}, remove("connection_creation_rate"))
    wait_for_count(run, 0, "removal")


@script(ApiKey.DESCRIBE_CLIENT_QUOTAS)
def quotas_described(run: ScriptRun) -> None:
    first, second, client = run.name("first"), run.name("second"), run.name("client")
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

    run.call(AlterClientQuotasRequest(entries=[entry(each, put(key(each), 10.0)) for each in entities]))
    wait_for_count(run, len(entities), "quotas")

    def record(label: str, *parts: tuple[str, int, str | None], strict: bool = False) -> None:
        components = [ComponentData(entity_type=kind, match_type=how, match=name) for kind, how, name in parts]
        request = DescribeClientQuotasRequest(components=components, strict=strict)
        run.record(label, request, unordered=UNORDERED)

    for strict in (False, True):
        suffix = ", strictly" if strict else ""
        record(f"everything{suffix}", strict=strict)
        record(f"a user{suffix}", ("user", 0, first), strict=strict)
        record(f"the default user{suffix}", ("user", 1, None), strict=strict)
        record(f"any user{suffix}", ("user", 2, None), strict=strict)
        record(f"a user with any client id{suffix}", ("user", 0, first), ("client-id", 2, None), strict=strict)
        record(f"any user with a client id{suffix}", ("user", 2, None), ("client-id", 0, client), strict=strict)
        record(f"an address{suffix}", ("ip", 0, "192.0.2.7"), strict=strict)
        record(f"any address{suffix}", ("ip", 2, None), strict=strict)
        record(f"a user without quotas{suffix}", ("user", 0, "nobody"), strict=strict)
    record("an address and a user", ("ip", 2, None), ("user", 2, None))
    record("a type twice", ("user", 2, None), ("user", 1, None))
    record("an empty type", ("", 2, None))
    record("an unknown type", ("group", 2, None))
    record("an exact match without a name", ("user", 0, None))
    record("the default, by name", ("user", 1, "name"))
    record("any, by name", ("user", 2, "name"))
    record("an unknown match type", ("user", 9, None))
    run.call(AlterClientQuotasRequest(entries=[entry(each, remove(key(each))) for each in entities]))
    wait_for_count(run, 0, "removal")
