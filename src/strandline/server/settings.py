"""What the server is told: the values that `node/config` reads from Kafka's keys, and nothing else.

Kafka leaves several limits infinite. A promise of ours is that every one is finite by default, so that a hostile or
broken client meets a limit and not the end of the memory; the defaults below are those.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from strandline.model.config_keys.broker import config_field

# What `queued.max.request.bytes=-1` ("no limit") means here: about five of the largest requests at once.
UNSTATED_QUEUED_BYTES = 512 * 1024 * 1024


class ServerSettings(msgspec.Struct, frozen=True):
    handlers: int = config_field("num.io.threads")
    """Requests handled at the same time."""
    processors: int = config_field("num.network.threads")
    """Accepted and ignored (docs/decisions/0006-process-model.md)."""
    queued_max_requests: int = config_field("queued.max.requests")
    queued_max_request_bytes: int = config_field("queued.max.request.bytes")
    max_request_bytes: int = config_field("socket.request.max.bytes")
    max_idle_ms: int = config_field("connections.max.idle.ms")
    max_connections: int = config_field("max.connections", 10_000)
    max_connections_per_ip: int = config_field("max.connections.per.ip", 5_000)
    max_connections_per_ip_overrides: Mapping[str, int] = msgspec.field(default_factory=dict)
    max_connection_creation_rate: int = config_field("max.connection.creation.rate")  # a second, for each listener
    backlog: int = config_field("socket.listen.backlog.size")
    # Ours, not Kafka's: requests that wait (acks=all, long polls) hold no handler, so they have limits of their own.
    # Beyond them a connection may hold one request at a time, as in Kafka.
    parked_max_requests: int = config_field("strandline.parked.max.requests")
    parked_max_bytes: int = config_field("strandline.parked.max.bytes")
    # Elements of all lists of a request: room for every partition of a large cluster, named by a follower or an admin.
    max_request_elements: int = 250_000
    pipelined: int = config_field("strandline.connection.max.pipelined.requests")
    """Requests of one connection that may be in progress at the same time."""
    # A frame that was begun must be finished within this, plus a second for every 64 KiB that arrived.
    frame_timeout_ms: int = config_field("strandline.frame.timeout.ms")
    metrics_page: bool = config_field("strandline.metrics.page.enable")

    @property
    def queued_bytes_limit(self) -> int:
        return self.queued_max_request_bytes if self.queued_max_request_bytes > 0 else UNSTATED_QUEUED_BYTES


class ListenerSpec(msgspec.Struct, frozen=True):
    """Where to listen. Port 0 takes a free one; the server says which."""

    name: str
    host: str
    port: int
    controller: bool = False  # its requests have a queue of their own, served first
    protected: bool = False  # between nodes: never refused because clients took all of max.connections
