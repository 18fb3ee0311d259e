"""How a consumer group is described, listed, configured, and asked for offsets."""

from __future__ import annotations

import pytest

from strandline.coordinator.classic.group import ClassicGroup
from strandline.coordinator.consumer.commits import check_commit, check_fetch, check_transactional_commit
from strandline.coordinator.consumer.describe import describe_consumer_group
from strandline.coordinator.consumer.group_records import epoch_record
from strandline.coordinator.consumer.settings import ConsumerSettings
from strandline.coordinator.consumer.xxh3 import xxh3_64
from strandline.coordinator.describe import list_groups
from strandline.coordinator.offset_requests import commit_offsets
from strandline.model.config_keys.broker import broker_default
from strandline.model.errors import ErrorCode, KafkaError
from strandline.model.timeline import LATEST
from strandline.protocol.messages.offsets import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from unit.coordinator.consumer.machine import GROUP, Consumer, FakeTopics, Machine, settle

NOWHERE = frozenset[str]()


def two_members() -> tuple[Machine, Consumer, Consumer]:
    machine = Machine(FakeTopics(t=2))
    a = Consumer(machine, "a", subscribed_topic_names=["t"], rack_id="r", server_assignor="range").join()
    b = Consumer(machine, "b", subscribed_topic_names=["t"]).join()
    return machine, a, b


def test_a_group_is_described_with_current_and_target_assignments() -> None:
    machine, a, b = two_members()
    described = describe_consumer_group(machine.group, LATEST, machine.topics, "uniform")
    assert (described.group_state, described.group_epoch, described.assignment_epoch) == ("Reconciling", 3, 3)
    assert described.assignor_name == "range"
    first, second = described.members
    assert (first.member_id, first.rack_id, first.member_type) == ("a", "r", 1)
    assert [each.partitions for each in first.assignment.topic_partitions] == [[0, 1]]
    assert [each.partitions for each in first.target_assignment.topic_partitions] == [[0]]
    assert second.assignment.topic_partitions == []
    settle(a, b)
    assert describe_consumer_group(machine.group, LATEST, machine.topics, "uniform").group_state == "Stable"


def test_groups_are_listed_by_state_and_type() -> None:
    machine, _, _ = two_members()
    listed = list_groups(machine.machine, LATEST, NOWHERE, NOWHERE)
    assert [(each.group_id, each.group_state, each.group_type, each.protocol_type) for each in listed] == [
        (GROUP, "Reconciling", "consumer", "consumer")
    ]
    assert list_groups(machine.machine, LATEST, NOWHERE, frozenset({"classic"})) == []
    assert list_groups(machine.machine, LATEST, frozenset({"stable"}), NOWHERE) == []
    assert list_groups(machine.machine, LATEST, frozenset({"reconciling"}), frozenset({"consumer"})) == listed


def test_what_is_not_committed_is_not_described() -> None:
    machine, _, _ = two_members()
    committed = machine.machine.timeline.committed
    before = describe_consumer_group(machine.group, committed, machine.topics, "uniform")
    machine.machine.timeline.mark(len(machine.log))
    machine.group.replay(*_epoch(9))
    assert describe_consumer_group(machine.group, committed, machine.topics, "uniform") == before
    machine.machine.timeline.revert_to(len(machine.log))
    assert machine.group.epoch() == 3


def _epoch(epoch: int) -> tuple[object, object]:
    record = epoch_record(GROUP, epoch, 0)
    return record.key, record.value


@pytest.mark.parametrize(
    ("member", "epoch", "version", "code"),
    [
        ("a", 2, 9, ErrorCode.NONE),
        ("a", 1, 9, ErrorCode.STALE_MEMBER_EPOCH),
        ("a", 3, 9, ErrorCode.STALE_MEMBER_EPOCH),
        ("a", 2, 8, ErrorCode.UNSUPPORTED_VERSION),
        ("x", 2, 9, ErrorCode.UNKNOWN_MEMBER_ID),
        ("", -1, 9, ErrorCode.UNKNOWN_MEMBER_ID),
    ],
)
def test_members_commit_with_their_epoch(member: str, epoch: int, version: int, code: ErrorCode) -> None:
    machine, _, _ = two_members()
    topic = machine.topics.by_name("t")
    assert topic is not None
    topics = [OffsetCommitRequestTopic("t", topic.topic_id, [OffsetCommitRequestPartition(0, 5)])]
    machine.mark()
    request = OffsetCommitRequest(GROUP, epoch, member, topics=topics)
    if code is ErrorCode.NONE:
        machine.apply(commit_offsets(machine.machine, request, version, machine.now))
        assert machine.machine.offsets.get(GROUP, "t", 0) is not None
        return
    with pytest.raises(KafkaError) as error:
        commit_offsets(machine.machine, request, version, machine.now)
    assert error.value.code is code


def test_an_empty_group_takes_commits_from_outside() -> None:
    machine, a, b = two_members()
    a.leave()
    b.leave()
    assert check_commit(machine.group, "", -1, [], 9) is None
    check_transactional_commit(machine.group, "", None, -1, [])


def test_offsets_are_fetched_with_the_member_epoch_or_without_any() -> None:
    machine, _, _ = two_members()
    check_fetch(machine.group, LATEST, None, -1)
    check_fetch(machine.group, LATEST, "a", 2)
    for member, epoch, code in (("a", 1, ErrorCode.STALE_MEMBER_EPOCH), ("x", 1, ErrorCode.UNKNOWN_MEMBER_ID)):
        with pytest.raises(KafkaError) as error:
            check_fetch(machine.group, LATEST, member, epoch)
        assert error.value.code is code


def test_group_configs_override_those_of_the_broker_within_its_limits() -> None:
    configs = {"consumer.session.timeout.ms": "50000", "consumer.heartbeat.interval.ms": "99"}
    settings = ConsumerSettings.of(broker_default, configs)
    assert (settings.session_timeout_ms, settings.heartbeat_interval_ms) == (50_000, 5_000)
    assert settings.assignment_interval_ms == 1_000


def test_an_empty_classic_group_becomes_a_consumer_group_and_keeps_its_offsets() -> None:
    machine = Machine(FakeTopics(t=2))
    topic = machine.topics.by_name("t")
    assert topic is not None
    topics = [OffsetCommitRequestTopic("t", topic.topic_id, [OffsetCommitRequestPartition(0, 5)])]
    machine.mark()
    machine.apply(commit_offsets(machine.machine, OffsetCommitRequest(GROUP, topics=topics), 9, machine.now))
    assert isinstance(machine.machine.group(GROUP), ClassicGroup)
    Consumer(machine, "a", subscribed_topic_names=["t"]).join()
    machine.fail_over()
    assert machine.group.has_members
    assert machine.machine.offsets.get(GROUP, "t", 0) is not None


@pytest.mark.parametrize(
    ("data", "expected"),
    [(b"", 0x2D06800538D394C2), (b"a", 0xE6C632B61E964E1F), (b"abc", 0x78AF5F94892F3950)],
)
def test_xxh3_of_known_inputs(data: bytes, expected: int) -> None:
    assert xxh3_64(data) == expected
