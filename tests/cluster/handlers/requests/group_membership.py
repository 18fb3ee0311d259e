"""JoinGroup, SyncGroup, Heartbeat, LeaveGroup."""

from __future__ import annotations

from cluster.handlers.group_members import Member, find_coordinator, join
from cluster.handlers.script_run import ScriptRun
from cluster.handlers.script_runner import script
from strandline.protocol.apis import ApiKey
from strandline.protocol.messages.groups import (
    HeartbeatRequest,
    LeaveGroupRequest,
    MemberIdentity,
    SyncGroupRequest,
    SyncGroupRequestAssignment,
)

UNKNOWN = "nobody-00000000-0000-0000-0000-000000000000"


@script(ApiKey.JOIN_GROUP)
def joining(run: ScriptRun) -> None:
    find_coordinator(run)
    group = run.name("g")
    run.record("a group without an id", join(""))
    run.record("a session timeout that is too short", join(group, session_timeout_ms=5_999))
    run.record("a session timeout that is too long", join(group, session_timeout_ms=1_800_001))
    run.record("a group that does not exist, with a member id", join(group, UNKNOWN))
    run.record("without protocols", join(group, protocols=()))
    run.record("without a protocol type", join(group, protocol_type=""))
    first = run.record("without a member id", join(group, protocols=("range", "sticky")))
    if run.version >= 4:
        first = run.record(
            "with the member id that was handed out", join(group, first.member_id, protocols=("range", "sticky"))
        )
    run.record("again, with the same protocols", join(group, first.member_id, protocols=("range", "sticky")))
    run.record("again, with other protocols", join(group, first.member_id, protocols=("sticky",)))
    run.record("another protocol type", join(group, protocol_type="connect"))
    run.record("no protocol that all members support", join(group, protocols=("range",)))
    run.record("an unknown member id", join(group, UNKNOWN, protocols=("sticky",)))
    run.record("no protocols in a group with members", join(group, first.member_id, protocols=()))
    member = Member(run, group, first.member_id, 2)
    member.sync()
    run.record("the leader of a stable group", join(group, first.member_id, protocols=("sticky",)))
    member.generation = 3
    member.sync()
    assert member.state() == "Stable"


@script(ApiKey.JOIN_GROUP)
def joining_as_a_static_member(run: ScriptRun) -> None:
    if run.version < 5:
        return
    find_coordinator(run)
    group = run.name("g")
    run.record("an unknown group with a member id", join(group, UNKNOWN, instance_id="i"))
    first = run.record("the first time", join(group, instance_id="i"))
    run.record("again under its member id", join(group, first.member_id, instance_id="i"))
    Member(run, group, first.member_id, 1).sync()
    second = run.record("after a restart", join(group, instance_id="i"))
    run.record("under the former member id", join(group, first.member_id, instance_id="i"))
    run.record("under an unknown member id", join(group, UNKNOWN, instance_id="i"))
    run.record("an unknown instance with a member id", join(group, second.member_id, instance_id="j"))
    run.record("after a restart, with other metadata", join(group, instance_id="i", metadata=b"n"))
    run.record("after a restart, with other protocols", join(group, instance_id="i", protocols=("sticky",)))
    run.record("after a restart while the assignment is awaited", join(group, instance_id="i", protocols=("sticky",)))


@script(ApiKey.SYNC_GROUP)
def synchronizing(run: ScriptRun) -> None:
    find_coordinator(run)
    group = run.name("g")

    def sync(member_id: str, generation: int, group_id: str = group, **fields: str | None) -> SyncGroupRequest:
        if run.version >= 5:
            fields = {"protocol_type": "consumer", "protocol_name": "range", **fields}
        assignments = [SyncGroupRequestAssignment(member_id, b"a"), SyncGroupRequestAssignment(UNKNOWN, b"b")]
        return SyncGroupRequest(
            group_id=group_id, generation_id=generation, member_id=member_id, assignments=assignments, **fields
        )

    run.record("a group without an id", sync("", 0, ""))
    run.record("a group that does not exist", sync(UNKNOWN, 1))
    member = Member.joined(run, group)
    run.record("an unknown member", sync(UNKNOWN, 1))
    run.record("an old generation", sync(member.member_id, 0))
    run.record("a future generation", sync(member.member_id, 2))
    if run.version >= 3:
        run.record("an unknown instance", sync(member.member_id, 1, group_instance_id="i"))
    if run.version >= 5:
        run.record("another protocol type", sync(member.member_id, 1, protocol_type="connect"))
        run.record("another protocol", sync(member.member_id, 1, protocol_name="sticky"))
        run.record("without a protocol type", sync(member.member_id, 1, protocol_type=None))
        run.record("without a protocol", sync(member.member_id, 1, protocol_name=None))
    run.record("the leader", sync(member.member_id, 1))
    run.record("the leader again", sync(member.member_id, 1))
    run.record("an old generation of a stable group", sync(member.member_id, 0))
    connection = member.is_joined_by_another()
    run.record("while members rejoin", sync(member.member_id, 1))
    connection.close()


@script(ApiKey.HEARTBEAT)
def heartbeats(run: ScriptRun) -> None:
    find_coordinator(run)
    group = run.name("g")

    def beat(member_id: str, generation: int, group_id: str = group, **fields: str) -> HeartbeatRequest:
        return HeartbeatRequest(group_id=group_id, generation_id=generation, member_id=member_id, **fields)

    run.record("a group without an id", beat("", 0, ""))
    run.record("a group that does not exist", beat(UNKNOWN, 1))
    member = Member.joined(run, group)
    run.record("while the assignment is awaited", beat(member.member_id, 1))
    member.sync()
    run.record("of a stable group", beat(member.member_id, 1))
    run.record("an old generation", beat(member.member_id, 0))
    run.record("an unknown member", beat(UNKNOWN, 1))
    if run.version >= 3:
        run.record("an unknown instance", beat(member.member_id, 1, group_instance_id="i"))
    connection = member.is_joined_by_another()
    run.record("while members rejoin", beat(member.member_id, 1))
    connection.close()
    empty = run.name("e")
    gone = Member.stable(run, empty)
    run.call(LeaveGroupRequest(group_id=empty, members=[MemberIdentity(gone.member_id)]))
    run.record("of an empty group", beat(gone.member_id, 2, empty))


@script(ApiKey.LEAVE_GROUP)
def leaving(run: ScriptRun) -> None:
    find_coordinator(run)
    group = run.name("g")

    def leave(*members: tuple[str, str | None], group_id: str = group) -> LeaveGroupRequest:
        if run.version < 3:
            return LeaveGroupRequest(group_id=group_id, member_id=members[0][0])
        return LeaveGroupRequest(group_id=group_id, members=[MemberIdentity(*each) for each in members])

    run.record("a group without an id", leave((UNKNOWN, None), group_id=""))
    run.record("a group that does not exist", leave((UNKNOWN, None)))
    member = Member.stable(run, group)
    run.record("an unknown member", leave((UNKNOWN, None)))
    run.record("a member", leave((member.member_id, None)))
    run.add("a member: the group is", member.state())
    run.record("a member that has left", leave((member.member_id, None)))
    pending = run.call(join(group), 9)
    run.record("a member id that was handed out", leave((pending.member_id, None)))
    if run.version < 3:
        return
    static = Member.stable(run, run.name("s"), instance_id="i")
    run.record("nobody", leave(group_id=static.group_id))
    run.record("an unknown instance", leave(("", "j"), group_id=static.group_id))
    run.record("an instance under another member id", leave((UNKNOWN, "i"), group_id=static.group_id))
    run.record("several", leave((UNKNOWN, None), ("", "i"), ("", "j"), group_id=static.group_id))
    run.add("several: the group is", static.state())
    again = Member.stable(run, run.name("s"), instance_id="i")
    run.record("a static member under its member id", leave((again.member_id, "i"), group_id=static.group_id))
    third = Member.stable(run, run.name("s"), instance_id="i")
    run.record("a static member without its instance id", leave((third.member_id, None), group_id=static.group_id))
