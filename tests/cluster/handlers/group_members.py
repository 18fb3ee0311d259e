"""Members of classic groups for scripts: they join, receive assignments, and wait in JoinGroup on connections of their
own."""

from __future__ import annotations

import struct
from dataclasses import dataclass, field
from typing import Any

from cluster.connection import Connection
from cluster.handlers.script_run import ScriptRun
from strandline.protocol.messages.coordinators import FindCoordinatorRequest
from strandline.protocol.messages.groups import (
    DescribeGroupsRequest,
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    JoinGroupResponse,
    SyncGroupRequest,
    SyncGroupRequestAssignment,
)

NEWEST_JOIN = 9
LAST_SYNC_WITHOUT_PROTOCOL = 4


def find_coordinator(run: ScriptRun) -> None:
    """Until the coordinator serves: its topic is created on first use."""
    run.wait_until(
        lambda: not run.call(FindCoordinatorRequest(coordinator_keys=["g"])).coordinators[0].error_code,
        "there is no coordinator",
    )
    run.wait_until(
        lambda: not run.call(DescribeGroupsRequest(groups=["g"]), 0).groups[0].error_code,
        "the coordinator does not serve",
    )


def subscription(*topics: str) -> bytes:
    """ConsumerProtocolSubscription, version 0."""
    names = b"".join(struct.pack(">h", len(topic)) + topic.encode() for topic in topics)
    return struct.pack(">hi", 0, len(topics)) + names + struct.pack(">i", -1)


def join(
    group_id: str,
    member_id: str = "",
    *,
    protocols: tuple[str, ...] = ("range",),
    metadata: bytes = b"m",
    protocol_type: str = "consumer",
    instance_id: str | None = None,
    session_timeout_ms: int = 30_000,
    rebalance_timeout_ms: int = 60_000,
) -> JoinGroupRequest:
    return JoinGroupRequest(
        group_id=group_id,
        session_timeout_ms=session_timeout_ms,
        rebalance_timeout_ms=rebalance_timeout_ms,
        member_id=member_id,
        group_instance_id=instance_id,
        protocol_type=protocol_type,
        protocols=[JoinGroupRequestProtocol(name, metadata) for name in protocols],
    )


@dataclass(slots=True)
class Member:
    """A member that has joined: what it knows of its group."""

    run: ScriptRun
    group_id: str
    member_id: str
    generation: int
    options: dict[str, Any] = field(default_factory=dict)

    @classmethod
    def joined(cls, run: ScriptRun, group_id: str, **options: Any) -> Member:
        """The first member of a group, in CompletingRebalance."""
        response: JoinGroupResponse = run.call(join(group_id, **options), NEWEST_JOIN)
        if options.get("instance_id") is None:
            response = run.call(join(group_id, response.member_id, **options), NEWEST_JOIN)
        assert response.error_code == 0, response
        return cls(run, group_id, response.member_id, response.generation_id, options)

    @classmethod
    def stable(cls, run: ScriptRun, group_id: str, assignment: bytes = b"a", **options: Any) -> Member:
        """The only member of a stable group."""
        member = cls.joined(run, group_id, **options)
        member.sync(assignment)
        return member

    def sync(self, assignment: bytes = b"a") -> None:
        response = self.run.call(
            SyncGroupRequest(
                group_id=self.group_id,
                generation_id=self.generation,
                member_id=self.member_id,
                assignments=[SyncGroupRequestAssignment(self.member_id, assignment)],
            ),
            LAST_SYNC_WITHOUT_PROTOCOL,
        )
        assert response.error_code == 0, response

    def is_joined_by_another(self) -> Connection:
        """A second member waits in JoinGroup, so the group prepares a rebalance. Close the connection afterwards."""
        connection = Connection(self.run.node.host, self.run.node.port)
        required = connection.call(join(self.group_id, **self.options), NEWEST_JOIN)
        connection.send(join(self.group_id, required.member_id, **self.options), NEWEST_JOIN)
        self.run.wait_until(lambda: self.state() == "PreparingRebalance", "the group does not rebalance")
        return connection

    def state(self) -> str:
        described = self.run.call(DescribeGroupsRequest(groups=[self.group_id]), 5).groups[0]
        return str(described.group_state)
