"""FindCoordinator (10): which broker coordinates a group, a transaction or a share partition."""

from __future__ import annotations

from typing import Annotated

from strandline.protocol.types import Message, Struct, between, i8, i16, i32, ignorable, since, string, until


class FindCoordinatorRequest(Message, api_key=10, versions=(0, 6), flexible=3):
    """v1 key type, v3 flexible, v4 several keys (KIP-699), v6 share groups (KIP-932)."""

    key: Annotated[string, until(3)] = ""
    key_type: Annotated[i8, since(1)] = 0  # 0 group, 1 transaction, 2 share partition
    coordinator_keys: Annotated[list[string], since(4)] = []


class FindCoordinatorResponse(Message, api_key=10, versions=(0, 6), flexible=3):
    """v1 throttle time and message, v3 flexible, v4 a result per key."""

    throttle_time_ms: Annotated[i32, since(1), ignorable] = 0
    error_code: Annotated[i16, until(3)] = 0
    error_message: Annotated[string | None, between(1, 3), ignorable] = ""
    node_id: Annotated[i32, until(3)] = 0
    host: Annotated[string, until(3)] = ""
    port: Annotated[i32, until(3)] = 0
    coordinators: Annotated[list[Coordinator], since(4)] = []


class Coordinator(Struct):
    key: string = ""
    node_id: i32 = 0
    host: string = ""
    port: i32 = 0
    error_code: i16 = 0
    error_message: string | None = ""
