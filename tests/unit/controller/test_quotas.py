"""AlterClientQuotas."""

from __future__ import annotations

import math

import pytest

from strandline.controller.quotas import Quotas
from strandline.metadata.values import QuotaEntity
from strandline.model.errors import ErrorCode
from strandline.protocol.messages.quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasRequestEntryData,
    EntityData,
    OpData,
)
from unit.controller.machine_cluster import MachineCluster

ALICE: QuotaEntity = (("user", "alice"),)
BOTH: QuotaEntity = (("client-id", "c"), ("user", "alice"))
ADDRESS: QuotaEntity = (("ip", "192.0.2.1"),)


def entry(entity: QuotaEntity, **rates: float | None) -> AlterClientQuotasRequestEntryData:
    return AlterClientQuotasRequestEntryData(
        entity=[EntityData(entity_type=kind, entity_name=name) for kind, name in reversed(entity)],
        ops=[
            OpData(key=key, remove=True) if rate is None else OpData(key=key, value=rate) for key, rate in rates.items()
        ],
    )


def alter(
    cluster: MachineCluster, *entries: AlterClientQuotasRequestEntryData, validate_only: bool = False
) -> list[ErrorCode]:
    request = AlterClientQuotasRequest(entries=list(entries), validate_only=validate_only)
    response = cluster.decide(Quotas(cluster.view).alter(request))
    return [ErrorCode(each.error_code) for each in response.entries]


def test_quotas_are_set_changed_and_removed_and_only_changes_are_written() -> None:
    cluster = MachineCluster(0)
    assert alter(cluster, entry(ALICE, producer_byte_rate=10, request_percentage=0.5)) == [ErrorCode.NONE]
    assert alter(cluster, entry(BOTH, consumer_byte_rate=7)) == [ErrorCode.NONE]
    assert cluster.view.quotas() == {
        ALICE: {"producer_byte_rate": 10.0, "request_percentage": 0.5},
        BOTH: {"consumer_byte_rate": 7.0},
    }
    before = cluster.image.end_offset
    assert alter(cluster, entry(ALICE, producer_byte_rate=10, consumer_byte_rate=None)) == [ErrorCode.NONE]
    assert alter(cluster, entry(ALICE, producer_byte_rate=11), validate_only=True) == [ErrorCode.NONE]
    assert cluster.image.end_offset == before
    assert alter(cluster, entry(ALICE, producer_byte_rate=None, request_percentage=None)) == [ErrorCode.NONE]
    assert cluster.view.quotas() == {BOTH: {"consumer_byte_rate": 7.0}}


@pytest.mark.parametrize(
    ("entity", "key", "value"),
    [
        ((), "producer_byte_rate", 1),
        ((("group", "g"),), "producer_byte_rate", 1),
        ((("user", ""),), "producer_byte_rate", 1),
        ((("ip", "192.0.2.1"), ("user", "alice")), "producer_byte_rate", 1),
        ((("ip", "300.1.1.1"),), "connection_creation_rate", 1),
        ((("ip", "not a host"),), "connection_creation_rate", 1),
        (ALICE, "connection_creation_rate", 1),
        (ADDRESS, "producer_byte_rate", 1),
        (ALICE, "fame", 1),
        (ALICE, "producer_byte_rate", 0),
        (ALICE, "producer_byte_rate", 1.5),
        (ALICE, "producer_byte_rate", 2.0**64),
        (ALICE, "request_percentage", -1),
        (ALICE, "request_percentage", math.inf),
        (ALICE, "request_percentage", math.nan),
        (ADDRESS, "connection_creation_rate", 2.0**31),
    ],
)
def test_an_invalid_quota_is_rejected_and_nothing_of_its_entity_is_written(
    entity: QuotaEntity, key: str, value: float
) -> None:
    cluster = MachineCluster(0)
    good = {"request_percentage": 5.0, key: value}
    assert alter(cluster, entry(entity, **good), entry(BOTH, producer_byte_rate=1)) == [
        ErrorCode.INVALID_REQUEST,
        ErrorCode.NONE,
    ]
    assert list(cluster.view.quotas()) == [BOTH]


@pytest.mark.parametrize("address", ["2001:db8::1", "host.example", "localhost", None])
def test_ip_entities_may_be_addresses_host_names_or_the_default(address: str | None) -> None:
    cluster = MachineCluster(0)
    assert alter(cluster, entry((("ip", address),), connection_creation_rate=3)) == [ErrorCode.NONE]
    assert cluster.view.quota((("ip", address),)) == {"connection_creation_rate": 3.0}


def test_an_entity_given_twice_is_rejected_once_and_not_changed() -> None:
    cluster = MachineCluster(0)
    responses = alter(cluster, entry(ALICE, producer_byte_rate=1), entry(ALICE, consumer_byte_rate=2))
    assert responses == [ErrorCode.INVALID_REQUEST]
    assert cluster.view.quotas() == {}


def test_a_key_given_twice_is_rejected() -> None:
    cluster = MachineCluster(0)
    twice = entry(ALICE, producer_byte_rate=1)
    twice.ops.append(OpData(key="producer_byte_rate", value=2.0))
    assert alter(cluster, twice) == [ErrorCode.INVALID_REQUEST]
    assert cluster.view.quotas() == {}
