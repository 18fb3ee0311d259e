"""What replication is told: the values of Kafka's keys that it obeys. They are read when a node starts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from strandline.model.config_keys.broker import broker_default


class ReplicationSettings(msgspec.Struct, frozen=True):
    """Names are those of the keys, without their `replica.`."""

    listener: str = "PLAINTEXT"  # inter.broker.listener.name
    fetch_wait_max_ms: int = broker_default("replica.fetch.wait.max.ms")
    fetch_min_bytes: int = broker_default("replica.fetch.min.bytes")
    fetch_max_bytes: int = broker_default("replica.fetch.max.bytes")  # of one partition
    fetch_response_max_bytes: int = broker_default("replica.fetch.response.max.bytes")
    fetch_backoff_ms: int = broker_default("replica.fetch.backoff.ms")
    socket_timeout_ms: int = broker_default("replica.socket.timeout.ms")
    lag_time_max_ms: int = broker_default("replica.lag.time.max.ms")

    @classmethod
    def of(cls, get: Callable[[str], Any], listener: str) -> ReplicationSettings:
        """`get` gives the effective value of a broker key."""
        return cls(
            listener,
            get("replica.fetch.wait.max.ms"),
            get("replica.fetch.min.bytes"),
            get("replica.fetch.max.bytes"),
            get("replica.fetch.response.max.bytes"),
            get("replica.fetch.backoff.ms"),
            get("replica.socket.timeout.ms"),
            get("replica.lag.time.max.ms"),
        )
