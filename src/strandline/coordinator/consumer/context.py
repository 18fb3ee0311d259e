"""What decisions about consumer groups need beside the group, and their timers."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from strandline.coordinator.consumer.settings import ConsumerSettings
from strandline.coordinator.consumer.topics import Topics
from strandline.coordinator.timers import Timers


class ConsumerSession(msgspec.Struct, frozen=True):
    """Timer key: a member that sent no heartbeat for its session timeout."""

    group_id: str
    member_id: str


class RebalanceTimeout(msgspec.Struct, frozen=True):
    """Timer key: a member that has not revoked its partitions within its rebalance timeout."""

    group_id: str
    member_id: str


class TargetSlice(msgspec.Struct, frozen=True):
    """Timer key: the next slice of the target assignment of a large group."""

    group_id: str


class RegexSlice(msgspec.Struct, frozen=True):
    """Timer key: topics are matched with the regular expressions of a group."""

    group_id: str


class ClassicJoinTimeout(msgspec.Struct, frozen=True):
    """Timer key: a member of the classic protocol that was asked to rejoin and has not."""

    group_id: str
    member_id: str


class ClassicSyncTimeout(msgspec.Struct, frozen=True):
    """Timer key: a member of the classic protocol that has joined and not sent SyncGroup."""

    group_id: str
    member_id: str


MemberTimer = ConsumerSession | RebalanceTimeout | ClassicJoinTimeout | ClassicSyncTimeout
"""The member is removed when one of these has passed."""


class ConsumerContext(msgspec.Struct, frozen=True):
    timers: Timers
    topics: Topics
    settings: Callable[[str], ConsumerSettings]
    """Of a group."""
    newest_topic_version: int = 0
    """Of the metadata when a topic was last created or deleted."""
