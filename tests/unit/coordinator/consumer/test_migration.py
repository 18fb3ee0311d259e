"""Live groups change their protocol: classic to consumer and back, without losing an assignment."""

from __future__ import annotations

from typing import Any

import pytest

from strandline.coordinator.classic.group import ClassicGroup, State
from strandline.coordinator.consumer.migration import decode_subscription
from strandline.coordinator.decision import Completion, Decision, Token
from strandline.coordinator.groups import Caller
from strandline.model.errors import ErrorCode, KafkaError
from strandline.protocol.codec import decode, encode_bytes
from strandline.protocol.messages.consumer_protocol import (
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
    TopicPartition,
)
from strandline.protocol.messages.groups import (
    HeartbeatRequest,
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    JoinGroupResponse,
    LeaveGroupRequest,
    MemberIdentity,
    SyncGroupRequest,
    SyncGroupRequestAssignment,
    SyncGroupResponse,
)
from unit.coordinator.consumer.machine import GROUP, Consumer, FakeTopics, Machine, owners, settle, with_settings

CALLER = Caller("client", "/host", 9)


class ClassicConsumer:
    """A member of the classic protocol with the cooperative assignor."""

    def __init__(self, machine: Machine, name: str) -> None:
        self.machine = machine
        self.name = name
        self.member_id = ""
        self.generation = -1
        self.owned: dict[str, frozenset[int]] = {}

    def subscription(self) -> bytes:
        owned = [TopicPartition(topic, sorted(partitions)) for topic, partitions in self.owned.items()]
        message = ConsumerProtocolSubscription(["t"], owned_partitions=owned, generation_id=self.generation)
        return (2).to_bytes(2, "big") + encode_bytes(message, 2)

    def join(self) -> JoinGroupResponse | None:
        protocols = [JoinGroupRequestProtocol("cooperative-sticky", self.subscription())]
        request = JoinGroupRequest(GROUP, 30_000, 60_000, self.member_id, None, "consumer", protocols)
        response: JoinGroupResponse | None = self.machine.join_classic(request, token=ord(self.name))
        if response is not None:
            self.member_id = response.member_id
            if response.error_code == ErrorCode.MEMBER_ID_REQUIRED:
                return self.join()
            self.generation = response.generation_id
        return response

    def sync(self, **assignments: bytes) -> SyncGroupResponse | None:
        each = [SyncGroupRequestAssignment(member, data) for member, data in assignments.items()]
        request = SyncGroupRequest(GROUP, self.generation, self.member_id, None, "consumer", "cooperative-sticky", each)
        self.machine.mark()
        response: SyncGroupResponse | None = self.machine.apply(
            self.machine.machine.sync(request, CALLER, Token(ord(self.name)), self.machine.now)
        )
        if response is not None:
            self.take(response)
        return response

    def take(self, response: SyncGroupResponse) -> None:
        assigned = decode(ConsumerProtocolAssignment, 2, bytes(response.assignment), 2)[0]
        self.owned = {each.topic: frozenset(each.partitions) for each in assigned.assigned_partitions}

    def beat(self) -> ErrorCode:
        self.machine.mark()
        request = HeartbeatRequest(GROUP, self.generation, self.member_id)
        return ErrorCode(self.machine.apply(self.machine.machine.heartbeat(request, self.machine.now)).error_code)

    def rejoin_if_asked(self) -> None:
        if self.beat() is ErrorCode.REBALANCE_IN_PROGRESS:
            self.join()
            self.sync()


def assignment(*partitions: int) -> bytes:
    return (2).to_bytes(2, "big") + encode_bytes(ConsumerProtocolAssignment([TopicPartition("t", list(partitions))]), 2)


def classic_group(machine: Machine, *, initial_delay_ms: int = 3_000) -> ClassicConsumer:
    """A stable classic group with one member that owns every partition."""
    member = ClassicConsumer(machine, "a")
    completed: list[Completion] = []
    machine.apply = _collecting(machine, completed)  # type: ignore[method-assign]
    assert member.join() is None
    machine.wait(initial_delay_ms)
    joined = completed.pop().response
    assert isinstance(joined, JoinGroupResponse)
    member.generation = joined.generation_id
    decision = machine.machine.sync(
        SyncGroupRequest(
            GROUP,
            member.generation,
            member.member_id,
            None,
            "consumer",
            "cooperative-sticky",
            [SyncGroupRequestAssignment(member.member_id, assignment(0, 1, 2, 3))],
        ),
        CALLER,
        Token(1),
        machine.now,
    )
    machine.apply(decision)
    assert decision.on_committed is not None
    machine.apply(decision.on_committed(machine.now))
    synced = completed.pop().response
    assert isinstance(synced, SyncGroupResponse)
    member.take(synced)
    return member


def _collecting(machine: Machine, completed: list[Completion]) -> Any:
    apply = machine.apply

    def collect(decision: Decision[Any]) -> Any:
        completed.extend(decision.completed)
        return apply(decision)

    return collect


def test_a_classic_group_is_upgraded_when_a_member_joins_with_heartbeats() -> None:
    machine = Machine(FakeTopics(t=4))
    old = classic_group(machine)
    new = Consumer(machine, "b", subscribed_topic_names=["t"]).join()
    assert (new.epoch, new.owned) == (2, {})
    assert machine.group.members.get(old.member_id) is not None
    assert old.beat() is ErrorCode.REBALANCE_IN_PROGRESS
    for _ in range(3):
        old.rejoin_if_asked()
        new.beat()
    assert len(old.owned["t"]) == 2
    assert len(owners([new])) == 2
    assert not old.owned["t"] & new.owned["t"]
    assert old.beat() is ErrorCode.NONE


def test_an_upgraded_group_survives_a_failover() -> None:
    machine = Machine(FakeTopics(t=4))
    old = classic_group(machine)
    new = Consumer(machine, "b", subscribed_topic_names=["t"]).join()
    machine.fail_over()
    for _ in range(3):
        old.rejoin_if_asked()
        new.beat()
    assert (len(old.owned["t"]), new.partitions) == (2, 2)


def test_a_group_becomes_classic_again_when_its_last_member_with_heartbeats_leaves() -> None:
    machine = Machine(FakeTopics(t=4))
    old = classic_group(machine)
    new = Consumer(machine, "b", subscribed_topic_names=["t"]).join()
    for _ in range(3):
        old.rejoin_if_asked()
        new.beat()
    new.leave()
    group = machine.machine.group(GROUP)
    assert isinstance(group, ClassicGroup)
    assert (group.state, group.generation) == (State.PREPARING_REBALANCE, old.generation)
    assert old.beat() is ErrorCode.REBALANCE_IN_PROGRESS
    machine.fail_over()
    group = machine.machine.group(GROUP)
    assert isinstance(group, ClassicGroup)
    assert decode_subscription(group.members[old.member_id].protocols[0].metadata).topics == ["t"]


def test_the_last_classic_member_that_leaves_completes_the_upgrade() -> None:
    machine = Machine(FakeTopics(t=4))
    old = classic_group(machine)
    new = Consumer(machine, "b", subscribed_topic_names=["t"]).join()
    machine.mark()
    leaving = LeaveGroupRequest(GROUP, members=[MemberIdentity(old.member_id)])
    response = machine.apply(machine.machine.leave(leaving, Caller("c", "/h", 5), machine.now))
    assert response.members[0].error_code == ErrorCode.NONE
    settle(new)
    assert new.partitions == 4


def test_a_classic_member_that_does_not_rejoin_in_time_is_removed() -> None:
    machine = Machine(FakeTopics(t=4), with_settings(session_timeout_ms=3_600_000))
    old = classic_group(machine)
    new = Consumer(machine, "b", subscribed_topic_names=["t"]).join()
    for _ in range(3):
        assert old.beat() is ErrorCode.REBALANCE_IN_PROGRESS
        machine.wait(20_000)
    settle(new)
    assert new.partitions == 4


@pytest.mark.parametrize(("policy", "allowed"), [("disabled", False), ("downgrade", False), ("UPGRADE", True)])
def test_the_migration_policy_decides_about_upgrades(policy: str, allowed: bool) -> None:
    machine = Machine(FakeTopics(t=4), with_settings(migration_policy=policy))
    classic_group(machine)
    joining = Consumer(machine, "b", subscribed_topic_names=["t"])
    if allowed:
        assert joining.join().epoch == 2
        return
    with pytest.raises(KafkaError) as error:
        joining.join()
    assert error.value.code is ErrorCode.GROUP_ID_NOT_FOUND


def test_without_a_downgrade_policy_the_group_stays_a_consumer_group() -> None:
    machine = Machine(FakeTopics(t=4), with_settings(migration_policy="upgrade"))
    old = classic_group(machine)
    new = Consumer(machine, "b", subscribed_topic_names=["t"]).join()
    new.leave()
    assert len(machine.group.members) == 1
    for _ in range(3):
        old.rejoin_if_asked()
    assert old.owned == {"t": {0, 1, 2, 3}}


def test_a_classic_member_joins_a_consumer_group_and_takes_its_share() -> None:
    machine = Machine(FakeTopics(t=4))
    new = Consumer(machine, "b", subscribed_topic_names=["t"]).join()
    old = ClassicConsumer(machine, "a")
    assert old.join() is not None
    old.sync()
    for _ in range(3):
        new.beat()
        old.rejoin_if_asked()
    assert (len(old.owned["t"]), new.partitions) == (2, 2)


def test_a_classic_member_of_another_protocol_cannot_join_a_consumer_group() -> None:
    machine = Machine(FakeTopics(t=4))
    Consumer(machine, "b", subscribed_topic_names=["t"]).join()
    for protocol_type, metadata in (("connect", b""), ("consumer", b"x")):
        protocols = [JoinGroupRequestProtocol("p", metadata)]
        request = JoinGroupRequest(GROUP, 30_000, 60_000, "", None, protocol_type, protocols)
        assert machine.join_classic(request).error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
