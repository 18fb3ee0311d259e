"""Committed offsets: commit, fetch, transactions, deletion."""

from __future__ import annotations

import struct
from random import Random

import pytest

from strandline.coordinator.decision import Decision
from strandline.coordinator.describe import describe_group, list_groups
from strandline.coordinator.groups import GroupMachine
from strandline.coordinator.machine import Producer
from strandline.coordinator.offset_requests import (
    delete_group,
    delete_offsets,
    delete_offsets_of_former_topics,
    delete_offsets_of_topics,
)
from strandline.coordinator.offsets import CommittedOffset, offset_record, offset_tombstone
from strandline.coordinator.records import GROUP_RECORDS, CoordinatorRecord, decode_record, encode_record
from strandline.coordinator.settings import GroupSettings
from strandline.coordinator.shard import Shard, ShardSettings
from strandline.model.errors import ErrorCode, KafkaError
from strandline.model.ids import ZERO_UUID, TopicPartition, Uuid
from strandline.protocol.messages.group_records import LegacyOffsetCommitKey, LegacyOffsetCommitValue
from strandline.protocol.messages.offsets import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from unit.coordinator.loaded_groups import LoadedGroups
from unit.coordinator.memory_log import MemoryLog
from unit.coordinator.virtual_time import LoopClock, run

PARTITION = TopicPartition("__consumer_offsets", 0)
FIRST = Producer(7, 0)
SECOND = Producer(8, 0)
OLD_ID, NEW_ID = Uuid.of(0, 91), Uuid.of(0, 92)


def subscription(*topics: str) -> bytes:
    names = b"".join(struct.pack(">h", len(topic)) + topic.encode() for topic in topics)
    return struct.pack(">hi", 0, len(topics)) + names + struct.pack(">i", -1)


def deleted(groups: LoadedGroups, group_id: str, topic: str) -> ErrorCode:
    request = OffsetDeleteRequest(
        group_id=group_id, topics=[OffsetDeleteRequestTopic(topic, [OffsetDeleteRequestPartition(0)])]
    )
    response = groups.decide(delete_offsets, groups.machine, request, groups.now)
    return ErrorCode(response.topics[0].partitions[0].error_code)


def test_an_offset_comes_back_with_its_leader_epoch_and_metadata() -> None:
    groups = LoadedGroups()
    assert groups.commit("g", "t", 5, metadata="note") is ErrorCode.NONE
    fetched = groups.fetch("g", "t")
    assert (fetched.committed_offset, fetched.committed_leader_epoch, fetched.metadata) == (5, 7, "note")


def test_null_metadata_comes_back_empty() -> None:
    groups = LoadedGroups()
    groups.commit("g", "t", 5, metadata=None)
    assert groups.fetch("g", "t").metadata == ""


def test_an_offset_that_was_never_committed_is_minus_one_without_an_error() -> None:
    fetched = LoadedGroups().fetch("nobody", "t")
    assert (fetched.committed_offset, fetched.committed_leader_epoch, fetched.error_code) == (-1, -1, ErrorCode.NONE)


def test_metadata_that_is_too_long_is_rejected_and_nothing_is_committed() -> None:
    groups = LoadedGroups(offset_metadata_max_bytes=3)
    assert groups.commit("g", "t", 5, metadata="four") is ErrorCode.OFFSET_METADATA_TOO_LARGE
    assert groups.fetch_all("g") == {}


def test_all_offsets_of_a_group_are_fetched_in_order() -> None:
    groups = LoadedGroups()
    for topic, partition in (("b", 1), ("a", 0), ("b", 0)):
        groups.commit("g", topic, 9, partition=partition)
    groups.commit("other", "c", 1)
    assert list(groups.fetch_all("g")) == [("a", 0), ("b", 0), ("b", 1)]


def test_an_offset_of_a_transaction_is_served_after_its_commit_marker() -> None:
    groups = LoadedGroups()
    groups.commit("g", "t", 5)
    groups.commit_in_transaction(FIRST, "g", "t", 8)
    assert groups.fetch("g", "t").committed_offset == 5
    assert groups.fetch("g", "t", stable=True).error_code == ErrorCode.UNSTABLE_OFFSET_COMMIT
    groups.end_transaction(FIRST, commit=True)
    assert groups.fetch("g", "t", stable=True).committed_offset == 8


def test_an_aborted_offset_is_never_served() -> None:
    groups = LoadedGroups()
    groups.commit("g", "t", 5)
    groups.commit_in_transaction(FIRST, "g", "t", 8)
    groups.end_transaction(FIRST, commit=False)
    assert groups.fetch("g", "t", stable=True).committed_offset == 5


def test_a_partition_is_unstable_until_the_last_of_two_transactions_has_ended() -> None:
    groups = LoadedGroups()
    groups.commit_in_transaction(FIRST, "g", "t", 8)
    groups.commit_in_transaction(SECOND, "g", "t", 9)
    groups.end_transaction(SECOND, commit=True)
    assert groups.fetch("g", "t", stable=True).error_code == ErrorCode.UNSTABLE_OFFSET_COMMIT
    groups.end_transaction(FIRST, commit=True)
    assert groups.fetch("g", "t", stable=True).committed_offset == 9, "the later record counts, not the later marker"


def test_a_commit_outside_of_the_transaction_that_was_written_later_counts() -> None:
    groups = LoadedGroups()
    groups.commit_in_transaction(FIRST, "g", "t", 8)
    groups.commit("g", "t", 6)
    groups.end_transaction(FIRST, commit=True)
    assert groups.fetch("g", "t").committed_offset == 6


def test_deleted_offsets_are_gone() -> None:
    groups = LoadedGroups()
    groups.commit("g", "t", 5)
    groups.commit("g", "u", 6)
    assert deleted(groups, "g", "t") is ErrorCode.NONE
    assert groups.fetch_all("g") == {("u", 0): 6}


def test_offsets_of_a_topic_that_members_subscribe_to_are_not_deleted() -> None:
    groups = LoadedGroups()
    groups.stable_group("g", subscription("t"))
    assert deleted(groups, "g", "t") is ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC
    assert deleted(groups, "g", "u") is ErrorCode.NONE


@pytest.mark.parametrize("metadata", [b"", b"\x00", b"\x00\x00\xff\xff\xff\xff", b"\x00\x00\x00\xff\xff\xffxxxx"])
def test_a_subscription_that_cannot_be_read_counts_as_one_to_every_topic(metadata: bytes) -> None:
    groups = LoadedGroups()
    groups.stable_group("g", metadata)
    assert deleted(groups, "g", "t") is ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC


def test_offsets_of_a_group_with_members_of_another_protocol_type_are_not_deleted() -> None:
    groups = LoadedGroups()
    groups.stable_group("g", protocol_type="connect")
    with pytest.raises(KafkaError) as refused:
        deleted(groups, "g", "t")
    assert refused.value.code is ErrorCode.NON_EMPTY_GROUP


def test_a_deleted_group_takes_its_offsets_with_it_those_of_open_transactions_too() -> None:
    groups = LoadedGroups()
    groups.commit("g", "t", 5)
    groups.commit_in_transaction(FIRST, "g", "u", 8)
    groups.replay(*delete_group(groups.machine, "g"))
    groups.end_transaction(FIRST, commit=True)
    assert groups.fetch_all("g") == {} and groups.machine.group("g") is None


def test_only_a_group_without_members_is_deleted() -> None:
    groups = LoadedGroups()
    member_id = groups.stable_group("g")
    with pytest.raises(KafkaError) as refused:
        delete_group(groups.machine, "g")
    assert refused.value.code is ErrorCode.NON_EMPTY_GROUP
    groups.leave("g", member_id)
    groups.replay(*delete_group(groups.machine, "g"))
    with pytest.raises(KafkaError) as refused:
        delete_group(groups.machine, "g")
    assert refused.value.code is ErrorCode.GROUP_ID_NOT_FOUND


def test_offsets_of_a_deleted_topic_are_deleted_with_it() -> None:
    groups = LoadedGroups()
    groups.topic_ids = {"t": OLD_ID}
    groups.commit("g", "t", 5)
    groups.commit("h", "t", 6)
    groups.commit("g", "u", 7)
    groups.commit_in_transaction(FIRST, "g", "t", 8)
    groups.apply(delete_offsets_of_topics(groups.machine, {"t": OLD_ID}))
    groups.end_transaction(FIRST, commit=True)
    assert groups.fetch_all("g") == {("u", 0): 7} and groups.fetch_all("h") == {}


def test_an_offset_of_a_deleted_topic_is_never_served_to_its_successor() -> None:
    groups = LoadedGroups()
    groups.topic_ids = {"t": OLD_ID}
    groups.commit("g", "t", 5)
    groups.topic_ids = {"t": NEW_ID}
    assert groups.fetch("g", "t").committed_offset == -1 and groups.fetch_all("g") == {}
    groups.commit("g", "t", 1)
    assert groups.fetch("g", "t").committed_offset == 1


def test_an_offset_of_a_transaction_on_a_deleted_topic_is_never_served_to_its_successor() -> None:
    groups = LoadedGroups()
    groups.topic_ids = {"t": OLD_ID}
    groups.commit_in_transaction(FIRST, "g", "t", 5)
    groups.topic_ids = {"t": NEW_ID}
    groups.end_transaction(FIRST, commit=True)
    assert groups.fetch("g", "t").committed_offset == -1


def test_a_deletion_that_is_noticed_late_spares_the_offsets_of_the_successor() -> None:
    groups = LoadedGroups()
    groups.topic_ids = {"t": NEW_ID}
    groups.commit("g", "t", 1)
    groups.apply(delete_offsets_of_topics(groups.machine, {"t": OLD_ID}))
    assert groups.fetch("g", "t").committed_offset == 1


@pytest.mark.parametrize("now", [ZERO_UUID, NEW_ID])
def test_offsets_that_the_former_coordinator_did_not_delete_are_deleted_after_loading(now: Uuid) -> None:
    groups = LoadedGroups()
    groups.topic_ids = {"t": OLD_ID, "u": OLD_ID}
    groups.commit("g", "t", 5)
    groups.commit("g", "u", 6)
    groups.topic_ids["t"] = now
    decision = delete_offsets_of_former_topics(groups.machine, ["g"], lambda name: groups.topic_ids[name])
    assert len(decision.records) == 1
    groups.apply(decision)
    assert groups.fetch_all("g") == {("u", 0): 6}


def test_an_offset_record_is_written_in_kafkas_version() -> None:
    def version(committed: CommittedOffset) -> int:
        value = encode_record(offset_record("g", "t", 0, committed), 0).value
        assert value is not None
        return int.from_bytes(value[:2], "big")

    assert version(CommittedOffset(5, -1, "", 9, topic_id=NEW_ID)) == 4
    assert version(CommittedOffset(5, -1, "", 9, expire_timestamp_ms=99)) == 1, "the only version with an expiry"


def test_an_offset_record_comes_back_as_it_was_written() -> None:
    committed = CommittedOffset(5, 3, "note", 9, topic_id=NEW_ID)
    encoded = encode_record(offset_record("g", "t", 2, committed), 0)
    decoded = decode_record(GROUP_RECORDS, encoded.key, encoded.value)
    assert decoded is not None
    groups = LoadedGroups()
    groups.topic_ids = {"t": NEW_ID}
    groups.replay(decoded)
    fetched = groups.fetch("g", "t", 2)
    assert (fetched.committed_offset, fetched.committed_leader_epoch, fetched.metadata) == (5, 3, "note")


def test_an_offset_record_of_the_first_version_is_loaded() -> None:
    groups = LoadedGroups()
    groups.replay(CoordinatorRecord(LegacyOffsetCommitKey("g", "t", 0), LegacyOffsetCommitValue(5, "m", 9)))
    assert groups.fetch("g", "t").committed_offset == 5


def test_what_groups_without_offsets_left_behind_is_freed() -> None:
    groups = LoadedGroups()
    groups.commit("g", "t", 5)
    groups.commit_in_transaction(FIRST, "g", "t", 8)
    groups.end_transaction(FIRST, commit=True)
    deleted(groups, "g", "t")
    offsets = groups.machine.offsets
    offsets.forget_empty()
    assert not offsets._committed and not offsets._pending and not offsets._producers and not offsets._groups


def test_groups_are_described_and_listed() -> None:
    groups = LoadedGroups()
    groups.commit("simple", "t", 1)
    member_id = groups.stable_group("g", subscription("t"))
    described = describe_group(groups.machine.existing("g"))
    assert (described.group_state, described.protocol_type, described.protocol_data) == ("Stable", "consumer", "range")
    (member,) = described.members
    assert (member.member_id, member.client_id, member.client_host) == (member_id, "client", "/127.0.0.1")
    assert (member.member_metadata, member.member_assignment) == (subscription("t"), b"a")

    def listed(states: set[str], types: set[str]) -> list[tuple[str, str]]:
        at = groups.machine.timeline.committed
        found = list_groups(groups.machine, at, frozenset(states), frozenset(types))
        return [(each.group_id, each.group_state) for each in found]

    assert listed(set(), set()) == [("simple", "Empty"), ("g", "Stable")]
    assert listed({"empty"}, {"classic"}) == [("simple", "Empty")]
    assert listed(set(), {"consumer"}) == []


@pytest.mark.parametrize("commits", [True, False])
def test_loading_replays_the_newest_offset_and_keeps_the_order_with_transactions(commits: bool) -> None:
    """Offsets outside of transactions are gathered while loading; the result is that of the coordinator before."""

    async def scene() -> None:
        log = MemoryLog()
        shard = Shard(PARTITION, log, machine(), GROUP_RECORDS, LoopClock(), ShardSettings(0, 5_000))
        await shard.load()

        async def commit(topic: str, offset: int | None) -> None:
            record = offset_tombstone("g", topic, 0)
            if offset is not None:
                record = offset_record("g", topic, 0, CommittedOffset(offset, -1, "", 1))
            await shard.write(lambda machine, token, now: Decision(True, [record]))

        async def commit_in_transaction(topic: str, offset: int) -> None:
            record = offset_record("g", topic, 0, CommittedOffset(offset, -1, "", 1))
            await shard.write_in_transaction(FIRST, lambda machine, now: Decision(True, [record]))

        for offset in range(10):
            await commit("again", offset)
        await commit("before", 1)
        await commit_in_transaction("before", 2)
        await commit_in_transaction("after", 3)
        await commit("after", 4)
        await commit("deleted", 5)
        await commit("deleted", None)
        await commit_in_transaction("deleted while pending", 6)
        await commit("deleted while pending", None)
        await shard.end_transaction(FIRST, 0, commit=commits)
        await commit("last", 7)

        loaded = Shard(PARTITION, log.successor(), machine(), GROUP_RECORDS, LoopClock(), ShardSettings(0, 5_000))
        await loaded.load()
        expected = {"again": 9, "before": 2 if commits else 1, "after": 4, "last": 7}
        for each in (shard, loaded):
            assert {topic: found.offset for (topic, _), found in each.machine.offsets.all_of("g")} == expected
            assert each.machine.offsets.pending_of("g") == []

    run(scene)


def machine() -> GroupMachine:
    return GroupMachine(GroupSettings, Random(1))
