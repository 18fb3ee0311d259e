"""Groups: list, describe and delete them; read, set and delete their committed offsets."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence

from strandline.client.admin.committed_offsets import (
    CommittedOffset,
    commit_offsets,
    delete_committed,
    fetch_committed,
)
from strandline.client.coordinators import Coordinators, KeyType
from strandline.client.core.consumer_payloads import decode_assignment, decode_subscription
from strandline.client.core.group_descriptions import GroupDescription, GroupListing, MemberDescription
from strandline.client.errors import UnsupportedVersion, error_of
from strandline.client.routing import Router
from strandline.model.errors import ErrorCode, KafkaError
from strandline.model.ids import TopicPartition
from strandline.protocol.errors import MalformedMessage
from strandline.protocol.messages.consumer_groups import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
    ConsumerGroupDescribeResponseAssignment,
)
from strandline.protocol.messages.groups import (
    DeleteGroupsRequest,
    DeleteGroupsResponse,
    DescribedGroupMember,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
    ListGroupsRequest,
    ListGroupsResponse,
)

CONSUMER = "consumer"
DEAD = "Dead"


class GroupAdmin:
    def __init__(self, router: Router, coordinators: Coordinators) -> None:
        self._router = router
        self._coordinators = coordinators

    async def list(self, states: Collection[str] = (), types: Collection[str] = ()) -> list[GroupListing]:
        """The groups of every broker, in these states and of these types (empty: of all), by id."""
        await self._router.retrying(lambda: self._router.refresh([]), self._router.deadline_ms())
        found: Sequence[GroupListing] = ()
        for broker_id in sorted(self._router.metadata.brokers):
            found = [*found, *await self._list_of(broker_id, states, types)]
        return sorted(found, key=lambda each: each.group_id)

    async def _list_of(self, broker_id: int, states: Collection[str], types: Collection[str]) -> Sequence[GroupListing]:
        request = ListGroupsRequest(states_filter=sorted(states), types_filter=sorted(types))

        async def attempt() -> ListGroupsResponse:
            response = await (await self._router.broker(broker_id)).call(request, ListGroupsResponse)
            if response.error_code:
                raise error_of(response.error_code, f"listing the groups of broker {broker_id}")
            return response

        response = await self._router.retrying(attempt, self._router.deadline_ms())
        return [
            GroupListing(each.group_id, each.group_type.lower(), each.protocol_type, each.group_state, broker_id)
            for each in response.groups
        ]

    async def describe(self, group_id: str) -> GroupDescription:
        """Raises KafkaError(GROUP_ID_NOT_FOUND) if there is no such group."""
        try:
            return await self._describe_consumer_group(group_id)
        except UnsupportedVersion:
            pass
        except KafkaError as error:
            if error.code not in (ErrorCode.GROUP_ID_NOT_FOUND, ErrorCode.UNSUPPORTED_VERSION):
                raise
        return await self._describe_classic_group(group_id)

    async def _describe_consumer_group(self, group_id: str) -> GroupDescription:
        response = await self._coordinators.call(
            KeyType.GROUP,
            group_id,
            ConsumerGroupDescribeRequest([group_id]),
            ConsumerGroupDescribeResponse,
            errors=lambda response: [each.error_code for each in response.groups],
        )
        group = response.groups[0]
        if group.error_code:
            raise error_of(group.error_code, group.error_message or f"group {group_id!r}")
        members = [
            MemberDescription(
                each.member_id,
                each.instance_id,
                each.client_id,
                each.client_host,
                tuple(each.subscribed_topic_names),
                _partitions(each.assignment),
                each.member_epoch,
                _partitions(each.target_assignment),
            )
            for each in group.members
        ]
        return GroupDescription(
            group_id,
            CONSUMER,
            CONSUMER,
            group.group_state,
            group.assignor_name,
            await self._coordinators.find(KeyType.GROUP, group_id),
            tuple(members),
            group.group_epoch,
        )

    async def _describe_classic_group(self, group_id: str) -> GroupDescription:
        response = await self._coordinators.call(
            KeyType.GROUP,
            group_id,
            DescribeGroupsRequest([group_id]),
            DescribeGroupsResponse,
            errors=lambda response: [each.error_code for each in response.groups],
        )
        group = response.groups[0]
        if group.error_code or group.group_state == DEAD:
            raise error_of(group.error_code or ErrorCode.GROUP_ID_NOT_FOUND, f"there is no group {group_id!r}")
        is_consumer = group.protocol_type in ("", CONSUMER)
        return GroupDescription(
            group_id,
            "classic",
            group.protocol_type,
            group.group_state,
            group.protocol_data,
            await self._coordinators.find(KeyType.GROUP, group_id),
            tuple(_member(each, is_consumer=is_consumer) for each in group.members),
        )

    async def delete(self, group_id: str) -> None:
        response = await self._coordinators.call(
            KeyType.GROUP,
            group_id,
            DeleteGroupsRequest([group_id]),
            DeleteGroupsResponse,
            errors=lambda response: [each.error_code for each in response.results],
        )
        for result in response.results:
            if result.error_code:
                raise error_of(result.error_code, f"group {group_id!r}")

    async def offsets(
        self, group_id: str, partitions: Iterable[TopicPartition] | None = None, *, require_stable: bool = False
    ) -> dict[TopicPartition, CommittedOffset]:
        return await fetch_committed(self._coordinators, group_id, partitions, require_stable=require_stable)

    async def set_offsets(
        self, group_id: str, offsets: Mapping[TopicPartition, CommittedOffset]
    ) -> dict[TopicPartition, KafkaError]:
        """Commits offsets of a group without members; creates it if needed. Returns the partitions that failed."""
        return await commit_offsets(self._coordinators, group_id, offsets)

    async def delete_offsets(
        self, group_id: str, partitions: Iterable[TopicPartition]
    ) -> dict[TopicPartition, KafkaError]:
        return await delete_committed(self._coordinators, group_id, partitions)


def _partitions(assignment: ConsumerGroupDescribeResponseAssignment) -> tuple[TopicPartition, ...]:
    return tuple(
        TopicPartition(topic.topic_name, index) for topic in assignment.topic_partitions for index in topic.partitions
    )


def _member(member: DescribedGroupMember, *, is_consumer: bool) -> MemberDescription:
    """Other protocols than consumers' have payloads of their own, which are not read; nor are invalid ones."""
    topics: tuple[str, ...] = ()
    assigned: tuple[TopicPartition, ...] = ()
    if is_consumer:
        try:
            if member.member_metadata:
                topics = decode_subscription(member.member_metadata, member.member_id).topics
            assigned = decode_assignment(member.member_assignment)
        except MalformedMessage:
            pass
    return MemberDescription(
        member.member_id, member.group_instance_id, member.client_id, member.client_host, topics, assigned
    )
