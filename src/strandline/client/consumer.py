"""Consumes topics as a member of a group: the asyncio shell around `core/group_member` (or, with the consumer protocol,
`core/consumer_member`) and `fetcher`.

    async with client.consumer("billing", ["orders"]) as consumer:
        while True:
            for fetched in await consumer.poll(500):
                for record in fetched.records():
                    ...

A background task keeps the membership: it joins, sends heartbeats and notices rebalances. Partitions change only inside
`poll`, so between two polls the application owns the partitions of the records it processes. With auto-commit, a poll
commits what earlier polls returned; leaving the `async with` without an exception commits too, and leaves the group.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from types import TracebackType
from typing import Self

from strandline.client.admin.committed_offsets import CommittedOffset, Committer, commit_offsets, fetch_committed
from strandline.client.admin.offsets import list_offsets
from strandline.client.connection import Connection
from strandline.client.coordinators import Coordinators, KeyType
from strandline.client.core.assignment_change import Change
from strandline.client.core.consumer_member import ConsumerMember
from strandline.client.core.fetched_records import FetchedPartition
from strandline.client.core.group_member import GroupMember
from strandline.client.errors import TRANSPORT_ERRORS
from strandline.client.fetcher import Fetcher
from strandline.client.routing import Router
from strandline.client.settings import FetcherSettings, GroupSettings
from strandline.model.errors import ErrorCode, KafkaError
from strandline.model.ids import TopicPartition, random_uuid
from strandline.protocol.messages.consumer_groups import ConsumerGroupHeartbeatRequest, ConsumerGroupHeartbeatResponse
from strandline.protocol.messages.groups import (
    HeartbeatRequest,
    HeartbeatResponse,
    JoinGroupRequest,
    JoinGroupResponse,
    LeaveGroupRequest,
    LeaveGroupResponse,
    SyncGroupRequest,
    SyncGroupResponse,
)
from strandline.protocol.messages.list_offsets import EARLIEST, LATEST
from strandline.protocol.types import Message
from strandline.runtime.tasks import TaskGroup

logger = logging.getLogger(__name__)

Listener = Callable[[Sequence[TopicPartition]], Awaitable[None]]

_RESPONSES: dict[type[Message], type[Message]] = {
    JoinGroupRequest: JoinGroupResponse,
    SyncGroupRequest: SyncGroupResponse,
    HeartbeatRequest: HeartbeatResponse,
    LeaveGroupRequest: LeaveGroupResponse,
    ConsumerGroupHeartbeatRequest: ConsumerGroupHeartbeatResponse,
}
_WAITING_IN_COORDINATOR = (JoinGroupRequest, SyncGroupRequest)
_MIN_CALL_MS = 1_000
_CLOSE_TIMEOUT_MS = 5_000
_MAX_STALE_COMMITS = 5


class GroupConsumer:
    def __init__(
        self,
        router: Router,
        coordinators: Coordinators,
        group_id: str,
        topics: Iterable[str],
        settings: GroupSettings | None = None,
        fetching: FetcherSettings | None = None,
        *,
        on_assigned: Listener | None = None,
        on_revoked: Listener | None = None,
    ) -> None:
        """`on_revoked` runs before partitions are given up, `on_assigned` after they were taken over."""
        self.group_id = group_id
        self._router = router
        self._coordinators = coordinators
        self._settings = settings or GroupSettings()
        self._fetching = fetching or FetcherSettings()
        self._on_assigned = on_assigned
        self._on_revoked = on_revoked
        self._lane = f"member of {group_id} {coordinators.next_lane()}"
        now_ms = router.now_ms()
        self._member = self._new_member(topics, now_ms)
        self._fetcher = Fetcher(router, self._fetching, self._lane + ", fetch")
        self._tasks = TaskGroup()
        self._wake = asyncio.Event()
        self._connection: Connection | None = None
        self._leader_epochs: dict[TopicPartition, int] = {}
        self._committed: dict[TopicPartition, int] = {}
        self._next_commit_ms = now_ms + self._settings.auto_commit_interval_ms
        self._committing = False
        self._next_count_ms = now_ms + router.settings.metadata_max_age_ms
        self._last_error: KafkaError | None = None
        self._given_up: Change | None = None
        """The change whose revoked partitions were given up."""

    def _new_member(self, topics: Iterable[str], now_ms: int) -> GroupMember | ConsumerMember:
        backoff_ms = self._router.settings.retry_backoff_ms
        if self._settings.protocol == "classic":
            return GroupMember(self.group_id, topics, self._settings, now_ms, backoff_ms)
        router = self._router
        return ConsumerMember(
            self.group_id,
            topics,
            self._settings,
            now_ms,
            backoff_ms,
            str(random_uuid(router.world.random)),
            lambda topic_id: router.metadata.names.get(topic_id),
            lambda name: router.metadata.id_of(name),
        )

    @property
    def assignment(self) -> tuple[TopicPartition, ...]:
        return self._member.owned

    @property
    def membership(self) -> Committer:
        """The identity with which offsets are committed, by this consumer or in a transaction (KIP-447)."""
        return Committer(self._member.member_id, self._member.generation, self._settings.instance_id)

    @property
    def last_error(self) -> KafkaError | None:
        """Why no records arrive at the moment, if there is a reason; `poll` keeps retrying."""
        return self._last_error or self._fetcher.last_error

    async def __aenter__(self) -> Self:
        await self._tasks.__aenter__()
        await self._fetcher.__aenter__()
        self._tasks.start(self._run(), name=f"member of {self.group_id}")
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if kind is None and self._settings.auto_commit and self._member.error is None:
                await self._commit_quietly(self._positions(self.assignment))
        finally:
            self._tasks.cancel()
            try:
                await self._tasks.__aexit__(None, None, None)
                await self._leave()
            finally:
                await self._fetcher.__aexit__(None, None, None)
                if self._connection is not None:
                    self._connection.close()

    def subscribe(self, topics: Iterable[str]) -> None:
        """Replaces the subscription; the group rebalances."""
        self._member.subscribe(topics)
        self._wake.set()

    def position(self, partition: TopicPartition) -> int:
        """The offset of the next record that a poll returns."""
        return self._fetcher.position(partition).offset

    def seek(self, partition: TopicPartition, offset: int) -> None:
        if partition not in self.assignment:
            raise ValueError(f"{partition} is not assigned to this member")
        self._fetcher.assign(partition, offset)

    async def poll(self, timeout_ms: int) -> list[FetchedPartition]:
        """Records of the assigned partitions, as soon as there are any; empty after the timeout. Raises KafkaError if
        the membership has failed or records cannot be read."""
        deadline_ms = self._router.now_ms() + timeout_ms
        while True:
            now_ms = self._router.now_ms()
            self._member.on_poll(now_ms)
            self._wake.set()
            while self._member.change is not None:
                if not await self._apply(self._member.change, deadline_ms):
                    break
            if self._member.error is not None:
                raise self._member.error
            self._auto_commit(now_ms)
            fetched = await self._fetcher.poll(max(0, deadline_ms - self._router.now_ms()))
            if fetched or self._router.now_ms() >= deadline_ms:
                for each in fetched:
                    self._leader_epochs[each.partition] = each.batches[-1].header.partition_leader_epoch
                return fetched

    async def commit(self, offsets: Mapping[TopicPartition, CommittedOffset] | None = None) -> None:
        """Commits these offsets, or those after all records that polls have returned. Raises KafkaError, for example
        ILLEGAL_GENERATION if the group has rebalanced without this member."""
        wanted = self._positions(self.assignment) if offsets is None else offsets
        if not wanted:
            return
        failed = await self._commit(wanted)
        self._committed.update({each: wanted[each].offset for each in wanted if each not in failed})
        for error in failed.values():
            self._member.on_commit_error(error.code, self._router.now_ms())
            self._wake.set()
            raise error

    async def _commit(self, offsets: Mapping[TopicPartition, CommittedOffset]) -> dict[TopicPartition, KafkaError]:
        """With the consumer protocol the epoch may have changed since the last heartbeat: the commit is repeated."""
        for _ in range(_MAX_STALE_COMMITS):
            failed = await commit_offsets(self._coordinators, self.group_id, offsets, self.membership)
            if not any(error.code == ErrorCode.STALE_MEMBER_EPOCH for error in failed.values()):
                break
            self._member.on_commit_error(ErrorCode.STALE_MEMBER_EPOCH, self._router.now_ms())
            self._wake.set()
            await self._router.sleep(self._router.settings.retry_backoff_ms)
        return failed

    async def committed(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, CommittedOffset]:
        return await fetch_committed(self._coordinators, self.group_id, partitions)

    def _positions(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, CommittedOffset]:
        """Positions that are not committed yet."""
        held = self._fetcher.assigned
        offsets = {each: self.position(each) for each in partitions if each in held}
        return {
            each: CommittedOffset(offset, self._leader_epochs.get(each, -1))
            for each, offset in offsets.items()
            if self._committed.get(each) != offset
        }

    def _auto_commit(self, now_ms: int) -> None:
        if not self._settings.auto_commit or now_ms < self._next_commit_ms or self._committing:
            return
        self._next_commit_ms = now_ms + self._settings.auto_commit_interval_ms
        offsets = self._positions(self.assignment)
        if offsets:
            self._committing = True
            self._tasks.start(self._commit_quietly(offsets), name=f"commit of {self.group_id}")

    async def _commit_quietly(self, offsets: Mapping[TopicPartition, CommittedOffset]) -> None:
        try:
            await self.commit(offsets)
        except KafkaError as error:
            logger.warning("group %s: offsets were not committed: %s", self.group_id, error)
        finally:
            self._committing = False

    async def _apply(self, change: Change, deadline_ms: int) -> bool:
        """Whether the change was applied or replaced; False if it has to be retried, after the deadline at most."""
        if change.revoked and self._given_up is not change:
            await self._give_up(change)
        try:
            starts = await self._starts(change.assigned, deadline_ms)
        except KafkaError as error:
            if not error.code.retriable:
                raise
            self._last_error = error
            await self._router.sleep(self._router.settings.retry_backoff_ms)
            return False
        self._last_error = None
        if self._member.change is not change:
            return True  # replaced meanwhile, for example because the membership was lost
        for partition, offset in starts.items():
            self._fetcher.assign(partition, offset)
        self._member.on_change_applied(change)
        self._wake.set()
        if change.assigned and self._on_assigned is not None:
            await self._on_assigned(change.assigned)
        return True

    async def _give_up(self, change: Change) -> None:
        """Once per change, also if the positions of the new partitions have to be requested several times."""
        if self._settings.auto_commit and not change.is_lost:
            await self._commit_quietly(self._positions(change.revoked))
        if self._on_revoked is not None:
            await self._on_revoked(change.revoked)
        for partition in change.revoked:
            self._fetcher.unassign(partition)
            self._committed.pop(partition, None)
        self._given_up = change

    async def _starts(self, partitions: Sequence[TopicPartition], deadline_ms: int) -> dict[TopicPartition, int]:
        """The committed offset of each partition, else the one that `offset_reset` chooses."""
        if not partitions:
            return {}
        timeout_ms = max(_MIN_CALL_MS, deadline_ms - self._router.now_ms())
        committed = await fetch_committed(self._coordinators, self.group_id, partitions, timeout_ms=timeout_ms)
        starts = {partition: each.offset for partition, each in committed.items()}
        self._committed.update(starts)
        missing = [each for each in partitions if each not in starts]
        if missing and self._settings.offset_reset == "error":
            raise KafkaError(
                ErrorCode.OFFSET_OUT_OF_RANGE, f"group {self.group_id!r} has no committed offset of {missing[0]}"
            )
        timestamp = EARLIEST if self._settings.offset_reset == "earliest" else LATEST
        listed = await list_offsets(
            self._router,
            dict.fromkeys(missing, timestamp),
            read_committed=self._fetching.read_committed,
            timeout_ms=timeout_ms,
        )
        for partition, found in listed.items():
            if isinstance(found, KafkaError):
                raise found
            starts[partition] = found.offset
        return starts

    async def _run(self) -> None:
        while True:
            await self._count_partitions()
            request = self._member.next_request(self._router.now_ms())
            if request is not None:
                await self._exchange(request)
                continue
            leave = self._member.expired_leave_request()
            if leave is not None:
                logger.warning("group %s: no poll for too long, leaving the group", self.group_id)
                await self._send_leave(leave)
            if self._member.change is not None or self._member.error is not None:
                self._fetcher.interrupt()
            await self._sleep(self._member.next_wakeup_ms())

    async def _count_partitions(self) -> None:
        """Gets the partition counts for the leader of the group, before it assigns and later to detect changes."""
        wanted = self._member.wanted_counts
        if not wanted and (not self._member.leads or self._router.now_ms() < self._next_count_ms):
            return
        self._next_count_ms = self._router.now_ms() + self._router.settings.metadata_max_age_ms
        topics = wanted or self._member.group_topics
        try:
            await self._router.refresh(topics)
        except KafkaError as error:
            self._last_error = error
            self._next_count_ms = 0
            await self._router.sleep(self._router.settings.retry_backoff_ms)
            return
        known = self._router.metadata.topics
        counts = {each: len(known[each].partitions) for each in topics if each in known and not known[each].error}
        self._member.on_partition_counts(counts)

    async def _exchange(self, request: Message) -> None:
        try:
            if self._member.coordinator_lost:
                self._coordinators.forget(KeyType.GROUP, self.group_id)
                self._member.coordinator_lost = False
            self._connection = await self._coordinators.connection(KeyType.GROUP, self.group_id, self._lane)
            timeout_ms = self._router.settings.request_timeout_ms
            if isinstance(request, _WAITING_IN_COORDINATOR):
                timeout_ms += self._settings.max_poll_interval_ms
            response = await self._connection.call(request, _RESPONSES[type(request)], timeout_ms=timeout_ms)
        except KafkaError as error:
            self._last_error = error
            if isinstance(error, TRANSPORT_ERRORS) or error.code.retriable:
                self._member.on_no_response(self._router.now_ms())
            else:
                self._member.on_fatal_error(error)
            return
        self._last_error = None
        self._member.on_response(response, self._router.now_ms())

    async def _sleep(self, until_ms: int | None) -> None:
        times = [each for each in (until_ms, self._next_count_ms if self._member.leads else None) if each is not None]
        timer = None
        if times:
            length_ms = max(0, min(times) - self._router.now_ms())
            timer = asyncio.get_running_loop().call_later(length_ms / 1000, self._wake.set)
        try:
            await self._wake.wait()
        finally:
            self._wake.clear()
            if timer is not None:
                timer.cancel()

    async def _leave(self) -> None:
        request = self._member.leave("the consumer was closed")
        if request is not None:
            await self._send_leave(request)

    async def _send_leave(self, request: Message) -> None:
        """Leaves the group. Otherwise the session expires, so a failure is not retried for long."""
        try:
            await self._coordinators.call(
                KeyType.GROUP, self.group_id, request, _RESPONSES[type(request)], timeout_ms=_CLOSE_TIMEOUT_MS
            )
        except KafkaError as error:
            logger.warning("group %s: could not leave: %s", self.group_id, error)
