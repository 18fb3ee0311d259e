"""DescribeGroups, ListGroups, DeleteGroups."""

from __future__ import annotations

from typing import Any

from cluster.handlers.group_members import Member, find_coordinator, subscription
from cluster.handlers.script_run import ScriptRun
from cluster.handlers.script_runner import script
from strandline.protocol.apis import ApiKey
from strandline.protocol.messages.groups import (
    DeleteGroupsRequest,
    DescribeGroupsRequest,
    LeaveGroupRequest,
    ListGroupsRequest,
    MemberIdentity,
)
from strandline.protocol.messages.offsets import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)


def commit_quietly(run: ScriptRun, group: str, topic: str) -> None:
    topics = [OffsetCommitRequestTopic(topic, partitions=[OffsetCommitRequestPartition(0, 5)])]
    response = run.call(OffsetCommitRequest(group_id=group, topics=topics), 9)
    assert not response.topics[0].partitions[0].error_code, response


def without_the_nameless_group(run: ScriptRun) -> None:
    """Other scripts commit offsets of the group whose id is empty."""
    run.call(DeleteGroupsRequest(groups_names=[""]))


def an_empty_group(run: ScriptRun, short: str) -> str:
    member = Member.stable(run, run.name(short))
    run.call(LeaveGroupRequest(group_id=member.group_id, members=[MemberIdentity(member.member_id)]))
    return member.group_id


@script(ApiKey.DESCRIBE_GROUPS)
def describing(run: ScriptRun) -> None:
    find_coordinator(run)
    topic = run.topic("t")

    def describe(label: str, *groups: str, operations: bool = False) -> Any:
        request = DescribeGroupsRequest(groups=list(groups), include_authorized_operations=operations)
        return run.record(label, request, mask={"client_host"})

    without_the_nameless_group(run)
    describe("a group without an id", "")
    describe("a group that does not exist", run.name("nowhere"))
    commit_quietly(run, run.name("simple"), topic)
    describe("a group that only commits offsets", run.name("simple"))
    member = Member.joined(run, run.name("g"), metadata=subscription("t"))
    describe("while the assignment is awaited", member.group_id)
    member.sync(b"assigned")
    described = describe("a stable group", member.group_id)
    assert described.groups[0].members[0].client_host == "/127.0.0.1", described
    connection = member.is_joined_by_another()
    run.record(
        "while members rejoin",
        DescribeGroupsRequest(groups=[member.group_id]),
        mask={"client_host"},
        unordered={"members"},
        change=lambda response: response.groups[0].members.sort(key=lambda each: each.member_id != member.member_id),
    )
    connection.close()
    static = Member.stable(run, run.name("s"), instance_id="i", protocol_type="other")
    describe("a static member of another protocol type", static.group_id)
    describe("an empty group", an_empty_group(run, "e"))
    describe("two groups", static.group_id, run.name("nowhere"))
    describe("one group twice", run.name("simple"), run.name("simple"))
    describe("nothing")
    if run.version >= 3:
        describe("with authorized operations", run.name("simple"), run.name("nowhere"), operations=True)


@script(ApiKey.LIST_GROUPS)
def listing(run: ScriptRun) -> None:
    find_coordinator(run)
    topic = run.topic("t")
    commit_quietly(run, run.name("simple"), topic)
    Member.joined(run, run.name("completing"))
    Member.stable(run, run.name("stable"))
    an_empty_group(run, "empty")
    own = {run.name(short) for short in ("simple", "completing", "stable", "empty")}

    def mine(response: Any) -> None:
        response.groups = [each for each in response.groups if each.group_id in own]

    def listed(label: str, **filters: list[str]) -> None:
        run.record(label, ListGroupsRequest(**filters), change=mine, unordered={"groups"})

    listed("all")
    if run.version >= 4:
        listed("of one state", states_filter=["Stable"])
        listed("of two states, in another case", states_filter=["eMPTY", "completingrebalance"])
        listed("of a state that does not exist", states_filter=["Sleeping"])
        listed("of a state of consumer groups", states_filter=["Assigning"])
    if run.version >= 5:
        listed("of one type", types_filter=["Classic"])
        listed("of a type in another case", types_filter=["cLASSIC"])
        listed("of the other type", types_filter=["consumer"])
        listed("of a type that does not exist", types_filter=["odd"])
        listed("of a state and a type", states_filter=["Empty"], types_filter=["classic", "consumer"])


@script(ApiKey.DELETE_GROUPS)
def deleting(run: ScriptRun) -> None:
    find_coordinator(run)
    topic = run.topic("t")

    def delete(label: str, *groups: str) -> None:
        run.record(label, DeleteGroupsRequest(groups_names=list(groups)), unordered={"results"})

    without_the_nameless_group(run)
    delete("a group without an id", "")
    delete("a group that does not exist", run.name("nowhere"))
    commit_quietly(run, run.name("simple"), topic)
    delete("a group that only commits offsets", run.name("simple"))
    delete("a group that was deleted", run.name("simple"))
    member = Member.stable(run, run.name("g"))
    delete("a group with members", member.group_id)
    empty = an_empty_group(run, "e")
    delete("three groups", empty, member.group_id, run.name("nowhere"))
    commit_quietly(run, run.name("simple"), topic)
    delete("one group twice", run.name("simple"), run.name("simple"))
    delete("nothing")
