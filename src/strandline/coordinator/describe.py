"""DescribeGroups (15) and ListGroups (16): groups as they are committed."""

from __future__ import annotations

from strandline.coordinator.classic.group import ClassicGroup, State
from strandline.coordinator.groups import GroupMachine
from strandline.protocol.messages.groups import DescribedGroup, DescribedGroupMember, ListedGroup


def describe_group(group: ClassicGroup) -> DescribedGroup:
    """Subscriptions and the protocol are shown of a stable group only, as in Kafka; assignments while there are any."""
    is_stable = group.state is State.STABLE
    return DescribedGroup(
        group_id=group.group_id,
        group_state=group.state.value,
        protocol_type=group.protocol_type or "",
        protocol_data=(group.protocol_name or "") if is_stable else "",
        members=[
            DescribedGroupMember(
                member.member_id,
                member.instance_id,
                member.client_id,
                member.client_host,
                member.metadata_of(group.protocol_name) if is_stable else b"",
                member.assignment,
            )
            for member in group.members.values()
        ],
    )


def list_groups(machine: GroupMachine, at: int, states: frozenset[str], types: frozenset[str]) -> list[ListedGroup]:
    """`states` and `types` in lower case; empty for all."""
    return [
        ListedGroup(group.group_id, group.protocol_type or "", group.state_name(at), group.type_name)
        for group in machine.groups(at)
        if (not states or group.state_name(at).lower() in states) and (not types or group.type_name in types)
    ]
