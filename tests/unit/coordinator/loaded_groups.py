"""A group machine whose decisions take effect at once, without a shard: records are replayed and committed."""

from __future__ import annotations

from random import Random
from typing import Any

from strandline.coordinator.decision import Decision, Now, Token
from strandline.coordinator.groups import Caller, GroupMachine
from strandline.coordinator.machine import Producer
from strandline.coordinator.offset_requests import commit_offsets, commit_transactional_offsets, fetch_offsets
from strandline.coordinator.records import CoordinatorRecord
from strandline.coordinator.settings import GroupSettings
from strandline.model.errors import ErrorCode
from strandline.model.ids import ZERO_UUID, Uuid
from strandline.protocol.messages.groups import (
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    LeaveGroupRequest,
    SyncGroupRequest,
    SyncGroupRequestAssignment,
)
from strandline.protocol.messages.offsets import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from strandline.protocol.messages.transactions import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)

CALLER = Caller("client", "/127.0.0.1", 3)
SESSION_TIMEOUT_MS = 1_800_000


class LoadedGroups:
    def __init__(self, **settings: int) -> None:
        self.settings = GroupSettings(initial_rebalance_delay_ms=0, **settings)
        self.machine = GroupMachine(lambda: self.settings, Random(1))
        self.topic_ids: dict[str, Uuid] = {}
        self.now = Now(0, 1_000_000)
        self._end_offset = 0
        self._token = 0

    def wait(self, duration_ms: int) -> None:
        """Time passes; timers are left to the test."""
        self.now = Now(self.now.ms + duration_ms, self.now.wall_ms + duration_ms)

    def apply(self, decision: Decision[Any], producer: Producer | None = None) -> Any:
        for record in decision.records:
            self.machine.timeline.mark(self._end_offset)
            if not decision.is_applied:
                self.machine.replay(record, producer)
            self._end_offset += 1
        self.machine.timeline.commit(self._end_offset)
        if decision.on_committed is not None:
            self.apply(decision.on_committed(self.now))
        return decision.response

    def decide(self, decide: Any, *arguments: Any) -> Any:
        self.machine.timeline.mark(self._end_offset)
        return self.apply(decide(*arguments))

    def token(self) -> Token:
        self._token += 1
        return Token(self._token)

    def end_transaction(self, producer: Producer, *, commit: bool) -> None:
        self.machine.timeline.mark(self._end_offset)
        self.machine.replay_marker(producer, commit=commit)
        self._end_offset += 1
        self.machine.timeline.commit(self._end_offset)

    def replay(self, *records: CoordinatorRecord) -> None:
        self.apply(Decision(None, list(records)))

    def stable_group(self, group_id: str, metadata: bytes = b"", protocol_type: str = "consumer") -> str:
        """A group of one member; returns its member id."""
        request = JoinGroupRequest(
            group_id=group_id,
            session_timeout_ms=SESSION_TIMEOUT_MS,
            rebalance_timeout_ms=SESSION_TIMEOUT_MS,
            protocol_type=protocol_type,
            protocols=[JoinGroupRequestProtocol("range", metadata)],
        )
        self.decide(self.machine.join, request, CALLER, self.token(), self.now)
        while (key := self.machine.timers.pop_expired(self.now.ms)) is not None:
            self.decide(self.machine.on_timer, key, self.now)
        group = self.machine.existing(group_id)
        (member_id,) = group.members
        sync = SyncGroupRequest(
            group_id=group_id,
            generation_id=group.generation,
            member_id=member_id,
            assignments=[SyncGroupRequestAssignment(member_id, b"a")],
        )
        self.decide(self.machine.sync, sync, CALLER, self.token(), self.now)
        return member_id

    def leave(self, group_id: str, member_id: str) -> None:
        request = LeaveGroupRequest(group_id=group_id, member_id=member_id)
        self.decide(self.machine.leave, request, Caller("client", "/127.0.0.1", 0), self.now)

    def commit(
        self,
        group_id: str,
        topic: str,
        offset: int,
        *,
        partition: int = 0,
        metadata: str | None = "",
        retention_ms: int = -1,
        member_id: str = "",
        generation: int = -1,
    ) -> ErrorCode:
        request = OffsetCommitRequest(
            group_id=group_id,
            generation_id_or_member_epoch=generation,
            member_id=member_id,
            retention_time_ms=retention_ms,
            topics=[
                OffsetCommitRequestTopic(
                    topic,
                    self.topic_ids.get(topic, ZERO_UUID),
                    [OffsetCommitRequestPartition(partition, offset, 7, metadata)],
                )
            ],
        )
        response = self.decide(commit_offsets, self.machine, request, 9, self.now)
        return ErrorCode(response.topics[0].partitions[0].error_code)

    def commit_in_transaction(self, producer: Producer, group_id: str, topic: str, offset: int) -> ErrorCode:
        request = TxnOffsetCommitRequest(
            transactional_id="tx",
            group_id=group_id,
            producer_id=producer.producer_id,
            producer_epoch=producer.producer_epoch,
            topics=[TxnOffsetCommitRequestTopic(topic, [TxnOffsetCommitRequestPartition(0, offset)])],
        )
        self.machine.timeline.mark(self._end_offset)
        decision = commit_transactional_offsets(
            self.machine, request, self.now, lambda name: self.topic_ids.get(name, ZERO_UUID)
        )
        return ErrorCode(self.apply(decision, producer).topics[0].partitions[0].error_code)

    def fetch(self, group_id: str, topic: str, partition: int = 0, *, stable: bool = False) -> Any:
        """What OffsetFetch answers for one partition."""
        wanted = OffsetFetchRequestGroup(
            group_id, topics=[OffsetFetchRequestTopics(topic, partition_indexes=[partition])]
        )
        return self._fetched(wanted, stable=stable).topics[0].partitions[0]

    def fetch_all(self, group_id: str) -> dict[tuple[str, int], int]:
        response = self._fetched(OffsetFetchRequestGroup(group_id, topics=None), stable=False)
        return {
            (topic.name, each.partition_index): each.committed_offset
            for topic in response.topics
            for each in topic.partitions
        }

    def _fetched(self, wanted: OffsetFetchRequestGroup, *, stable: bool) -> Any:
        machine = self.machine
        steps = fetch_offsets(
            machine,
            machine.timeline.committed,
            wanted,
            lambda name: self.topic_ids.get(name, ZERO_UUID),
            require_stable=stable,
        )
        while True:
            try:
                next(steps)
            except StopIteration as end:
                return end.value
