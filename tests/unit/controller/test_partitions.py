"""Elections: who leads, who is in sync, who stays eligible. One partition at a time."""

from __future__ import annotations

from itertools import product

import pytest

from strandline.controller.partitions import Rules, accepts, change, new_partition
from strandline.metadata.topics import changed_partition
from strandline.metadata.values import BrokerInfo, PartitionInfo
from strandline.model.ids import DIRECTORY_LOST, DIRECTORY_MIGRATING, DIRECTORY_UNASSIGNED, ZERO_UUID, Uuid

TOPIC = Uuid.of(1, 100)
ELR = Rules(min_insync_replicas=2, elr_enabled=True)
PLAIN = Rules(min_insync_replicas=2)


def partition(isr: tuple[int, ...] = (1, 2, 3), leader: int = 1, **more: object) -> PartitionInfo:
    fields = {
        "replicas": (1, 2, 3),
        "directories": (DIRECTORY_UNASSIGNED,) * 3,
        "leader_epoch": 5,
        "partition_epoch": 9,
    }
    return PartitionInfo(isr=isr, leader=leader, **{**fields, **more})  # type: ignore[arg-type]


def after(
    before: PartitionInfo,
    live: tuple[int, ...],
    rules: Rules,
    isr: tuple[int, ...] | None = None,
    lost: tuple[int, ...] = (),
) -> PartitionInfo:
    record = change(before, TOPIC, 0, lambda replica, _: replica in live, rules, target_isr=isr, unclean_shutdown=lost)
    return before if record is None else changed_partition(before, record)


def test_a_partition_in_its_best_state_needs_no_record() -> None:
    assert change(partition(), TOPIC, 0, lambda *_: True, PLAIN) is None
    assert change(partition(), TOPIC, 0, lambda *_: True, ELR) is None


def test_the_leader_stays_while_it_can_lead() -> None:
    found = after(partition(leader=2), (1, 2, 3), PLAIN, isr=(1, 2))
    assert (found.leader, found.leader_epoch, found.isr, found.partition_epoch) == (2, 5, (1, 2), 10)


def test_the_next_leader_is_the_first_live_member_of_the_isr_in_order_of_assignment() -> None:
    found = after(partition(), (2, 3), PLAIN, isr=(3, 2))
    assert (found.leader, found.leader_epoch, found.isr) == (2, 6, (3, 2))


def test_without_eligible_replicas_the_last_in_sync_one_stays_in_sync_though_nobody_leads() -> None:
    found = after(partition((1,)), (2, 3), PLAIN, isr=())
    assert (found.leader, found.isr, found.elr) == (-1, (1,), ())


def test_with_eligible_replicas_the_isr_may_empty_and_its_members_stay_eligible() -> None:
    shrunk = after(partition((1, 2)), (2,), ELR, isr=(2,))
    assert (shrunk.leader, shrunk.isr, shrunk.elr) == (2, (2,), (1,))
    empty = after(shrunk, (), ELR, isr=())
    assert (empty.leader, empty.isr, empty.elr, empty.last_known_elr) == (-1, (), (1, 2), (2,))


def test_an_eligible_replica_that_comes_back_leads_alone() -> None:
    empty = partition((), -1, elr=(1, 2), last_known_elr=(2,))
    found = after(empty, (1,), ELR)
    assert (found.leader, found.isr, found.elr, found.last_known_elr) == (1, (1,), (2,), ())
    assert found.leader_recovery_state == 0


def test_eligible_replicas_are_forgotten_once_enough_are_in_sync() -> None:
    found = after(partition((1,), 1, elr=(2, 3)), (1, 2, 3), ELR, isr=(1, 2))
    assert (found.isr, found.elr, found.leader_epoch) == ((1, 2), (), 5)


def test_a_replica_that_lost_its_memory_is_neither_in_sync_nor_eligible() -> None:
    found = after(partition((1, 2), 1), (2,), ELR, isr=(2,), lost=(1,))
    assert (found.isr, found.elr) == ((2,), ())
    again = after(partition((), -1, elr=(1, 2)), (), ELR, lost=(1,))
    assert again.elr == (2,)


def test_the_last_known_leader_is_taken_when_nobody_else_is_eligible_and_must_recover() -> None:
    found = after(partition((), -1, elr=(), last_known_elr=(3,)), (3,), ELR)
    assert (found.leader, found.isr, found.leader_recovery_state, found.last_known_elr) == (3, (3,), 1, ())


def test_an_unclean_leader_is_taken_only_where_the_topic_allows_it() -> None:
    stuck = partition((1,), 1)
    assert after(stuck, (2, 3), PLAIN, isr=()).leader == -1
    found = after(stuck, (2, 3), Rules(2, unclean=True), isr=())
    assert (found.leader, found.isr, found.leader_recovery_state) == (2, (2,), 1)


def test_a_single_replica_leaves_and_comes_back_as_kafka_writes_it() -> None:
    rules = Rules(1, elr_enabled=True)
    alone = partition((1,), 1, replicas=(1,), directories=(DIRECTORY_UNASSIGNED,))
    gone = change(alone, TOPIC, 0, lambda *_: False, rules, target_isr=())
    assert gone is not None
    assert (gone.isr, gone.leader, gone.eligible_leader_replicas, gone.last_known_elr) == ([], -1, [1], [1])
    back = change(changed_partition(alone, gone), TOPIC, 0, lambda *_: True, rules)
    assert back is not None
    assert (back.isr, back.leader, back.eligible_leader_replicas, back.last_known_elr) == ([1], 1, [], [])


@pytest.mark.parametrize(
    "rules", [PLAIN, ELR, Rules(2, True, True), Rules(2, False, True), Rules(1, True), Rules(3, True)]
)
def test_whatever_happens_the_invariants_of_isr_leader_and_eligible_replicas_hold(rules: Rules) -> None:
    subsets = [tuple(r for r in (1, 2, 3) if mask >> r & 1) for mask in range(0, 16, 2)]
    for isr, live, target in product(subsets, subsets, subsets):
        if not isr or not set(target) <= set(isr):
            continue
        for leader in isr:
            before = partition(isr, leader)
            found = after(before, live, rules, isr=target)
            assert found.leader == -1 or found.leader in found.isr
            assert found.leader == -1 or found.leader in live
            assert not set(found.isr) & set(found.elr)
            assert found.isr or rules.elr_enabled
            if len(found.isr) >= min(rules.min_insync_replicas, 3):
                assert found.elr == ()
            changed = found.leader != before.leader
            assert found.leader_epoch == before.leader_epoch + changed
            if set(isr) & set(live) <= set(target):
                assert after(found, live, rules) == found, "a second look finds nothing left to do"


def broker(**fields: object) -> BrokerInfo:
    return BrokerInfo(1, 5, ZERO_UUID, (), (), **{"fenced": False, **fields})  # type: ignore[arg-type]


def test_only_an_active_broker_with_its_directory_online_may_lead() -> None:
    here, elsewhere = Uuid.of(3, 1001), Uuid.of(3, 1002)
    assert accepts(broker(directories=(here,)), here)
    assert not accepts(broker(directories=(here,)), elsewhere)
    assert accepts(broker(directories=(here,)), DIRECTORY_UNASSIGNED)
    assert accepts(broker(directories=(here,)), DIRECTORY_MIGRATING)
    assert not accepts(broker(directories=(here,)), DIRECTORY_LOST)
    assert not accepts(broker(fenced=True), here)
    assert not accepts(broker(in_controlled_shutdown=True), here)
    assert not accepts(None, here)


def test_a_new_partition_is_led_by_its_first_live_replica() -> None:
    brokers = {1: broker(fenced=True), 2: broker(directories=(Uuid.of(3, 1001),))}
    made = new_partition([1, 2], brokers.get)
    assert made is not None
    assert (made.leader, made.isr, made.directories[1]) == (2, (2,), Uuid.of(3, 1001))
    assert new_partition([1], brokers.get) is None
