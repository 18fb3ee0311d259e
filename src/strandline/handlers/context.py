"""The arguments of handlers: the call, and the broker or controller on which it is handled."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Protocol, TypeVar

import msgspec

from strandline.coordinator.groups import GroupMachine
from strandline.coordinator.shards import Shards
from strandline.coordinator.transaction.machine import TransactionMachine
from strandline.metadata.effective_configs import BrokerLayers
from strandline.metadata.image import Image
from strandline.metadata.views import View
from strandline.model.errors import ErrorCode
from strandline.model.ids import TopicPartition
from strandline.protocol.apis import ApiKey
from strandline.protocol.types import Message
from strandline.raft.machine.voters import VoterSet
from strandline.replication.fetch_sessions import FetchSessionCache
from strandline.replication.lost_leaders import LostLeaders
from strandline.replication.table import PartitionTable
from strandline.runtime.world import World

R = TypeVar("R", bound=Message)


class Call(Protocol):
    """One request's header, client and listener; implemented by `server/requests`."""

    offload_encoding: bool
    """Set by a handler to have a large response encoded in a thread instead of on the event loop."""

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
        """Frees the handler slot. To be called before an await that may take long."""
        ...

    def on_connection_lost(self, purpose: str, callback: Callable[[], None]) -> None:
        """Calls `callback` when the connection of this call ends. It replaces an earlier one of the same purpose."""
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


class DynamicConfig(Protocol):
    """The effective config of this broker: its file, then dynamic cluster defaults, then its own dynamic values."""

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
    """The replicas with their sizes in bytes."""


class NodeContext(msgspec.Struct, kw_only=True):
    """What brokers and controllers have in common."""

    node_id: int
    cluster_id: str
    image: Image
    kraft_version: Callable[[], int]
    config: DynamicConfig
    api_ranges: dict[str, dict[int, tuple[int, int]]] = msgspec.field(default_factory=dict)
    """Listener → API key → (min, max version) that ApiVersions advertises. `node` sets it from the handler tables."""

    @property
    def view(self) -> View:
        """Committed metadata."""
        return self.image.committed


class BrokerContext(NodeContext, kw_only=True):
    world: World
    partitions: PartitionTable
    controller: ActiveController
    producer_ids: ProducerIds
    fetch_sessions: FetchSessionCache
    log_directories: Callable[[], list[LogDirectoryInfo]]
    groups: Shards[GroupMachine]
    transactions: Shards[TransactionMachine]
    call_broker: Callable[[int, Message], Awaitable[Message]]
    """Sends a request to another broker and returns its response. Raises KafkaError or OSError when there is none."""
    lost_leaders: LostLeaders = msgspec.field(default_factory=LostLeaders)
    serving: asyncio.Event = msgspec.field(default_factory=asyncio.Event)
    """Set once the controller has unfenced this broker. Earlier requests wait for it."""
    stopping: bool = False

    async def wait_until_serving(self) -> None:
        """Closes the connection when the node is stopping, so that clients use another broker or reconnect later."""
        if self.stopping:
            raise ConnectionAbortedError("the node is stopping")
        await self.serving.wait()

    def stop_serving(self) -> None:
        self.stopping = True
        self.serving.clear()


class ControllerContext(NodeContext, kw_only=True):
    methods: Mapping[ApiKey, ControllerMethod]
    leader_id: Callable[[], int]
    """The leader of the metadata quorum; -1 while none is known."""
    voters: Callable[[], VoterSet]
    broker_connection_lost: Callable[[int, int], None]
    """Takes the id and the epoch of a broker whose heartbeats came over a connection that is lost."""
    table: dict[ApiKey, BoundApi] = msgspec.field(default_factory=dict)
    """What the listener serves; requests inside envelopes are served from it too."""
