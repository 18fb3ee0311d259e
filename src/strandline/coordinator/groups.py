"""The machine of one shard of `__consumer_offsets`: its groups, their offsets, and the timers of both.

A group is classic or consumer (KIP-848); one that only commits offsets is an empty classic group. `replay` builds the
state from records; requests are decided in the modules of each protocol and in `offset_requests`. Groups are on the
timeline by identity: a classic group that is created or removed by a record that is not committed is reverted; what
happens inside of it is corrected by the decisions themselves (`classic/`).
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from random import Random
from typing import Final, get_args

import msgspec

from strandline.coordinator.classic import join as classic_join
from strandline.coordinator.classic import membership, rebalance
from strandline.coordinator.classic import sync as classic_sync
from strandline.coordinator.classic.group import ClassicGroup
from strandline.coordinator.classic.group import State as ClassicState
from strandline.coordinator.consumer import classic_members, leaving, migration
from strandline.coordinator.consumer.context import ConsumerContext, MemberTimer, RegexSlice, TargetSlice
from strandline.coordinator.consumer.group import ConsumerGroup
from strandline.coordinator.consumer.heartbeat import Identity, Jobs, check_request, heartbeat
from strandline.coordinator.consumer.member import LEAVE_EPOCH, STATIC_LEAVE_EPOCH
from strandline.coordinator.consumer.member import Member as ConsumerMember
from strandline.coordinator.consumer.regexes import on_regex_slice
from strandline.coordinator.consumer.settings import ConsumerSettings
from strandline.coordinator.consumer.target import on_target_slice
from strandline.coordinator.consumer.topics import NoTopics, Topics
from strandline.coordinator.decision import Decision, Now, Token, merged, nothing
from strandline.coordinator.group_counts import GroupCounts
from strandline.coordinator.machine import Producer
from strandline.coordinator.offset_expiry import expire_offsets
from strandline.coordinator.offsets import CommittedOffset, Offsets
from strandline.coordinator.records import CoordinatorRecord
from strandline.coordinator.settings import GroupSettings
from strandline.coordinator.timers import Timers
from strandline.model.errors import ErrorCode, KafkaError
from strandline.model.ids import random_uuid
from strandline.model.timeline import LATEST, Timeline, TimelineMap
from strandline.protocol.messages import group_records
from strandline.protocol.messages.consumer_groups import ConsumerGroupHeartbeatRequest, ConsumerGroupHeartbeatResponse
from strandline.protocol.messages.groups import (
    HeartbeatRequest,
    HeartbeatResponse,
    JoinGroupRequest,
    JoinGroupResponse,
    LeaveGroupRequest,
    LeaveGroupResponse,
    MemberIdentity,
    MemberResponse,
    SyncGroupRequest,
    SyncGroupResponse,
)

_LEAVES_IN_BATCHES_SINCE = 3
_SYNCS_WITH_PROTOCOL_SINCE = 5
# Some milliseconds of work.
_OFFSETS_PER_EXPIRY = 2_000
_EXPIRY_PAUSE_MS = 5


class OffsetExpiry(msgspec.Struct, frozen=True):
    """Timer key: expired offsets are looked for."""


class Caller(msgspec.Struct, frozen=True):
    """The client of a request, as members are described."""

    client_id: str
    client_host: str
    """In Java's form, with a leading slash."""
    version: int
    """Of the request."""


Group = ClassicGroup | ConsumerGroup
"""Both have `group_id`, `type_name`, `protocol_type`, `state_name`, `has_members`, `is_subscribed_to`,
`may_expire_offsets_of` and `tombstones`."""

ConsumerGroupKey = (
    group_records.ConsumerGroupMetadataKey
    | group_records.ConsumerGroupPartitionMetadataKey
    | group_records.ConsumerGroupMemberMetadataKey
    | group_records.ConsumerGroupTargetAssignmentMetadataKey
    | group_records.ConsumerGroupTargetAssignmentMemberKey
    | group_records.ConsumerGroupCurrentMemberAssignmentKey
    | group_records.ConsumerGroupRegularExpressionKey
)
_CONSUMER_GROUP_KEYS: Final = get_args(ConsumerGroupKey)


def _default_consumer_settings(group_id: str) -> ConsumerSettings:
    return ConsumerSettings()


class GroupMachine:
    def __init__(
        self,
        settings: Callable[[], GroupSettings],
        random: Random,
        counts: GroupCounts | None = None,
        topics: Callable[[], Topics] = NoTopics,
        consumer_settings: Callable[[str], ConsumerSettings] | None = None,
    ) -> None:
        """`topics`: the metadata as it is now; `consumer_settings` of a group."""
        self.timeline = Timeline()
        self.timers = Timers()
        self.offsets = Offsets(self.timeline)
        self._groups: TimelineMap[str, Group] = TimelineMap(self.timeline)
        self.counts = counts or GroupCounts()
        self._expiring: list[str] = []
        """Groups whose offsets are still to be looked at in this round of expiry."""
        self._settings = settings
        self._random = random
        self._topics = topics
        self._consumer_settings = consumer_settings or _default_consumer_settings
        self._newest_topic_version = 0
        self._jobs = Jobs()

    @property
    def settings(self) -> GroupSettings:
        return self._settings()

    def group(self, group_id: str, at: int = LATEST) -> Group | None:
        return self._groups.get(group_id, at)

    def groups(self, at: int = LATEST) -> list[Group]:
        return self._groups.values(at)

    def existing(self, group_id: str, at: int = LATEST) -> Group:
        group = self._groups.get(group_id, at)
        if group is None:
            raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"there is no group {group_id!r}")
        return group

    def replay(self, record: CoordinatorRecord, producer: Producer | None) -> None:
        key, value = record.key, record.value
        if isinstance(key, group_records.OffsetCommitKey | group_records.LegacyOffsetCommitKey):
            self._replay_offset(key, value, producer)
        elif isinstance(key, group_records.GroupMetadataKey):
            self._replay_classic_group(key.group, value)
        elif isinstance(key, _CONSUMER_GROUP_KEYS):
            self._replay_consumer_group(key, value)

    def _replay_offset(
        self,
        key: group_records.OffsetCommitKey | group_records.LegacyOffsetCommitKey,
        value: object,
        producer: Producer | None,
    ) -> None:
        committed = None
        if isinstance(value, group_records.OffsetCommitValue):
            committed = CommittedOffset(
                value.offset,
                value.leader_epoch,
                value.metadata,
                value.commit_timestamp,
                value.expire_timestamp,
                value.topic_id,
                self.timeline.marked,
            )
        elif isinstance(value, group_records.LegacyOffsetCommitValue):
            committed = CommittedOffset(
                value.offset, -1, value.metadata, value.commit_timestamp, record_offset=self.timeline.marked
            )
        if committed is not None and key.group not in self._groups:
            self._groups[key.group] = ClassicGroup(key.group, committed.commit_timestamp_ms)
        producer_id = -1 if producer is None else producer.producer_id
        self.offsets.replay(key.group, key.topic, key.partition, committed, producer_id)

    def _replay_classic_group(self, group_id: str, value: object) -> None:
        if isinstance(value, group_records.GroupMetadataValue):
            self._groups[group_id] = ClassicGroup.of_record(group_id, value)
        elif isinstance(self._groups.get(group_id), ClassicGroup):
            del self._groups[group_id]

    def _replay_consumer_group(self, key: ConsumerGroupKey, value: object) -> None:
        group = self._groups.get(key.group_id)
        if isinstance(key, group_records.ConsumerGroupMetadataKey) and value is None:
            if isinstance(group, ConsumerGroup):
                del self._groups[key.group_id]
            return
        if not isinstance(group, ConsumerGroup):
            if value is None:
                return
            # A group that was known by its offsets only, or one that a record before this has removed.
            group = self._groups[key.group_id] = ConsumerGroup(key.group_id, self.timeline)
        group.replay(key, value)

    def replay_marker(self, producer: Producer, *, commit: bool) -> None:
        self.offsets.replay_marker(producer, commit=commit)

    def on_loaded(self, now: Now) -> Decision[None]:
        """Sessions start again in full: members may not have noticed that their coordinator moved."""
        decision = nothing()
        context = self.classic
        for group in self._groups.values():
            if isinstance(group, ConsumerGroup):
                leaving.restart_timers(self.consumer, group, now)
                continue
            for member in group.members.values():
                rebalance.restart_session(context, group, member, now)
            if len(group.members) > self.settings.max_size:
                decision = merged(decision, rebalance.prepare_rebalance(context, group, now))
        self.timers.schedule(OffsetExpiry(), now.ms + self.settings.offsets_retention_check_interval_ms)
        return decision

    def on_timer(self, key: Hashable, now: Now) -> Decision[None]:
        if isinstance(key, OffsetExpiry):
            return self._expire_offsets(key, now)
        if isinstance(key, MemberTimer | TargetSlice | RegexSlice):
            return self._on_consumer_timer(key, now)
        if not isinstance(key, rebalance.JoinTimeout | rebalance.SyncTimeout | rebalance.SessionTimeout):
            raise AssertionError(f"unknown timer {key!r}")
        group = self._groups.get(key.group_id)
        if not isinstance(group, ClassicGroup):
            return nothing()
        if isinstance(key, rebalance.SessionTimeout):
            return membership.on_session_timeout(self.classic, group, key.member_id, now)
        if isinstance(key, rebalance.SyncTimeout):
            return classic_sync.on_sync_timeout(self.classic, group, key.generation, now)
        return rebalance.on_join_timeout(self.classic, group, now)

    def _expire_offsets(self, key: OffsetExpiry, now: Now) -> Decision[None]:
        """Some groups at a time; the rest shortly after."""
        if not self._expiring:
            self._expiring = list(self._groups.keys())
            self.offsets.forget_empty()
        looked_at = 0
        groups = []
        while self._expiring and looked_at < _OFFSETS_PER_EXPIRY:
            group = self._groups.get(self._expiring.pop())
            if group is not None:
                groups.append(group)
                looked_at += 1 + len(self.offsets.all_of(group.group_id))
        interval_ms = self.settings.offsets_retention_check_interval_ms
        self.timers.schedule(key, now.ms + (_EXPIRY_PAUSE_MS if self._expiring else interval_ms))
        decision = expire_offsets(self.offsets, groups, self.settings.offsets_retention_ms, now)
        self.counts.offset_expirations += sum(
            isinstance(record.key, group_records.OffsetCommitKey) for record in decision.records
        )
        return decision

    def _on_consumer_timer(self, key: MemberTimer | TargetSlice | RegexSlice, now: Now) -> Decision[None]:
        known = self._groups.get(key.group_id)
        group = known if isinstance(known, ConsumerGroup) else None
        if isinstance(key, TargetSlice):
            return on_target_slice(self.consumer, self._jobs.targets, group, key.group_id, now)
        if isinstance(key, RegexSlice):
            return on_regex_slice(self.consumer, self._jobs.regexes, group, key.group_id, now)
        member = None if group is None else leaving.timed_out_member(group, key)
        if group is None or member is None:
            return nothing()
        return self._remove_consumers(group, [member], now)

    def _remove_consumers(self, group: ConsumerGroup, members: Sequence[ConsumerMember], now: Now) -> Decision[None]:
        """Removes members; what is left may be a classic group again."""
        context = self.consumer
        if not migration.may_downgrade(context, group, members, self.settings.max_size):
            return Decision(None, leaving.remove_members(context, group, members))
        classic = migration.downgraded(context, group, members, now)
        records = [*group.tombstones(), classic.record()]
        self._groups[group.group_id] = classic
        for member in classic.members.values():
            rebalance.restart_session(self.classic, classic, member, now)
        decision = Decision(None, records, is_applied=True)
        return merged(decision, rebalance.prepare_rebalance(self.classic, classic, now))

    @property
    def classic(self) -> rebalance.ClassicContext:
        return rebalance.ClassicContext(self.timers, self.settings, self.counts)

    @property
    def consumer(self) -> ConsumerContext:
        return ConsumerContext(self.timers, self._topics(), self._consumer_settings, self._newest_topic_version)

    def on_topics_changed(self, names: frozenset[str], new_topics_version: int | None) -> Decision[None]:
        """Topics have changed: their groups look at them again with their next heartbeat. `new_topics_version`: of the
        metadata, when topics were created or deleted."""
        if new_topics_version is not None:
            self._newest_topic_version = new_topics_version
        for group in self._groups.values():
            if isinstance(group, ConsumerGroup) and not names.isdisjoint(group.subscribed_topics()):
                group.request_metadata_refresh()
        return nothing()

    def consumer_heartbeat(
        self, request: ConsumerGroupHeartbeatRequest, caller: Caller, now: Now
    ) -> Decision[ConsumerGroupHeartbeatResponse | None]:
        context = self.consumer
        check_request(request, caller.version, context.settings(request.group_id).assignors)
        if request.member_epoch in (LEAVE_EPOCH, STATIC_LEAVE_EPOCH):
            return self._consumer_leaves(request, now)
        known = self._groups.get(request.group_id)
        group, records = self._heartbeat_group(request, now)
        member_id = request.member_id or str(random_uuid(self._random))
        identity = Identity(member_id, caller.client_id, caller.client_host)
        decision = heartbeat(context, self._jobs, group, request, identity, now)
        if group is not known:
            # Its records are replayed into this group, which has been filled with them already.
            self._groups[request.group_id] = group
            decision.records[:0] = records
            if isinstance(known, ClassicGroup):
                decision.completed += migration.fail_waiting(known)
                leaving.restart_timers(context, group, now)
        return decision

    def _heartbeat_group(
        self, request: ConsumerGroupHeartbeatRequest, now: Now
    ) -> tuple[ConsumerGroup, list[CoordinatorRecord]]:
        """The group of a heartbeat. A member that joins creates it, or makes a consumer group of a classic one: with
        the records that do."""
        known = self._groups.get(request.group_id)
        if isinstance(known, ConsumerGroup) or request.member_epoch != 0:
            return self.consumer_group(request.group_id), []
        records: list[CoordinatorRecord] = []
        if known is not None and known.state is ClassicState.EMPTY:
            records = known.tombstones()
        elif known is not None:
            migration.check_upgrade(self.consumer, known)
            records = migration.upgrade_records(self.consumer, known, now)
        group = ConsumerGroup(request.group_id, self.timeline)
        for record in records:
            group.replay(record.key, record.value)
        return group, records

    def _consumer_leaves(
        self, request: ConsumerGroupHeartbeatRequest, now: Now
    ) -> Decision[ConsumerGroupHeartbeatResponse | None]:
        group = self.consumer_group(request.group_id)
        response = ConsumerGroupHeartbeatResponse(member_id=request.member_id, member_epoch=request.member_epoch)
        member = leaving.leaving_member(group, request)
        if request.member_epoch == STATIC_LEAVE_EPOCH and request.instance_id is not None:
            return Decision(response, leaving.leave_for_now(group, member))
        left: Decision[ConsumerGroupHeartbeatResponse | None] = Decision(response)
        return merged(left, self._remove_consumers(group, [member], now))

    def consumer_group(self, group_id: str, at: int = LATEST) -> ConsumerGroup:
        """Raises GROUP_ID_NOT_FOUND."""
        group = self._groups.get(group_id, at)
        if group is None:
            raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} not found.")
        if not isinstance(group, ConsumerGroup):
            raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} is not a consumer group.")
        return group

    def join(
        self, request: JoinGroupRequest, caller: Caller, token: Token, now: Now
    ) -> Decision[JoinGroupResponse | None]:
        settings = self.settings
        if not request.group_id:
            return Decision(classic_join.join_error(ErrorCode.INVALID_GROUP_ID, request.member_id))
        if not settings.min_session_timeout_ms <= request.session_timeout_ms <= settings.max_session_timeout_ms:
            return Decision(classic_join.join_error(ErrorCode.INVALID_SESSION_TIMEOUT, request.member_id))
        group = self._groups.get(request.group_id)
        tombstones = []
        if isinstance(group, ConsumerGroup):
            if group.has_members:
                return self._join_consumer_group(group, request, caller, token, now)
            tombstones, group = group.tombstones(), None
        is_new = group is None
        if group is None:
            if request.member_id:
                return Decision(classic_join.join_error(ErrorCode.UNKNOWN_MEMBER_ID, request.member_id))
            group = ClassicGroup(request.group_id, now.wall_ms)
        joining = classic_join.Joining(
            request, caller.version, caller.client_id, caller.client_host, token, self._new_member_id
        )
        decision = classic_join.join(self.classic, group, joining, now)
        if is_new and (group.members or group.pending_joins):
            # The record makes the group known to the next coordinator, and its creation revertible.
            self._groups[request.group_id] = group
            decision.records[:0] = [*tombstones, ClassicGroup(request.group_id, now.wall_ms).record()]
            decision.is_applied = True
        return decision

    def _join_consumer_group(
        self, group: ConsumerGroup, request: JoinGroupRequest, caller: Caller, token: Token, now: Now
    ) -> Decision[JoinGroupResponse | None]:
        joining = classic_join.Joining(
            request, caller.version, caller.client_id, caller.client_host, token, self._new_member_id
        )
        try:
            return classic_members.join(self.consumer, self._jobs, group, joining, now)
        except KafkaError as error:
            return Decision(classic_join.join_error(error.code, request.member_id))

    def sync(
        self, request: SyncGroupRequest, caller: Caller, token: Token, now: Now
    ) -> Decision[SyncGroupResponse | None]:
        names_protocol = request.protocol_type is not None and request.protocol_name is not None
        if caller.version >= _SYNCS_WITH_PROTOCOL_SINCE and not names_protocol:
            return Decision(classic_sync.sync_error(ErrorCode.INCONSISTENT_GROUP_PROTOCOL))
        if not request.group_id:
            return Decision(classic_sync.sync_error(ErrorCode.INVALID_GROUP_ID))
        group = self._groups.get(request.group_id)
        if isinstance(group, ConsumerGroup):
            return classic_members.sync(self.consumer, group, request, now)
        if group is None:
            return Decision(classic_sync.sync_error(ErrorCode.UNKNOWN_MEMBER_ID))
        return classic_sync.sync(self.classic, group, request, token, now)

    def heartbeat(self, request: HeartbeatRequest, now: Now) -> Decision[HeartbeatResponse | None]:
        group = self._groups.get(request.group_id)
        if isinstance(group, ConsumerGroup):
            return classic_members.heartbeat(self.consumer, group, request, now)
        return membership.heartbeat(self.classic, self._with_members(request.group_id), request, now)

    def leave(self, request: LeaveGroupRequest, caller: Caller, now: Now) -> Decision[LeaveGroupResponse | None]:
        identities = request.members
        if caller.version < _LEAVES_IN_BATCHES_SINCE:
            identities = [MemberIdentity(request.member_id)]
        group = self._groups.get(request.group_id)
        if group is None or not request.group_id:
            code = ErrorCode.UNKNOWN_MEMBER_ID if request.group_id else ErrorCode.INVALID_GROUP_ID
            if caller.version < _LEAVES_IN_BATCHES_SINCE or code is ErrorCode.INVALID_GROUP_ID:
                raise KafkaError(code, f"there is no group {request.group_id!r}")
            results = [MemberResponse(each.member_id, each.group_instance_id, code) for each in identities]
            return Decision(LeaveGroupResponse(members=results))
        if isinstance(group, ConsumerGroup):
            decision = self._leave_consumer_group(group, identities, now)
        else:
            decision = membership.leave(self.classic, group, identities, now)
        response = decision.response
        if caller.version < _LEAVES_IN_BATCHES_SINCE and response is not None:
            decision.response = LeaveGroupResponse(error_code=response.members[0].error_code)
        return decision

    def _leave_consumer_group(
        self, group: ConsumerGroup, identities: Sequence[MemberIdentity], now: Now
    ) -> Decision[LeaveGroupResponse | None]:
        results = []
        members: dict[str, ConsumerMember] = {}
        for identity in identities:
            code = ErrorCode.NONE
            try:
                member = classic_members.leaving_member(group, identity)
                members[member.member_id] = member
            except KafkaError as error:
                code = error.code
            results.append(MemberResponse(identity.member_id, identity.group_instance_id, code))
        decision: Decision[LeaveGroupResponse | None] = Decision(LeaveGroupResponse(members=results))
        return merged(decision, self._remove_consumers(group, list(members.values()), now)) if members else decision

    def _with_members(self, group_id: str) -> ClassicGroup:
        if not group_id:
            raise KafkaError(ErrorCode.INVALID_GROUP_ID, "the group id is empty")
        group = self._groups.get(group_id)
        if not isinstance(group, ClassicGroup):
            raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID, f"there is no group {group_id!r}")
        return group

    def _new_member_id(self, prefix: str) -> str:
        text = random_uuid(self._random).hex()
        return "-".join((prefix, text[:8], text[8:12], text[12:16], text[16:20], text[20:]))
