"""One connection to one broker: the asyncio shell around `wire`.

Answers are awaited by their callers; a caller that is cancelled leaves its answer to be dropped when it comes. When a
call runs out of time the whole connection is closed, since every later answer would be queued behind the missing one.
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
        self._wire = RequestCodec(settings.client_id, settings.max_response_bytes)
        self._transport: asyncio.Transport | None = None
        self._answers: dict[int, asyncio.Future[Message]] = {}
        self._closed: KafkaError | None = None
        self._writable: asyncio.Future[None] | None = None
        self._versions: BrokerVersions | None = None

    @classmethod
    async def open(cls, network: Network, endpoint: Endpoint, settings: ClientSettings) -> Connection:
        """Connects and learns what the broker speaks."""
        connection = cls(endpoint, settings)
        try:
            async with asyncio.timeout(settings.connect_timeout_ms / 1000):
                await network.connect(endpoint.host, endpoint.port, lambda: connection)
                await connection._negotiate()
        except TimeoutError as error:
            connection.close("it did not answer in time")
            raise BrokerUnreachable(f"{endpoint} did not answer in {settings.connect_timeout_ms} ms") from error
        except OSError as error:
            raise BrokerUnreachable(f"{endpoint}: {_reason(error)}") from error
        except INVALID_ADDRESS_ERRORS as error:
            raise BrokerUnreachable(f"{endpoint} is no address: {error}") from error
        except BaseException:
            connection.close("negotiation failed")
            raise
        return connection

    @property
    def is_open(self) -> bool:
        return self._closed is None and self._transport is not None and not self._transport.is_closing()

    @property
    def versions(self) -> BrokerVersions:
        assert self._versions is not None, "a connection is handed out only after it has negotiated"
        return self._versions

    async def call(
        self, request: Message, response: type[R], *, version: int | None = None, timeout_ms: int | None = None
    ) -> R:
        """The answer to `request`, sent at `version` or at the newest that both sides speak."""
        spoken = self.versions.newest_common_version(type(request)) if version is None else version
        answer = await self._ask(request, spoken, timeout_ms or self._settings.request_timeout_ms)
        assert isinstance(answer, response)
        return answer

    async def tell(self, request: Message, version: int) -> None:
        """Sends what is not answered: a produce with acks=0."""
        await self._ready_to_write()
        _, parts = self._wire.ask(request, version, answered=False)
        self._write(parts)

    def close(self, why: str = "closed by us") -> None:
        self._end(ConnectionLost(f"{self.endpoint}: {why}"))

    async def _negotiate(self) -> None:
        answer = await self._hello(ApiVersionsRequest.versions[1])
        if answer.error_code == ErrorCode.UNSUPPORTED_VERSION:
            answer = await self._hello(retry_version(answer, ApiKey.API_VERSIONS, ApiVersionsRequest.versions))
        if answer.error_code:
            raise error_of(answer.error_code, f"{self.endpoint} refused to say which versions it speaks")
        self._versions = BrokerVersions(answer)

    async def _hello(self, version: int) -> ApiVersionsResponse:
        request = ApiVersionsRequest(client_software_name=SOFTWARE_NAME, client_software_version=__version__)
        answer = await self._ask(request, version, self._settings.connect_timeout_ms)
        assert isinstance(answer, ApiVersionsResponse)
        return answer

    async def _ask(self, request: Message, version: int, timeout_ms: int) -> Message:
        await self._ready_to_write()
        correlation_id, parts = self._wire.ask(request, version)
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[Message] = loop.create_future()
        self._answers[correlation_id] = answer
        timer = loop.call_later(timeout_ms / 1000, self._out_of_time, correlation_id, type(request), timeout_ms)
        try:
            self._write(parts)
            return await answer
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

    def _out_of_time(self, correlation_id: int, request: type[Message], timeout_ms: int) -> None:
        answer = self._answers.pop(correlation_id, None)
        if answer is not None and not answer.done():
            name = request.__name__.removesuffix("Request")
            answer.set_exception(RequestTimedOut(f"{self.endpoint} did not answer {name} within {timeout_ms} ms"))
        self.close("an earlier request ran out of time")

    def _end(self, error: KafkaError) -> None:
        if self._closed is not None:
            return
        self._closed = error
        if self._transport is not None:
            self._transport.abort()
        answers, self._answers = self._answers, {}
        for answer in answers.values():
            if not answer.done():
                answer.set_exception(error)
                answer.exception()  # its caller may be gone; that is no news worth a warning
        self.resume_writing()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports are asyncio's in shape only.
        transport = cast(asyncio.Transport, transport)
        self._transport = transport
        if self._closed is not None:
            transport.abort()

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._wire.get_buffer(sizehint)

    def buffer_updated(self, nbytes: int) -> None:
        try:
            answered = self._wire.buffer_updated(nbytes)
        except ProtocolViolation as violation:
            self._end(ProtocolViolation(f"{self.endpoint}: {violation.why}"))
            return
        for correlation_id, message in answered:
            answer = self._answers.pop(correlation_id, None)
            if answer is not None and not answer.done():
                answer.set_result(message)

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
    """What the operating system says, without asyncio's story around it."""
    if error.errno is not None and error.errno > 0:
        return os.strerror(error.errno)
    return error.strerror or str(error)
