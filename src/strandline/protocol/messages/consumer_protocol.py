"""The payload of consumers in JoinGroup and SyncGroup of classic groups; brokers read subscriptions only."""

from __future__ import annotations

from typing import Annotated

from strandline.protocol.types import Message, Struct, bytes_, i32, ignorable, since, string


class ConsumerProtocolSubscription(Message, versions=(0, 3)):
    """v1 owned partitions (KIP-429), v2 generation (KIP-792), v3 rack (KIP-881)."""

    topics: list[string] = []
    user_data: bytes_ | None = None
    owned_partitions: Annotated[list[TopicPartition], since(1), ignorable] = []
    generation_id: Annotated[i32, since(2), ignorable] = -1
    rack_id: Annotated[string | None, since(3), ignorable] = None


class TopicPartition(Struct):
    topic: string = ""
    partitions: list[i32] = []


class ConsumerProtocolAssignment(Message, versions=(0, 3)):
    """The assignment of a consumer; its layout never changed."""

    assigned_partitions: list[TopicPartition] = []
    user_data: bytes_ | None = None
