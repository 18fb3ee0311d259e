"""ConsumerGroupHeartbeat, ConsumerGroupDescribe."""

from __future__ import annotations

from typing import Any

from cluster.handlers.group_members import Member, find_coordinator
from cluster.handlers.script_run import ScriptRun
from cluster.handlers.script_runner import script
from strandline.metadata.values import GROUP_RESOURCE
from strandline.protocol.apis import ApiKey
from strandline.protocol.messages.configs import (
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsRequestAlterableConfig,
    IncrementalAlterConfigsRequestAlterConfigsResource,
)
from strandline.protocol.messages.consumer_groups import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatRequestTopicPartitions,
)


def joining(group: str, member: str, **fields: Any) -> ConsumerGroupHeartbeatRequest:
    defaults: dict[str, Any] = {"rebalance_timeout_ms": 60_000, "subscribed_topic_names": [], "topic_partitions": []}
    return ConsumerGroupHeartbeatRequest(group_id=group, member_id=member, **{**defaults, **fields})


def assign_without_delay(run: ScriptRun, group: str) -> None:
    config = IncrementalAlterConfigsRequestAlterableConfig("consumer.assignment.interval.ms", 0, "0")
    resource = IncrementalAlterConfigsRequestAlterConfigsResource(GROUP_RESOURCE, group, [config])
    run.call(IncrementalAlterConfigsRequest([resource]))
    run.wait_until_replayed("intervals")


@script(ApiKey.CONSUMER_GROUP_HEARTBEAT)
def heartbeats(run: ScriptRun) -> None:
    find_coordinator(run)
    topic = run.topic("t", partitions=2)
    group = run.name("g")
    assign_without_delay(run, group)
    member_epoch = 1

    def send(label: str, request: ConsumerGroupHeartbeatRequest) -> Any:
        return run.record(label, request)

    def beat(label: str, member: str = "a", epoch: int = 1, **fields: Any) -> Any:
        return send(
            label, ConsumerGroupHeartbeatRequest(group_id=group, member_id=member, member_epoch=epoch, **fields)
        )

    beat("a group that does not exist")
    beat("leaving a group that does not exist", epoch=-1)
    beat("an epoch that does not exist", epoch=-3)
    beat("a static member without an instance id leaves", epoch=-2)
    send("no group id", joining("", "a"))
    send("an empty instance id", joining(group, "a", instance_id=""))
    send("an empty rack id", joining(group, "a", rack_id=""))
    send("joining without a rebalance timeout", joining(group, "a", rebalance_timeout_ms=-1))
    send("joining without a subscription", joining(group, "a", subscribed_topic_names=None))
    send("joining without owned partitions", joining(group, "a", topic_partitions=None))
    send("an assignor that does not exist", joining(group, "a", server_assignor="sticky"))
    if run.version >= 1:
        send("no member id", joining(group, ""))
        request = joining(group, "a", subscribed_topic_names=None, subscribed_topic_regex="t(")
        response = run.call(request)
        assert response.error_code == 128, response
    joined = send("the first member", joining(group, "a", subscribed_topic_names=[topic]))
    member_epoch = joined.member_epoch
    topic_id = joined.assignment.topic_partitions[0].topic_id
    owned = [ConsumerGroupHeartbeatRequestTopicPartitions(topic_id, [0, 1])]
    beat("nothing has changed")
    beat("a full request", rebalance_timeout_ms=60_000, subscribed_topic_names=[topic], topic_partitions=owned)
    beat("a member that does not exist", member="b")
    beat("an epoch ahead", epoch=member_epoch + 1)
    send("joining once more", joining(group, "a", subscribed_topic_names=[topic]))
    beat("without topics, while it owns partitions", subscribed_topic_names=[], topic_partitions=owned)
    beat("it has revoked them", topic_partitions=[])
    beat("the previous epoch", topic_partitions=[])
    beat("the previous epoch without owned partitions")
    beat("leaving", epoch=-1)
    beat("leaving twice", epoch=-1)
    send("a static member", joining(group, "s", instance_id="i", subscribed_topic_names=[topic]))
    send("its instance id is in use", joining(group, "s2", instance_id="i", subscribed_topic_names=[topic]))
    beat("another member with its instance id", member="s2", epoch=3, instance_id="i")
    beat("an instance id that does not exist", member="s", epoch=3, instance_id="j")
    beat("it leaves for now", member="s", epoch=-2, instance_id="i")
    send("it returns under another member id", joining(group, "s3", instance_id="i", subscribed_topic_names=[topic]))
    beat("its former member id", member="s", epoch=-1, instance_id="i")
    beat("it leaves", member="s3", epoch=-1, instance_id="i")
    classic = Member.stable(run, run.name("classic"), protocol_type="other")
    send("a classic group of another protocol type", joining(classic.group_id, "a", subscribed_topic_names=[topic]))


@script(ApiKey.CONSUMER_GROUP_DESCRIBE)
def describing_consumer_groups(run: ScriptRun) -> None:
    find_coordinator(run)
    topic = run.topic("t", partitions=2)
    group = run.name("g")

    def describe(label: str, *groups: str, operations: bool = False) -> Any:
        request = ConsumerGroupDescribeRequest(list(groups), operations)
        return run.record(label, request, mask={"client_host"})

    describe("nothing")
    describe("a group without an id", "")
    describe("a group that does not exist", run.name("nowhere"))
    run.call(joining(group, "a", subscribed_topic_names=[topic], rack_id="r", instance_id="i"), 1)
    described = describe("a group with a member", group)
    assert described.groups[0].members[0].client_host == "/127.0.0.1", described
    describe("with authorized operations", group, run.name("nowhere"), operations=True)
    describe("one group twice", group, group)
    run.call(ConsumerGroupHeartbeatRequest(group, "a", -2, instance_id="i"), 1)
    describe("a static member that has left for now", group)
    run.call(ConsumerGroupHeartbeatRequest(group, "a", -1, instance_id="i"), 1)
    describe("an empty group", group)
    describe("a classic group", Member.stable(run, run.name("classic")).group_id)
