"""Which offsets expire, and since when their retention counts."""

from __future__ import annotations

import struct

from strandline.coordinator.groups import OffsetExpiry
from strandline.coordinator.machine import Producer
from unit.coordinator.loaded_groups import LoadedGroups

MINUTE_MS = 60_000


def retaining(minutes: int) -> LoadedGroups:
    return LoadedGroups(offsets_retention_minutes=minutes)


def expire(groups: LoadedGroups) -> None:
    groups.decide(groups.machine.on_timer, OffsetExpiry(), groups.now)


def test_offsets_of_a_group_without_protocol_expire_after_their_commit() -> None:
    groups = retaining(10)
    groups.commit("g", "old", 1)
    groups.wait(6 * MINUTE_MS)
    groups.commit("g", "young", 2)
    groups.wait(4 * MINUTE_MS)
    expire(groups)
    assert groups.fetch_all("g") == {("young", 0): 2}
    groups.wait(6 * MINUTE_MS)
    expire(groups)
    assert groups.fetch_all("g") == {} and groups.machine.group("g") is None


def test_offsets_of_a_group_with_members_that_subscribe_stay() -> None:
    groups = retaining(10)
    member_id = groups.stable_group("g", struct.pack(">hih", 0, 1, 1) + b"t" + struct.pack(">i", -1))
    for topic in ("t", "u"):
        groups.commit("g", topic, 1, member_id=member_id, generation=1)
    groups.wait(10 * MINUTE_MS)
    expire(groups)
    assert groups.fetch_all("g") == {("t", 0): 1}, "no member subscribes to u any more"


def test_offsets_of_a_group_with_members_of_another_protocol_type_stay() -> None:
    groups = retaining(10)
    member_id = groups.stable_group("g", protocol_type="connect")
    groups.commit("g", "t", 1, member_id=member_id, generation=1)
    groups.wait(10 * MINUTE_MS)
    expire(groups)
    assert groups.fetch_all("g") == {("t", 0): 1}


def test_retention_counts_from_when_a_group_became_empty() -> None:
    groups = retaining(10)
    member_id = groups.stable_group("g", protocol_type="connect")
    groups.commit("g", "t", 1, member_id=member_id, generation=1)
    groups.wait(8 * MINUTE_MS)
    groups.leave("g", member_id)
    groups.wait(8 * MINUTE_MS)
    groups.commit("g", "u", 2)
    expire(groups)
    assert groups.fetch_all("g") == {("t", 0): 1, ("u", 0): 2}
    groups.wait(2 * MINUTE_MS)
    expire(groups)
    assert groups.fetch_all("g") == {} and groups.machine.group("g") is None


def test_an_offset_with_a_retention_of_its_own_goes_by_that() -> None:
    groups = retaining(10)
    groups.commit("g", "short", 1, retention_ms=MINUTE_MS)
    groups.commit("g", "long", 2, retention_ms=60 * MINUTE_MS)
    groups.wait(MINUTE_MS)
    expire(groups)
    assert groups.fetch_all("g") == {("long", 0): 2}
    groups.wait(50 * MINUTE_MS)
    expire(groups)
    assert groups.fetch_all("g") == {("long", 0): 2}


def test_offsets_of_partitions_with_an_open_transaction_stay() -> None:
    groups = retaining(10)
    groups.commit("g", "t", 1)
    groups.commit_in_transaction(Producer(7, 0), "g", "t", 2)
    groups.wait(10 * MINUTE_MS)
    expire(groups)
    assert groups.fetch_all("g") == {("t", 0): 1} and groups.machine.group("g") is not None


def test_an_empty_group_without_offsets_is_removed() -> None:
    groups = retaining(10)
    member_id = groups.stable_group("g")
    expire(groups)
    assert groups.machine.group("g") is not None
    groups.leave("g", member_id)
    expire(groups)
    assert groups.machine.group("g") is None


def test_many_offsets_expire_in_several_steps() -> None:
    groups = retaining(10)
    for number in range(1_500):
        groups.commit(f"g{number}", "t", 1)
        groups.commit(f"g{number}", "u", 1)
    groups.wait(10 * MINUTE_MS)
    steps = 0
    while groups.machine.groups():
        before = groups.machine.offsets.count()
        expire(groups)
        steps += 1
        assert 0 < before - groups.machine.offsets.count() <= 2_500
        assert groups.machine.timers.deadline_ms(OffsetExpiry()) is not None
    assert steps == 3


def test_expired_offsets_are_looked_for_again_after_the_interval() -> None:
    groups = LoadedGroups(offsets_retention_check_interval_ms=500)
    groups.decide(groups.machine.on_loaded, groups.now)
    assert groups.machine.timers.deadline_ms(OffsetExpiry()) == 500
    groups.wait(500)
    expire(groups)
    assert groups.machine.timers.deadline_ms(OffsetExpiry()) == 1_000
