"""The config of the server, which `node/config` reads from Kafka's keys.

Limits that Kafka leaves infinite are finite here by default, so that a hostile or broken client reaches a limit before
the node runs out of memory.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from strandline.model.config_keys.broker import config_field

# `queued.max.request.bytes=-1` ("no limit") means about five of the largest requests at once.
DEFAULT_QUEUED_BYTES = 512 * 1024 * 1024


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
    max_connection_creation_rate: int = config_field("max.connection.creation.rate")
    """The limit per second and listener."""
    backlog: int = config_field("socket.listen.backlog.size")
    parked_max_requests: int = config_field("strandline.parked.max.requests")
    """Requests that wait (acks=all, long polls) hold no handler slot, so they have a limit of their own. Above it a
    connection may have one request in flight, as in Kafka."""
    parked_max_bytes: int = config_field("strandline.parked.max.bytes")
    max_request_elements: int = 250_000
    """Elements of all lists of a request: enough for every partition of a large cluster."""
    pipelined: int = config_field("strandline.connection.max.pipelined.requests")
    """Requests of one connection that may be in flight at the same time."""
    frame_timeout_ms: int = config_field("strandline.frame.timeout.ms")
    """A frame must arrive completely within this, plus a second for every 64 KiB of it."""
    metrics_page: bool = config_field("strandline.metrics.page.enable")

    @property
    def queued_bytes_limit(self) -> int:
        return self.queued_max_request_bytes if self.queued_max_request_bytes > 0 else DEFAULT_QUEUED_BYTES


class ListenerSpec(msgspec.Struct, frozen=True):
    """A listener. Port 0 binds a free port (`Server.ports`)."""

    name: str
    host: str
    port: int
    controller: bool = False
    """The listener's requests have their own queue, which is served first."""
    protected: bool = False
    """The listener is for other nodes: not subject to max.connections."""
