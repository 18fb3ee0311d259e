"""A server on a network in memory, and transports through which tests act as its clients.

`MemoryTransport` is the server's transport and the client at once: `send` delivers bytes (held back while the server
has paused reading), `received` is what the client has read. While the client does not read (`reading = False`) the
transport's buffer grows, with the usual calls of pause_writing and resume_writing.
"""

from __future__ import annotations

import asyncio
import random
import struct
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from typing import Any, TypeVar

from strandline.model.errors import ErrorCode, NodeFault
from strandline.protocol.apis import API, ApiKey
from strandline.protocol.codec import decode
from strandline.protocol.framing import request_parts
from strandline.protocol.messages.api_versions import ApiVersion, ApiVersionsRequest, ApiVersionsResponse
from strandline.protocol.messages.fetch import FetchRequest, FetchResponse
from strandline.protocol.messages.metadata import MetadataRequest, MetadataResponse
from strandline.protocol.messages.produce import ProduceRequest, ProduceResponse
from strandline.runtime.disk import SystemDisk
from strandline.runtime.metrics import Metrics
from strandline.runtime.network import Listener, ProtocolFactory
from strandline.runtime.world import World
from strandline.server.dispatch import Handler
from strandline.server.requests import Call
from strandline.server.server import Server
from strandline.server.settings import ListenerSpec, ServerSettings
from strandline.simulation.loop import VirtualLoop

T = TypeVar("T")


def run(scenario: Coroutine[Any, Any, T], within_s: float = 3600) -> T:
    """On virtual time: nothing sleeps, and a scenario that hangs is reported."""
    loop = VirtualLoop()
    try:
        return loop.run(scenario, max_virtual_s=within_s)
    finally:
        loop.close()


async def settle(rounds: int = 20) -> None:
    """Runs everything that is ready, without advancing time."""
    for _ in range(rounds):
        await asyncio.sleep(0)


class LoopClock:
    def now_ms(self) -> int:
        return int(asyncio.get_running_loop().time() * 1000)

    def wall_ms(self) -> int:
        return 1_700_000_000_000 + self.now_ms()


class InlineOffload:
    """Runs blocking work in a later step of the event loop."""

    def __init__(self) -> None:
        self.runs = 0

    async def run(self, work: Callable[..., T], *arguments: object) -> T:
        self.runs += 1
        await asyncio.sleep(0)
        return work(*arguments)

    def close(self) -> None:
        pass


class MemoryTransport(asyncio.Transport):
    def __init__(self, protocol: asyncio.BufferedProtocol, host: str) -> None:
        super().__init__()
        self._protocol = protocol
        self._host = host
        self._undelivered = bytearray()
        self._eof = False
        self._buffered = bytearray()
        self._high, self._low = 65536, 16384
        self._write_paused = False
        self.reading = True
        self.muted = False
        self.closing = False
        self.lost = False
        self.received = bytearray()
        self.writes = 0
        self.most_buffered = 0
        protocol.connection_made(self)

    # The client's side.

    def send(self, data: bytes) -> None:
        self._undelivered += data
        self._deliver()

    def finish(self) -> None:
        """The client shuts down its sending side (FIN)."""
        self._eof = True
        self._deliver()

    def reset(self) -> None:
        self._lose(ConnectionResetError("reset by peer"))

    def read(self, size: int) -> None:
        """The client reads this much of the transport's buffer."""
        taken = self._buffered[:size]
        del self._buffered[:size]
        self.received += taken
        if self._write_paused and len(self._buffered) <= self._low:
            self._write_paused = False
            self._protocol.resume_writing()
        if self.closing and not self._buffered:
            self._lose_soon()

    def read_everything(self) -> None:
        self.reading = True
        self.read(len(self._buffered))

    @property
    def unsent_bytes(self) -> int:
        """What the server has not read yet."""
        return len(self._undelivered)

    def frames(self) -> list[bytes]:
        frames, position = [], 0
        while position + 4 <= len(self.received):
            (size,) = struct.unpack_from(">i", self.received, position)
            frames.append(bytes(self.received[position + 4 : position + 4 + size]))
            position += 4 + size
        return frames

    def correlations(self) -> list[int]:
        return [int.from_bytes(frame[:4], "big") for frame in self.frames()]

    def _deliver(self) -> None:
        while self._undelivered and not self.muted and not self.closing:
            buffer = self._protocol.get_buffer(65536)
            count = min(len(buffer), len(self._undelivered))
            assert count > 0, "get_buffer gave no room"
            buffer[:count] = self._undelivered[:count]
            del self._undelivered[:count]
            del buffer
            self._protocol.buffer_updated(count)
        if self._eof and not self._undelivered and not self.muted and not self.closing:
            self._eof = False
            if not self._protocol.eof_received():
                self.close()

    # The server's side.

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return (self._host, 50000) if name == "peername" else default

    def pause_reading(self) -> None:
        assert not self.muted, "paused twice"
        self.muted = True

    def resume_reading(self) -> None:
        assert self.muted, "resumed without being paused"
        self.muted = False
        asyncio.get_running_loop().call_soon(self._deliver)

    def is_closing(self) -> bool:
        return self.closing

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        assert high is not None and low is not None
        self._high, self._low = high, low

    def get_write_buffer_size(self) -> int:
        return len(self._buffered)

    def write(self, data: bytes | bytearray | memoryview) -> None:
        assert not self.lost, "written after the connection was lost"
        if self.closing:
            return
        self.writes += 1
        if self.reading:
            self.received += data
            return
        self._buffered += data
        self.most_buffered = max(self.most_buffered, len(self._buffered))
        if len(self._buffered) > self._high and not self._write_paused:
            self._write_paused = True
            self._protocol.pause_writing()

    def close(self) -> None:
        if not self.closing:
            self.closing = True
            if not self._buffered:
                self._lose_soon()

    def abort(self) -> None:
        self.closing = True
        self._buffered.clear()
        self._lose_soon()

    def _lose_soon(self) -> None:
        asyncio.get_running_loop().call_soon(self._lose, None)

    def _lose(self, error: Exception | None) -> None:
        if not self.lost:
            self.closing = self.lost = True
            self._protocol.connection_lost(error)


class MemoryListener(Listener):
    def __init__(self, network: MemoryNetwork, port: int) -> None:
        self._network = network
        self._port = port

    @property
    def port(self) -> int:
        return self._port

    async def close(self) -> None:
        self._network.factories.pop(self._port, None)


class MemoryNetwork:
    def __init__(self) -> None:
        self.factories: dict[int, ProtocolFactory] = {}

    async def listen(self, host: str, port: int, factory: ProtocolFactory, backlog: int = 50) -> Listener:
        self.factories[port] = factory
        return MemoryListener(self, port)

    async def connect(self, host: str, port: int, factory: ProtocolFactory) -> asyncio.Transport:
        raise ConnectionRefusedError("the tests of the server connect with MemoryServer.connect")


Handle = Callable[[Call, Any], Awaitable[Any]]


class MemoryServer:
    """A server with two listeners (clients on port 1, controller on port 2)."""

    def __init__(self, settings: ServerSettings | None = None, **options: Any) -> None:
        self.network = MemoryNetwork()
        self.offload = InlineOffload()
        self.metrics = Metrics()
        self.faults: list[NodeFault] = []
        world = World(LoopClock(), SystemDisk(), self.network, self.offload, random.Random(1))
        listeners = [ListenerSpec("CLIENTS", "", 1), ListenerSpec("CONTROLLER", "", 2, controller=True)]
        self.inner = Server(
            listeners, world, settings or ServerSettings(), self.metrics, on_fault=self.faults.append, **options
        )

    async def start(
        self, clients: Mapping[int, Handler], controller: Mapping[int, Handler] | None = None
    ) -> MemoryServer:
        await self.inner.start({"CLIENTS": clients, "CONTROLLER": controller or {}})
        return self

    def connect(self, host: str = "10.0.0.1", port: int = 1) -> MemoryTransport:
        protocol = self.network.factories[port]()
        assert isinstance(protocol, asyncio.BufferedProtocol)
        return MemoryTransport(protocol, host)

    def number(self, name: str) -> float:
        return self.metrics.snapshot(LoopClock().now_ms())[name]


def error_response(request: Any, version: int, code: ErrorCode, why: str) -> Any:
    """The error response of the APIs that the tests use."""
    match request:
        case FetchRequest():
            return FetchResponse(error_code=code)
        case MetadataRequest():
            return MetadataResponse(cluster_id=f"{code.name}: {why}")
        case ApiVersionsRequest():
            return ApiVersionsResponse(error_code=code)
        case ProduceRequest() if request.acks:
            return ProduceResponse(throttle_time_ms=int(code))
    return None


def handlers(**handles: Handle) -> dict[int, Handler]:
    """handlers(PRODUCE=f, FETCH=g)"""
    table = {}
    for name, handle in handles.items():
        key = ApiKey[name]
        table[int(key)] = Handler(API[key], handle, error_response)
    return table


async def handle_produce(call: Call, request: ProduceRequest) -> ProduceResponse | None:
    return ProduceResponse() if request.acks else None


async def handle_metadata(call: Call, request: MetadataRequest) -> MetadataResponse:
    return MetadataResponse(cluster_id=call.client_id)


async def handle_api_versions(call: Call, request: ApiVersionsRequest) -> ApiVersionsResponse:
    return ApiVersionsResponse(api_keys=[ApiVersion(api_key=18, min_version=0, max_version=4)])


def _frame(key: ApiKey, version: int, correlation: int, message: Any, client_id: str = "test") -> bytes:
    return b"".join(request_parts(API[key], version, correlation, client_id, message))  # type: ignore[arg-type]


def produce(correlation: int, acks: int = -1) -> bytes:
    return _frame(ApiKey.PRODUCE, 9, correlation, ProduceRequest(acks=acks, timeout_ms=1000))


def fetch(correlation: int) -> bytes:
    return _frame(ApiKey.FETCH, 12, correlation, FetchRequest(max_wait_ms=500, min_bytes=1))


def metadata(correlation: int, client_id: str = "test") -> bytes:
    return _frame(ApiKey.METADATA, 9, correlation, MetadataRequest(), client_id)


def api_versions(correlation: int, version: int = 3) -> bytes:
    return _frame(ApiKey.API_VERSIONS, version, correlation, ApiVersionsRequest())


def decode_metadata(frame: bytes) -> MetadataResponse:
    return decode(MetadataResponse, 9, frame, 5)[0]
