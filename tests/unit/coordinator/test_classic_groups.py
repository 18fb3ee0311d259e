"""Bad and large input to classic groups. What groups do otherwise is in `scenarios/`."""

from __future__ import annotations

from typing import Any

import pytest

from strandline.coordinator.classic.group import LEGAL_MOVES, ClassicGroup, State
from strandline.coordinator.groups import Caller
from strandline.coordinator.settings import GroupSettings
from strandline.model.errors import ErrorCode
from strandline.protocol.messages.groups import JoinGroupRequest, JoinGroupRequestProtocol, JoinGroupResponse
from unit.coordinator.loaded_groups import SESSION_TIMEOUT_MS, LoadedGroups

OLD_CLIENT = Caller("client", "/127.0.0.1", 3)


def join(groups: LoadedGroups, *protocols: str, group_id: str = "g", **fields: Any) -> JoinGroupResponse | None:
    """None: the request waits for the end of the join phase."""
    request = JoinGroupRequest(
        group_id=group_id,
        session_timeout_ms=fields.pop("session_timeout_ms", SESSION_TIMEOUT_MS),
        rebalance_timeout_ms=SESSION_TIMEOUT_MS,
        member_id=fields.pop("member_id", ""),
        protocol_type="consumer",
        protocols=[JoinGroupRequestProtocol(name, fields.get("metadata", b"m")) for name in protocols],
    )
    caller = fields.get("caller", OLD_CLIENT)
    response: JoinGroupResponse | None = groups.decide(groups.machine.join, request, caller, groups.token(), groups.now)
    return response


def complete_join(groups: LoadedGroups) -> None:
    while (key := groups.machine.timers.pop_expired(groups.now.ms)) is not None:
        groups.decide(groups.machine.on_timer, key, groups.now)


def test_a_protocol_that_is_named_twice_counts_once() -> None:
    groups = LoadedGroups()
    join(groups, "range", "range", "sticky")
    join(groups, "range")
    complete_join(groups)
    group = groups.machine.existing("g")
    assert (group.state, group.protocol_name) == (State.COMPLETING_REBALANCE, "range")


def test_the_protocol_that_most_members_prefer_among_those_that_all_support_is_selected() -> None:
    groups = LoadedGroups()
    join(groups, "fast", "range", "sticky")
    join(groups, "sticky", "range")
    join(groups, "sticky", "range", "fast")
    complete_join(groups)
    assert groups.machine.existing("g").protocol_name == "sticky"


def test_a_group_does_not_grow_beyond_its_largest_size() -> None:
    groups = LoadedGroups(max_size=2)
    join(groups, "range")
    join(groups, "range")
    refused = join(groups, "range")
    assert refused is not None and refused.error_code == ErrorCode.GROUP_MAX_SIZE_REACHED and refused.member_id == ""
    complete_join(groups)
    refused = join(groups, "range")
    assert refused is not None and refused.error_code == ErrorCode.GROUP_MAX_SIZE_REACHED
    assert len(groups.machine.existing("g").members) == 2


@pytest.mark.parametrize("timeout_ms", [-1, 0, 5_999, 1_800_001, 2_147_483_647])
def test_an_illegal_session_timeout_is_rejected_and_creates_nothing(timeout_ms: int) -> None:
    groups = LoadedGroups()
    refused = join(groups, "range", session_timeout_ms=timeout_ms)
    assert refused is not None and refused.error_code == ErrorCode.INVALID_SESSION_TIMEOUT
    assert groups.machine.group("g") is None


def test_ten_thousand_members_join_and_are_assigned_in_one_generation() -> None:
    """Each request costs the same, however many members there are."""
    groups = LoadedGroups()
    for _ in range(10_000):
        assert join(groups, "range", "sticky") is None
    complete_join(groups)
    group = groups.machine.existing("g")
    assert len(group.members) == 10_000 and (group.generation, group.joining) == (1, 0)
    for member_id in list(group.members):
        groups.leave("g", member_id)
    assert group.state is State.EMPTY and not group.static_members and not group._support
    assert len(groups.machine.timers) == 0


def test_member_ids_that_are_never_used_are_forgotten_after_the_session_timeout() -> None:
    groups = LoadedGroups()
    for _ in range(1_000):
        response = join(groups, "range", caller=Caller("client", "/127.0.0.1", 9), session_timeout_ms=6_000)
        assert response is not None and response.error_code == ErrorCode.MEMBER_ID_REQUIRED
    group = groups.machine.existing("g")
    assert len(group.pending_joins) == 1_000
    groups.wait(6_000)
    complete_join(groups)
    assert not group.pending_joins and not group.members and len(groups.machine.timers) == 0


def test_every_state_can_be_reached_and_only_legal_moves_are_made() -> None:
    reached = {State.EMPTY} | {state for states in LEGAL_MOVES.values() for state in states}
    assert reached == set(State) and set(LEGAL_MOVES) == set(State)
    with pytest.raises(AssertionError):
        ClassicGroup("g", 0).become(State.STABLE, 0)


def test_a_member_that_rejoins_a_group_that_is_full_meanwhile_is_removed() -> None:
    groups = LoadedGroups()
    join(groups, "range")
    complete_join(groups)
    (first,) = groups.machine.existing("g").members
    groups.settings = GroupSettings(max_size=1)
    group = groups.machine.existing("g")
    assert isinstance(group, ClassicGroup)
    group.become(State.PREPARING_REBALANCE, 0)
    join(groups, "range")
    refused = join(groups, "range", member_id=first)
    assert refused is not None and refused.error_code == ErrorCode.GROUP_MAX_SIZE_REACHED
    assert first not in group.members and group.joining == 1
