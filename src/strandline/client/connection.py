"""One connection to one node: the asyncio shell around `core/request_codec`.

Callers await their responses; the response to a cancelled call is dropped when it arrives. When a call times out the
whole connection is closed, since responses arrive in order and every later one would wait for the missing one.
"""

from __future__ import annotations

import asyncio
import os
from typing import Any, TypeVar, cast

from strandline import __version__
from strandline.client.core.broker_versions import BrokerVersions, retry_version
from strandline.client.core.request_codec import RequestCodec
from strandline.client.errors import BrokerUnreachable, ConnectionLost, ProtocolViolation, RequestTimedOut, error_of
from strandline.client.settings import ClientSettings
from strandline.model.errors import ErrorCode, KafkaError
from strandline.model.ids import Endpoint
from strandline.protocol.apis import ApiKey
from strandline.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from strandline.protocol.types import Message
from strandline.runtime.file_slice import FileSlice
from strandline.runtime.network import Network

SOFTWARE_NAME = "strandline"
INVALID_ADDRESS_ERRORS = (ValueError, OverflowError)
"""What Python raises for a host name or port that cannot exist; addresses come from other nodes."""

R = TypeVar("R", bound=Message)


class Connection(asyncio.BufferedProtocol):
    def __init__(self, endpoint: Endpoint, settings: ClientSettings) -> None:
        self.endpoint = endpoint
        self._settings = settings
        self._codec = RequestCodec(settings.client_id, settings.max_response_bytes)
        self._transport: asyncio.Transport | None = None
        self._pending: dict[int, asyncio.Future[Message]] = {}
        self._closed: KafkaError | None = None
        self._writable: asyncio.Future[None] | None = None
        self._versions: BrokerVersions | None = None

    @classmethod
    async def open(cls, network: Network, endpoint: Endpoint, settings: ClientSettings) -> Connection:
        """Connects and negotiates API versions."""
        connection = cls(endpoint, settings)
        try:
            async with asyncio.timeout(settings.connect_timeout_ms / 1000):
                try:
                    await network.connect(endpoint.host, endpoint.port, lambda: connection)
                except INVALID_ADDRESS_ERRORS as error:
                    raise BrokerUnreachable(f"{endpoint} is not a valid address: {error}") from error
                await connection._negotiate()
        except TimeoutError as error:
            connection.close("it did not respond in time")
            raise BrokerUnreachable(f"{endpoint} did not respond in {settings.connect_timeout_ms} ms") from error
        except OSError as error:
            raise BrokerUnreachable(f"{endpoint}: {_reason(error)}") from error
        except BaseException:
            connection.close("negotiation failed")
            raise
        return connection

    @property
    def is_open(self) -> bool:
        return self._closed is None and self._transport is not None and not self._transport.is_closing()

    @property
    def versions(self) -> BrokerVersions:
        assert self._versions is not None, "`open` returns a connection after it has negotiated"
        return self._versions

    async def call(
        self, request: Message, response_type: type[R], *, version: int | None = None, timeout_ms: int | None = None
    ) -> R:
        """The response to `request`, sent in `version` or in the newest version that both sides support."""
        if version is None:
            version = self.versions.newest_common_version(type(request))
        response = await self._send(request, version, timeout_ms or self._settings.request_timeout_ms)
        assert isinstance(response, response_type)
        return response

    async def send_without_response(self, request: Message, version: int) -> None:
        """Sends a request that has no response: a produce with acks=0."""
        await self._ready_to_write()
        _, parts = self._codec.encode_request(request, version, expects_response=False)
        self._write(parts)

    def close(self, why: str = "closed by us") -> None:
        self._end(ConnectionLost(f"{self.endpoint}: {why}"))

    async def _negotiate(self) -> None:
        response = await self._request_versions(ApiVersionsRequest.versions[1])
        if response.error_code == ErrorCode.UNSUPPORTED_VERSION:
            response = await self._request_versions(
                retry_version(response, ApiKey.API_VERSIONS, ApiVersionsRequest.versions)
            )
        if response.error_code:
            raise error_of(response.error_code, f"{self.endpoint} rejected the ApiVersions request")
        self._versions = BrokerVersions(response)

    async def _request_versions(self, version: int) -> ApiVersionsResponse:
        request = ApiVersionsRequest(client_software_name=SOFTWARE_NAME, client_software_version=__version__)
        response = await self._send(request, version, self._settings.connect_timeout_ms)
        assert isinstance(response, ApiVersionsResponse)
        return response

    async def _send(self, request: Message, version: int, timeout_ms: int) -> Message:
        await self._ready_to_write()
        correlation_id, parts = self._codec.encode_request(request, version)
        loop = asyncio.get_running_loop()
        response: asyncio.Future[Message] = loop.create_future()
        self._pending[correlation_id] = response
        timer = loop.call_later(timeout_ms / 1000, self._on_timeout, correlation_id, type(request), timeout_ms)
        try:
            self._write(parts)
            return await response
        finally:
            timer.cancel()

    async def _ready_to_write(self) -> None:
        while self._writable is not None and self._closed is None:
            await asyncio.shield(self._writable)
        if self._closed is not None:
            raise self._closed
        if self._transport is None:
            raise ConnectionLost(f"{self.endpoint}: not connected")

    def _write(self, parts: list[Any]) -> None:
        assert self._transport is not None
        self._transport.writelines([part.read() if isinstance(part, FileSlice) else part for part in parts])

    def _on_timeout(self, correlation_id: int, request: type[Message], timeout_ms: int) -> None:
        response = self._pending.pop(correlation_id, None)
        if response is not None and not response.done():
            name = request.__name__.removesuffix("Request")
            response.set_exception(RequestTimedOut(f"{self.endpoint} did not respond to {name} within {timeout_ms} ms"))
        self.close("an earlier request timed out")

    def _end(self, error: KafkaError) -> None:
        if self._closed is not None:
            return
        self._closed = error
        if self._transport is not None:
            self._transport.abort()
        pending, self._pending = self._pending, {}
        for response in pending.values():
            if not response.done():
                response.set_exception(error)
                response.exception()  # marks it as retrieved: its caller may have been cancelled
        self.resume_writing()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports do not inherit from asyncio's.
        transport = cast(asyncio.Transport, transport)
        self._transport = transport
        if self._closed is not None:
            transport.abort()

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._codec.get_buffer(sizehint)

    def buffer_updated(self, nbytes: int) -> None:
        try:
            completed = self._codec.buffer_updated(nbytes)
        except ProtocolViolation as violation:
            self._end(ProtocolViolation(f"{self.endpoint}: {violation.why}"))
            return
        for correlation_id, message in completed:
            response = self._pending.pop(correlation_id, None)
            if response is not None and not response.done():
                response.set_result(message)

    def connection_lost(self, error: Exception | None) -> None:
        self._end(ConnectionLost(f"{self.endpoint} closed the connection{f' ({error})' if error else ''}"))

    def pause_writing(self) -> None:
        if self._writable is None:
            self._writable = asyncio.get_running_loop().create_future()

    def resume_writing(self) -> None:
        if self._writable is not None and not self._writable.done():
            self._writable.set_result(None)
        self._writable = None


def _reason(error: OSError) -> str:
    """The error of the operating system, without the text that asyncio adds."""
    if error.errno is not None and error.errno > 0:
        return os.strerror(error.errno)
    return error.strerror or str(error)
