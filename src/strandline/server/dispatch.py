"""From a frame to an answer: header, handler, body, authorisation, handling, encoding; and the one error boundary.

`node` gives every listener a table *api key → Handler*. A connection has its frames opened here (`open`) and submits
the calls to the request queue, which runs `serve` on them. What can go wrong has one outcome each:

- a frame that is no request of this listener's table, or a body that does not parse: the connection is closed, the
  reason logged; only an ApiVersions of an unknown version is answered, in version 0: so clients find a common one;
- `KafkaError`: answered in the API's error shape (`Handler.error_response`);
- `ConnectionAbortedError`: the handler wants the connection closed (acks=0 has no other way to say that it failed);
- any other exception is a bug: logged once with its request, answered in the error shape as UNKNOWN_SERVER_ERROR,
  except Produce, which is disconnected since its append may have happened;
- `NodeFault` stops the node; `CancelledError` passes.

Reading and writing messages is quick unless they have very many elements: those are taken apart and put together in a
thread, and beyond a limit not at all, since two bytes on the wire can be a hundred in memory.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Any

import msgspec

from strandline.model.errors import ErrorCode, KafkaError, NodeFault
from strandline.protocol.apis import Api, ApiKey
from strandline.protocol.codec import MalformedMessage, TooManyElements, decode
from strandline.protocol.framing import decode_header, response_parts
from strandline.protocol.messages.api_versions import ApiVersion, ApiVersionsResponse
from strandline.protocol.types import Message
from strandline.runtime.clock import Clock
from strandline.runtime.file_slice import Part
from strandline.runtime.metrics import Metrics
from strandline.runtime.offload import Offload
from strandline.server.requests import Call, Caller, RequestQueue

log = logging.getLogger(__name__)

# The ways in which APIs differ for the server; everything else about them is in their handlers.
PIPELINED = frozenset({ApiKey.PRODUCE})  # may begin while earlier ones of the connection wait
CANCELLED_ON_DISCONNECT = frozenset(
    {ApiKey.FETCH, ApiKey.SHARE_FETCH}
)  # changes nothing while it waits: cancelled with its connection
DISCONNECT_ON_UNEXPECTED_ERROR = frozenset({ApiKey.PRODUCE})

ELEMENTS_PER_STEP = 5_000  # what the event loop decodes in one step: some milliseconds


class Handler(msgspec.Struct, frozen=True):
    api: Api
    handle: Callable[[Call, Any], Awaitable[Message | None]]
    error_response: Callable[[Any, int, ErrorCode, str], Message | None]


class RejectedFrame(Exception):
    """No request of this listener: the connection is closed with this reason."""


class Route:
    """A handler as one listener serves it, with what the hot path needs at hand."""

    __slots__ = (
        "api",
        "cancelled_on_disconnect",
        "errors",
        "handler",
        "max_version",
        "min_version",
        "pipelined",
        "time_ms",
    )

    def __init__(self, handler: Handler, metrics: Metrics) -> None:
        api = handler.api
        self.handler = handler
        self.api = api
        self.min_version = api.min_version
        self.max_version = api.max_version
        self.pipelined = api.key in PIPELINED
        self.cancelled_on_disconnect = api.key in CANCELLED_ON_DISCONNECT
        self.time_ms = metrics.window("kafka.network:type=RequestMetrics,name=TotalTimeMs", request=api.name)
        self.errors = metrics.counter("kafka.network:type=RequestMetrics,name=ErrorsPerSec", request=api.name)


Routes = Mapping[int, Route]


class Dispatch:
    """One for the whole server. `queue` is set by the server, which builds the two around each other."""

    queue: RequestQueue

    def __init__(
        self,
        clock: Clock,
        offload: Offload,
        metrics: Metrics,
        on_fault: Callable[[NodeFault], None],
        max_elements: int,
        authorise: Callable[[Call, Any], None] | None = None,
    ) -> None:
        self._clock = clock
        self._offload = offload
        self._max_elements = max_elements
        self._metrics = metrics
        self._on_fault = on_fault
        self._authorise = authorise  # raises KafkaError to refuse

    def routes(self, handlers: Mapping[int, Handler]) -> Routes:
        return {int(key): Route(handler, self._metrics) for key, handler in handlers.items()}

    def open(self, routes: Routes, caller: Caller, frame: bytearray, now_ms: int) -> Call:
        """The call that a frame asks for; raises RejectedFrame."""
        try:
            header, body_position = decode_header(frame)
        except MalformedMessage as error:
            raise RejectedFrame(f"malformed request header: {error}") from error
        route = routes.get(header.api_key)
        if route is None:
            raise RejectedFrame(f"api key {header.api_key} is not served on this listener")
        version = header.api_version
        if not route.min_version <= version <= route.max_version and header.api_key != ApiKey.API_VERSIONS:
            raise RejectedFrame(
                f"{route.api.name} version {version} is not served (only {route.min_version} to {route.max_version})"
            )
        return Call(caller, self.queue, route, frame, header, body_position, now_ms)

    async def serve(self, call: Call) -> None:
        route = call.route
        try:
            call.caller.answered(call, await self._answer(call, route))
        except MalformedMessage as error:
            call.caller.close(f"malformed {route.api.name} v{call.version} request: {error}")
        except ConnectionAbortedError as error:
            call.caller.close(f"{call!r}: {error}")
        except NodeFault as fault:
            call.caller.close(f"{call!r}: the node stops: {fault}")
            self._on_fault(fault)
        except Exception:
            log.exception("the server itself failed at %r from %s", call, call.client_host)
        finally:
            if not call.has_answer:
                # Closed above already, unless what the handler waited for was cancelled under it.
                call.caller.close(f"{call!r}: ended without an answer")
            self.queue.release(call)
            now_ms = self._clock.now_ms()
            route.time_ms.record(now_ms - call.received_ms, now_ms)

    async def _answer(self, call: Call, route: Route) -> list[Part] | None:
        api = route.api
        if not route.min_version <= call.version <= route.max_version:
            return response_parts(call.correlation_id, api, 0, _versions_to_try(route))
        frame, call.frame = call.frame, None
        assert frame is not None
        try:
            request, _ = decode(api.request, call.version, frame, call.body_position, max_elements=ELEMENTS_PER_STEP)
        except TooManyElements:
            call.offload_encoding = True
            work = partial(decode, max_elements=self._max_elements)
            request, _ = await self._offload.run(work, api.request, call.version, frame, call.body_position)
        try:
            if self._authorise is not None:
                self._authorise(call, request)
            response = await route.handler.handle(call, request)
            if response is None:
                return None
            if call.offload_encoding:
                return await self._offload.run(response_parts, call.correlation_id, api, call.version, response)
            return response_parts(call.correlation_id, api, call.version, response)
        except KafkaError as error:
            return await self._refusal(call, route, request, error)
        except (ConnectionAbortedError, NodeFault):
            raise
        except Exception as error:
            route.errors.add()
            log.exception("a bug met %s %r from %s", api.name, call, call.client_host)
            if api.key in DISCONNECT_ON_UNEXPECTED_ERROR:
                raise ConnectionAbortedError("failed unexpectedly, and its records may have been appended") from error
            unexpected = KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, _UNEXPECTED)
            return await self._refusal(call, route, request, unexpected)

    async def _refusal(self, call: Call, route: Route, request: Any, error: KafkaError) -> list[Part]:
        route.errors.add()
        try:
            if call.offload_encoding:
                parts = await self._offload.run(_error_parts, call, route, request, error)
            else:
                parts = _error_parts(call, route, request, error)
        except ConnectionAbortedError:
            raise
        except Exception as bug:
            log.exception("a bug met the error answer of %s %r", route.api.name, call)
            raise ConnectionAbortedError(f"no answer can tell {error}") from bug
        if parts is None:
            raise ConnectionAbortedError(str(error))
        return parts


def _error_parts(call: Call, route: Route, request: Any, error: KafkaError) -> list[Part] | None:
    response = route.handler.error_response(request, call.version, error.code, error.why)
    return None if response is None else response_parts(call.correlation_id, route.api, call.version, response)


_UNEXPECTED = "the broker met an unexpected error; its log has the details"


def _versions_to_try(route: Route) -> Message:
    """For a client newer than we are: the range of ApiVersions itself, in the layout of version 0."""
    own = ApiVersion(api_key=route.api.key, min_version=route.min_version, max_version=route.max_version)
    return ApiVersionsResponse(error_code=ErrorCode.UNSUPPORTED_VERSION, api_keys=[own])
