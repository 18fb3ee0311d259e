"""The configs of replication, read when the node starts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from strandline.model.config_keys.broker import config_field


class ReplicationSettings(msgspec.Struct, frozen=True):
    """Fields are named as their keys, without `replica.` or `strandline.`."""

    listener: str = "PLAINTEXT"
    """The value of inter.broker.listener.name."""
    fetch_wait_max_ms: int = config_field("replica.fetch.wait.max.ms")
    fetch_min_bytes: int = config_field("replica.fetch.min.bytes")
    fetch_max_bytes: int = config_field("replica.fetch.max.bytes")
    """The limit per partition."""
    fetch_response_max_bytes: int = config_field("replica.fetch.response.max.bytes")
    fetch_backoff_ms: int = config_field("replica.fetch.backoff.ms")
    socket_timeout_ms: int = config_field("replica.socket.timeout.ms")
    lag_time_max_ms: int = config_field("replica.lag.time.max.ms")
    lost_leader_max_wait_ms: int = config_field("strandline.lost.leader.max.wait.ms")

    @classmethod
    def of(cls, get: Callable[[str], Any], listener: str) -> ReplicationSettings:
        """`get` returns the effective value of a broker config."""
        fields = msgspec.structs.fields(cls)
        return cls(listener, *(get(field.encode_name) for field in fields if field.name != "listener"))
