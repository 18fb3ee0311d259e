"""What a handler may reach: the call it answers, and the broker it runs on."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Protocol, TypeVar

import msgspec

from strandline.metadata.effective_configs import BrokerLayers
from strandline.metadata.image import Image
from strandline.metadata.views import View
from strandline.model.errors import ErrorCode
from strandline.model.ids import TopicPartition
from strandline.protocol.apis import ApiKey
from strandline.protocol.types import Message
from strandline.raft.machine.voters import VoterSet
from strandline.replication.fetch_sessions import FetchSessionCache
from strandline.replication.table import PartitionTable
from strandline.runtime.world import World

R = TypeVar("R", bound=Message)


class Call(Protocol):
    """Who asks, in which version, and through which door."""

    # To be set when the answer has so many elements that it is better encoded away from the event loop.
    offload_encoding: bool

    @property
    def api_key(self) -> int: ...
    @property
    def version(self) -> int: ...
    @property
    def client_id(self) -> str: ...
    @property
    def principal(self) -> str: ...
    @property
    def listener(self) -> str: ...
    @property
    def client_host(self) -> str: ...

    def park(self) -> None:
        """About to wait for long: the handler slot goes back to those who decide."""
        ...

    def on_connection_lost(self, purpose: str, tell: Callable[[], None]) -> None:
        """Calls `tell` when the connection of this call ends; the last `tell` of a purpose counts."""
        ...


Handle = Callable[[Call, Any], Awaitable[Message | None]]

ErrorResponse = Callable[[Any, int, ErrorCode, str], Message | None]
"""(request, version, error code, reason) → response; None when there is none to send."""

ControllerMethod = Callable[[Any, int], Awaitable[Message]]
"""(request, version) → response, of the controller or the quorum replica in this process."""


class BoundApi(msgspec.Struct, frozen=True):
    """An API as one listener serves it."""

    handle: Handle
    error_response: ErrorResponse


class ActiveController(Protocol):
    """The active controller, in this process or on another node."""

    async def forward(self, call: Call, request: Message, response: type[R], *, version: int | None = None) -> R:
        """Sends a request on behalf of the client of `call`; in the version of the call unless another is given."""
        ...


class ProducerIds(Protocol):
    async def next(self) -> int: ...


class Settings(Protocol):
    """Effective configuration of this broker: static file, then dynamic defaults, then its own dynamic values."""

    def get(self, key: str) -> Any: ...
    def layers(self) -> BrokerLayers: ...


class LogDirectoryInfo(msgspec.Struct, frozen=True):
    """A log directory as DescribeLogDirs shows it."""

    path: str
    offline: bool
    cordoned: bool
    total_bytes: int
    usable_bytes: int
    replicas: list[tuple[TopicPartition, int]]
    """With their sizes in bytes."""


class NodeContext(msgspec.Struct, kw_only=True):
    """A node of the cluster, whatever its roles: what anybody may ask of it."""

    node_id: int
    cluster_id: str
    image: Image
    kraft_version: Callable[[], int]
    settings: Settings
    # Advertised API ranges of each listener, filled in when the handler tables exist: listener → key → (min, max).
    api_ranges: dict[str, dict[int, tuple[int, int]]] = msgspec.field(default_factory=dict)

    @property
    def view(self) -> View:
        """Committed metadata: a node never acts on anything else."""
        return self.image.committed


class BrokerContext(NodeContext, kw_only=True):
    world: World
    partitions: PartitionTable
    controller: ActiveController
    producer_ids: ProducerIds
    fetch_sessions: FetchSessionCache
    log_directories: Callable[[], list[LogDirectoryInfo]]
    # Set once the controller lets clients see this broker; requests that come earlier wait, as in a full backlog.
    serving: asyncio.Event = msgspec.field(default_factory=asyncio.Event)
    stopping: bool = False

    async def wait_until_serving(self) -> None:
        """A node that stops takes nothing more: a closed connection makes clients look for another, or for it again."""
        if self.stopping:
            raise ConnectionAbortedError("the node is stopping")
        await self.serving.wait()

    def stop_serving(self) -> None:
        self.stopping = True
        self.serving.clear()


class ControllerContext(NodeContext, kw_only=True):
    methods: Mapping[ApiKey, ControllerMethod]
    leader_id: Callable[[], int]
    """Of the metadata quorum; -1 while no leader is known."""
    voters: Callable[[], VoterSet]
    broker_connection_lost: Callable[[int, int], None]
    """Takes the id and the epoch of a broker whose heartbeats came over a connection that is lost."""
    table: dict[ApiKey, BoundApi] = msgspec.field(default_factory=dict)
    """What the listener serves; requests inside envelopes are served from it too."""
