"""OffsetCommit, OffsetFetch, OffsetDelete."""

from __future__ import annotations

from typing import Any

from cluster.handlers.group_members import Member, find_coordinator, subscription
from cluster.handlers.script_run import ScriptRun
from cluster.handlers.script_runner import script
from strandline.model.ids import Uuid
from strandline.protocol.apis import ApiKey
from strandline.protocol.messages.offsets import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
)

UNKNOWN = "nobody-00000000-0000-0000-0000-000000000000"
UNKNOWN_ID = Uuid(bytes(range(16)))
FIRST_VERSION_WITH_TOPIC_IDS = 10


def committing(
    run: ScriptRun, group: str, offsets: dict[str, dict[int, int]], metadata: str | None = "m", **fields: Any
) -> OffsetCommitRequest:
    by_id = run.version >= FIRST_VERSION_WITH_TOPIC_IDS
    topics = [
        OffsetCommitRequestTopic(
            name="" if by_id else topic,
            partitions=[
                OffsetCommitRequestPartition(index, offset, committed_metadata=metadata)
                for index, offset in partitions.items()
            ],
        )
        for topic, partitions in offsets.items()
    ]
    if by_id:
        for each, name in zip(topics, offsets, strict=True):
            each.topic_id = topic_id(run, name)
    return OffsetCommitRequest(group_id=group, topics=topics, **fields)


def topic_id(run: ScriptRun, name: str) -> Uuid:
    found = run.metadata(name).topics[0]
    return UNKNOWN_ID if found.error_code else found.topic_id


def commit_quietly(run: ScriptRun, group: str, offsets: dict[str, dict[int, int]], epoch: int = -1) -> None:
    topics = [
        OffsetCommitRequestTopic(
            topic, partitions=[OffsetCommitRequestPartition(index, offset, epoch, "m") for index, offset in of.items()]
        )
        for topic, of in offsets.items()
    ]
    response = run.call(OffsetCommitRequest(group_id=group, topics=topics), 9)
    assert not any(each.error_code for topic in response.topics for each in topic.partitions), response


@script(ApiKey.OFFSET_COMMIT)
def commits(run: ScriptRun) -> None:
    find_coordinator(run)
    topic, other, nowhere = run.topic("t", 2), run.topic("u"), run.name("nowhere")
    group = run.name("g")

    def commit(label: str, offsets: dict[str, dict[int, int]], group_id: str = group, **fields: Any) -> None:
        run.record(label, committing(run, group_id, offsets, **fields))

    commit("of a group that does not exist", {topic: {0: 5}})
    commit("again", {topic: {0: 6}})
    commit("of a group without an id", {topic: {0: 5}}, "")
    commit("two topics", {topic: {0: 5, 1: 6}, other: {0: 1}})
    commit("an offset below zero", {topic: {0: -1}})
    commit("without metadata", {topic: {0: 5}}, metadata=None)
    commit("metadata that is too long", {topic: {0: 5}}, metadata="x" * 4097)
    commit("the longest metadata", {topic: {0: 5}}, metadata="x" * 4096)
    commit("a topic that does not exist", {nowhere: {0: 5}})
    commit("a partition that does not exist", {topic: {7: 5}})
    commit("a partition below zero", {topic: {-1: 5}})
    commit("some that exist", {topic: {7: 5, 0: 1}, nowhere: {0: 1, 1: 1}, other: {0: 1, 3: 1}})
    commit("none that exists, of a group that does not", {nowhere: {0: 1}}, run.name("h"), member_id=UNKNOWN)
    commit("nothing", {})
    if run.version < 5:
        commit("with a retention of its own", {topic: {0: 5}}, retention_time_ms=60_000)
    absent = run.name("absent")
    commit("a generation of a group that does not exist", {topic: {0: 5}}, absent, generation_id_or_member_epoch=1)
    commit("a member of a group that does not exist", {topic: {0: 5}}, absent, member_id=UNKNOWN)
    commit("a generation of a group without members", {topic: {0: 5}}, generation_id_or_member_epoch=1)
    as_member(run, topic)


def as_member(run: ScriptRun, topic: str) -> None:
    member = Member.joined(run, run.name("members"), metadata=subscription(topic))

    def commit(label: str, member_id: str, generation: int, **fields: Any) -> None:
        made = committing(run, member.group_id, {topic: {0: 5}}, **fields)
        made.member_id, made.generation_id_or_member_epoch = member_id, generation
        run.record(label, made)

    commit("while the assignment is awaited", member.member_id, 1)
    member.sync()
    commit("as a member", member.member_id, 1)
    commit("as a member of an old generation", member.member_id, 0)
    commit("as a member without a generation", member.member_id, -1)
    commit("as an unknown member", UNKNOWN, 1)
    commit("without a member id, in a group with members", "", -1)
    commit("a generation without a member id", "", 1)
    if run.version >= 7:
        commit("as an unknown instance", member.member_id, 1, group_instance_id="i")
    connection = member.is_joined_by_another()
    commit("while members rejoin", member.member_id, 1)
    connection.close()


@script(ApiKey.OFFSET_FETCH)
def fetching(run: ScriptRun) -> None:
    find_coordinator(run)
    topic, other, nowhere = run.topic("t", 2), run.topic("u"), run.name("nowhere")
    run.names.ids = {topic_id(run, topic): "id-t", topic_id(run, other): "id-u", UNKNOWN_ID: "id-unknown"}
    group, absent = run.name("g"), run.name("absent")

    def wanted(group_id: str, topics: dict[str, list[int]] | None) -> OffsetFetchRequestGroup:
        by_id = run.version >= FIRST_VERSION_WITH_TOPIC_IDS
        if topics is None:
            return OffsetFetchRequestGroup(group_id, topics=None)
        listed = [
            OffsetFetchRequestTopics("" if by_id else name, partition_indexes=partitions)
            for name, partitions in topics.items()
        ]
        if by_id:
            for each, name in zip(listed, topics, strict=True):
                each.topic_id = topic_id(run, name)
        return OffsetFetchRequestGroup(group_id, topics=listed)

    def fetch(label: str, *groups: OffsetFetchRequestGroup, **fields: Any) -> None:
        request = OffsetFetchRequest(**fields)
        if run.version >= 8:
            request.groups = list(groups)
        else:
            request.group_id, topics = groups[0].group_id, groups[0].topics
            request.topics = (
                None
                if topics is None
                else [OffsetFetchRequestTopic(each.name, each.partition_indexes) for each in topics]
            )
        unordered = {"topics", "partitions"} if any(each.topics is None for each in groups) else set()
        run.record(label, request, unordered=unordered)

    fetch("of a group that does not exist", wanted(absent, {topic: [0, 1]}))
    commit_quietly(run, group, {topic: {0: 5, 1: 6}}, epoch=0)
    commit_quietly(run, group, {other: {0: 9}})
    fetch("one partition", wanted(group, {topic: [0]}))
    fetch("partitions in the order of the request", wanted(group, {other: [0], topic: [1, 0]}))
    fetch("one that was never committed", wanted(group, {other: [3, 0]}))
    fetch("of a topic that does not exist", wanted(group, {nowhere: [0], other: [0]}))
    fetch("one partition twice", wanted(group, {topic: [0, 0]}))
    fetch("of a group without an id", wanted("", {topic: [0]}))
    fetch("no topics", wanted(group, {}))
    if run.version >= 2:
        fetch("all", wanted(group, None))
        fetch("all of a group that does not exist", wanted(absent, None))
    if run.version >= 7:
        fetch("stable offsets", wanted(group, {topic: [0]}), require_stable=True)
    if run.version >= 8:
        fetch("of three groups", wanted(group, {topic: [0]}), wanted(absent, {topic: [0]}), wanted(group, None))
        fetch("of no group")
    if run.version >= 9:
        as_member = wanted(group, {topic: [0]})
        as_member.member_id, as_member.member_epoch = UNKNOWN, 3
        fetch("as an unknown member", as_member)


@script(ApiKey.OFFSET_DELETE)
def deleting_offsets(run: ScriptRun) -> None:
    find_coordinator(run)
    topic, other, nowhere = run.topic("t", 2), run.topic("u"), run.name("nowhere")
    group = run.name("g")

    def delete(label: str, group_id: str, topics: dict[str, list[int]]) -> None:
        listed = [
            OffsetDeleteRequestTopic(name, [OffsetDeleteRequestPartition(index) for index in partitions])
            for name, partitions in topics.items()
        ]
        run.record(label, OffsetDeleteRequest(group_id=group_id, topics=listed))

    delete("of a group without an id", "", {topic: [0]})
    delete("of a group that does not exist", group, {topic: [0]})
    delete("of a topic and a group that do not exist", group, {nowhere: [0]})
    commit_quietly(run, group, {topic: {0: 5}, other: {0: 9}})
    delete("one that was never committed", group, {topic: [1]})
    delete("one", group, {topic: [0]})
    delete("of a topic that does not exist", group, {nowhere: [0], other: [0, 7]})
    delete("nothing", group, {})
    member = Member.stable(run, run.name("members"), metadata=subscription(topic))
    delete("of a topic that members subscribe to", member.group_id, {topic: [0], other: [0]})
    odd = Member.stable(run, run.name("odd"), protocol_type="odd")
    delete("of a group of another protocol type, with members", odd.group_id, {topic: [0]})
