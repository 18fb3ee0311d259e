"""consumer_protocol"""

from __future__ import annotations

from typing import Annotated

from strandline.protocol.types import Message, Struct, bytes_, i32, ignorable, since, string


class ConsumerProtocolSubscription(Message, versions=(0, 3)):
    topics: list[string] = []
    user_data: bytes_ | None = None
    owned_partitions: Annotated[list[TopicPartition], since(1), ignorable] = []
    generation_id: Annotated[i32, since(2), ignorable] = -1
    rack_id: Annotated[string | None, since(3), ignorable] = None


class TopicPartition(Struct):
    topic: string = ""
    partitions: list[i32] = []


class ConsumerProtocolAssignment(Message, versions=(0, 3)):
    assigned_partitions: list[TopicPartition] = []
    user_data: bytes_ | None = None
