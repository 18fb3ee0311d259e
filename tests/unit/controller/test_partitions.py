"""Elections, ISR and ELR of one partition."""

from __future__ import annotations

from itertools import product

import pytest

from strandline.controller.partitions import NO_CHANGE, Election, ElectionRules, Target, change, new_partition
from strandline.metadata.topics_image import changed_partition
from strandline.metadata.values import PartitionInfo
from strandline.model.ids import DIRECTORY_UNASSIGNED, Uuid

TOPIC = Uuid.of(1, 100)
ELR = ElectionRules(min_insync_replicas=2, elr_enabled=True)
PLAIN = ElectionRules(min_insync_replicas=2)


def partition(isr: tuple[int, ...] = (1, 2, 3), leader: int = 1, **more: object) -> PartitionInfo:
    fields = {
        "replicas": (1, 2, 3),
        "directories": (DIRECTORY_UNASSIGNED,) * 3,
        "leader_epoch": 5,
        "partition_epoch": 9,
    }
    return PartitionInfo(isr=isr, leader=leader, **{**fields, **more})  # type: ignore[arg-type]


class Only:
    """A `BrokerLookup` in which only these brokers are active."""

    def __init__(self, *live: int) -> None:
        self.live = live

    def is_active(self, broker_id: int) -> bool:
        return broker_id in self.live

    def can_lead(self, broker_id: int, directory: Uuid) -> bool:
        return broker_id in self.live

    def new_directory(self, broker_id: int) -> Uuid:
        return Uuid.of(3, 1000 + broker_id)


def changed(before: PartitionInfo, live: tuple[int, ...], rules: ElectionRules, target: Target) -> PartitionInfo:
    record = change(before, TOPIC, 0, Only(*live), rules, target)
    return before if record is None else changed_partition(before, record)


def after(
    before: PartitionInfo,
    live: tuple[int, ...],
    rules: ElectionRules,
    isr: tuple[int, ...] | None = None,
    lost: tuple[int, ...] = (),
) -> PartitionInfo:
    return changed(before, live, rules, Target(isr=isr, unclean_shutdown=lost))


def test_a_partition_in_its_best_state_needs_no_record() -> None:
    assert change(partition(), TOPIC, 0, Only(1, 2, 3), PLAIN) is None
    assert change(partition(), TOPIC, 0, Only(1, 2, 3), ELR) is None


def test_the_leader_stays_while_it_can_lead() -> None:
    found = after(partition(leader=2), (1, 2, 3), PLAIN, isr=(1, 2))
    assert (found.leader, found.leader_epoch, found.isr, found.partition_epoch) == (2, 5, (1, 2), 10)


def test_the_next_leader_is_the_first_live_member_of_the_isr_in_order_of_assignment() -> None:
    found = after(partition(), (2, 3), PLAIN, isr=(3, 2))
    assert (found.leader, found.leader_epoch, found.isr) == (2, 6, (3, 2))


def test_without_elr_the_last_isr_member_stays_although_there_is_no_leader() -> None:
    found = after(partition((1,)), (2, 3), PLAIN, isr=())
    assert (found.leader, found.isr, found.elr) == (-1, (1,), ())


def test_with_elr_the_isr_may_become_empty_and_its_members_stay_eligible() -> None:
    shrunk = after(partition((1, 2)), (2,), ELR, isr=(2,))
    assert (shrunk.leader, shrunk.isr, shrunk.elr) == (2, (2,), (1,))
    empty = after(shrunk, (), ELR, isr=())
    assert (empty.leader, empty.isr, empty.elr, empty.last_known_elr) == (-1, (), (1, 2), (2,))


def test_an_eligible_replica_that_returns_leads_alone() -> None:
    empty = partition((), -1, elr=(1, 2), last_known_elr=(2,))
    found = after(empty, (1,), ELR)
    assert (found.leader, found.isr, found.elr, found.last_known_elr) == (1, (1,), (2,), ())
    assert found.leader_recovery_state == 0


def test_the_elr_is_cleared_once_enough_replicas_are_in_sync() -> None:
    found = after(partition((1,), 1, elr=(2, 3)), (1, 2, 3), ELR, isr=(1, 2))
    assert (found.isr, found.elr, found.leader_epoch) == ((1, 2), (), 5)


def test_a_replica_after_an_unclean_shutdown_is_neither_in_sync_nor_eligible() -> None:
    found = after(partition((1, 2), 1), (2,), ELR, isr=(2,), lost=(1,))
    assert (found.isr, found.elr) == ((2,), ())
    again = after(partition((), -1, elr=(1, 2)), (), ELR, lost=(1,))
    assert again.elr == (2,)


def test_the_last_known_leader_is_elected_when_no_replica_is_eligible_and_must_recover() -> None:
    found = after(partition((), -1, elr=(), last_known_elr=(3,)), (3,), ELR)
    assert (found.leader, found.isr, found.leader_recovery_state, found.last_known_elr) == (3, (3,), 1, ())


def test_an_unclean_leader_is_elected_only_where_the_topic_allows_it() -> None:
    stuck = partition((1,), 1)
    assert after(stuck, (2, 3), PLAIN, isr=()).leader == -1
    found = after(stuck, (2, 3), ElectionRules(2, unclean=True), isr=())
    assert (found.leader, found.isr, found.leader_recovery_state) == (2, (2,), 1)


def test_the_records_of_a_single_replica_fenced_and_unfenced_equal_kafkas() -> None:
    rules = ElectionRules(1, elr_enabled=True)
    alone = partition((1,), 1, replicas=(1,), directories=(DIRECTORY_UNASSIGNED,))
    leaderless = change(alone, TOPIC, 0, Only(), rules, Target(isr=()))
    assert leaderless is not None
    assert (leaderless.isr, leaderless.leader, leaderless.eligible_leader_replicas, leaderless.last_known_elr) == (
        [],
        -1,
        [1],
        [1],
    )
    back = change(changed_partition(alone, leaderless), TOPIC, 0, Only(1), rules)
    assert back is not None
    assert (back.isr, back.leader, back.eligible_leader_replicas, back.last_known_elr) == ([1], 1, [], [])


@pytest.mark.parametrize(
    "rules",
    [
        PLAIN,
        ELR,
        ElectionRules(2, True, True),
        ElectionRules(2, False, True),
        ElectionRules(1, True),
        ElectionRules(3, True),
    ],
)
def test_the_invariants_of_isr_leader_and_elr_hold_for_every_change(rules: ElectionRules) -> None:
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
            moved = found.leader != before.leader
            assert found.leader_epoch == before.leader_epoch + moved
            if set(isr) & set(live) <= set(target):
                assert after(found, live, rules) == found, "a second change finds nothing to do"


def test_a_new_partition_is_led_by_its_first_live_replica() -> None:
    made = new_partition([1, 2], Only(2))
    assert made is not None
    assert (made.leader, made.isr, made.directories) == (2, (2,), (Uuid.of(3, 1001), Uuid.of(3, 1002)))
    assert new_partition([1], Only(2)) is None


def test_the_preferred_leader_takes_over_once_it_is_in_sync() -> None:
    preferred = Target(election=Election.PREFERRED)
    found = changed(partition(leader=2), (1, 2, 3), PLAIN, preferred)
    assert (found.leader, found.leader_epoch, found.isr) == (1, 6, (1, 2, 3))
    assert changed(partition((2, 3), 2), (1, 2, 3), PLAIN, preferred).leader == 2
    assert changed(partition((2, 3), 2), (1, 3), PLAIN, preferred).leader == 3


def test_an_unclean_election_can_be_requested_where_the_topic_does_not_allow_it() -> None:
    stuck = partition((1,), -1)
    assert changed(stuck, (2, 3), PLAIN, NO_CHANGE).leader == -1
    found = changed(stuck, (2, 3), PLAIN, Target(election=Election.UNCLEAN))
    assert (found.leader, found.isr, found.leader_recovery_state) == (2, (2,), 1)
    recovered = changed(found, (2, 3), PLAIN, Target(isr=(2, 3), recovery_state=0))
    assert (recovered.isr, recovered.leader_recovery_state, recovered.leader_epoch) == ((2, 3), 0, 6)


def test_a_shrinking_isr_raises_the_leader_epoch_up_to_metadata_version_11() -> None:
    for level, epoch in ((11, 6), (12, 5)):
        rules = ElectionRules(2, metadata_version=level)
        assert changed(partition(), (1, 2, 3), rules, Target(isr=(1, 2))).leader_epoch == epoch
        assert changed(partition((1, 2)), (1, 2, 3), rules, Target(isr=(1, 2, 3))).leader_epoch == 5


def moving(isr: tuple[int, ...], leader: int = 1) -> PartitionInfo:
    """A reassignment from 1 and 2 to 3 and 4."""
    return PartitionInfo((3, 4, 1, 2), isr, (1, 2), (3, 4), leader, 5, 9, tuple(Uuid.of(3, each) for each in range(4)))


def test_a_reassignment_completes_when_all_added_replicas_are_in_sync() -> None:
    halfway = changed(moving((1, 2)), (1, 2, 3, 4), PLAIN, Target(isr=(1, 2, 3)))
    assert (halfway.replicas, halfway.adding, halfway.leader_epoch) == ((3, 4, 1, 2), (3, 4), 5)
    done = changed(halfway, (1, 2, 3, 4), PLAIN, Target(isr=(1, 2, 3, 4)))
    assert (done.replicas, done.isr, done.adding, done.removing) == ((3, 4), (3, 4), (), ())
    assert (done.leader, done.leader_epoch, done.directories) == (3, 6, (Uuid.of(3, 0), Uuid.of(3, 1)))


def test_when_fewer_replicas_are_added_than_removed_all_remaining_ones_must_be_in_sync() -> None:
    fewer = PartitionInfo((1, 2, 3), (1, 3), (3,), (), 1, 5, 9, (DIRECTORY_UNASSIGNED,) * 3)
    assert changed(fewer, (1, 2, 3), PLAIN, NO_CHANGE) == fewer
    done = changed(fewer, (1, 2, 3), PLAIN, Target(isr=(1, 2, 3)))
    assert (done.replicas, done.isr, done.removing) == ((1, 2), (1, 2), ())


def test_removing_a_replica_raises_the_leader_epoch() -> None:
    before = PartitionInfo((1, 2, 3), (1, 2, 3), (3,), (), 1, 5, 9, (DIRECTORY_UNASSIGNED,) * 3)
    done = changed(before, (1, 2, 3), PLAIN, NO_CHANGE)
    assert (done.replicas, done.leader, done.leader_epoch, done.partition_epoch) == ((1, 2), 1, 6, 10)


def test_a_new_replica_gets_the_directory_of_its_broker() -> None:
    target = Target(replicas=(4, 1, 2, 3), adding=(4,), removing=())
    found = changed(partition(), (1, 2, 3, 4), PLAIN, target)
    assert found.directories == (Uuid.of(3, 1004), *(DIRECTORY_UNASSIGNED,) * 3)
    assert (found.adding, found.leader_epoch) == ((4,), 5)
    old = changed(partition(), (1, 2, 3, 4), ElectionRules(metadata_version=16), target)
    assert old.directories != found.directories


def test_the_directory_of_a_replica_can_be_changed() -> None:
    here = Uuid.of(4, 4004)
    found = changed(partition(), (1, 2, 3), PLAIN, Target(directory=(2, here)))
    assert found.directories == (DIRECTORY_UNASSIGNED, here, DIRECTORY_UNASSIGNED)
    assert (found.leader_epoch, found.partition_epoch) == (5, 10)
    assert changed(found, (1, 2, 3), PLAIN, Target(directory=(2, here))) == found


def test_a_replica_that_is_no_longer_assigned_is_not_eligible() -> None:
    before = PartitionInfo((1, 2, 3), (1, 3), (), (3,), 1, 5, 9, (DIRECTORY_UNASSIGNED,) * 3, elr=(2,))
    found = changed(
        before, (1, 2, 3), ElectionRules(3, True), Target(isr=(1,), replicas=(1, 2), adding=(), removing=())
    )
    assert (found.replicas, found.isr, found.elr) == ((1, 2), (1,), (2,))


def test_a_last_leader_that_is_no_longer_assigned_is_not_elected() -> None:
    assert after(partition((), -1, last_known_elr=(9,)), (1, 2, 3, 9), ELR).leader == -1


def test_eligible_replicas_from_before_elr_was_disabled_can_still_lead() -> None:
    stuck = partition((), -1, elr=(2, 3))
    assert after(stuck, (1,), PLAIN) == stuck
    found = after(stuck, (1, 3), PLAIN)
    assert (found.leader, found.isr, found.elr) == (3, (3,), ())


def test_the_last_known_leader_is_recorded_while_there_is_no_leader_and_cleared_by_an_election() -> None:
    leaderless = after(partition((1,)), (), ELR, isr=())
    assert leaderless.last_known_elr == (1,)
    assert after(leaderless, (2, 3), ELR) == leaderless
    assert after(leaderless, (1,), ELR).last_known_elr == ()
    leaderless = partition((), -1, removing=(3,), elr=(1, 2))
    dropped = changed(leaderless, (), ELR, Target(isr=(), replicas=(1, 2), removing=()))
    assert (dropped.leader, dropped.leader_epoch, dropped.last_known_elr) == (-1, 6, ())


def test_a_leader_elected_from_the_elr_that_suffices_alone_clears_the_elr() -> None:
    found = after(partition((), -1, elr=(1, 2)), (1,), ElectionRules(1, True))
    assert (found.leader, found.isr, found.elr) == (1, (1,), ())
