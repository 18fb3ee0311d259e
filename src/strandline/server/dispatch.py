"""From a frame to a response: header, handler, body, authorisation, handling, encoding; and the one error boundary.

`node` gives every listener a table *api key → Handler*. A connection has its frames parsed here (`parse_call`) and
submits the calls to the request queue, which runs `serve` on them (`Route.serve`). Every kind of failure has one
outcome:

- a frame that is no request of this listener's table, or a body that does not parse: the connection is closed and the
  reason logged; only ApiVersions in an unknown version gets a response, in version 0, so that clients find a common
  one;
- `KafkaError`: the API's error response (`Handler.error_response`);
- `ConnectionAbortedError`: the connection is closed (the only way to report that an acks=0 Produce failed);
- any other exception is a bug: logged once with its request; the response is UNKNOWN_SERVER_ERROR, except for Produce,
  which is disconnected since its append may have happened;
- `NodeFault` stops the node; `CancelledError` passes.

Messages with very many elements are decoded and encoded in a thread, and requests beyond a limit are rejected, since
two bytes on the wire can be a hundred in memory.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Coroutine, Mapping
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

logger = logging.getLogger(__name__)

# The ways in which APIs differ for the server; everything else about them is in their handlers.
PIPELINED = frozenset({ApiKey.PRODUCE})  # may start while earlier ones of the connection are parked
# Long polls: nothing is left to be done but the response. A member that disconnected stays until its session ends.
CANCELLED_ON_DISCONNECT = frozenset({ApiKey.FETCH, ApiKey.JOIN_GROUP, ApiKey.SHARE_FETCH, ApiKey.SYNC_GROUP})
DISCONNECT_ON_UNEXPECTED_ERROR = frozenset({ApiKey.PRODUCE})

ELEMENTS_PER_STEP = 5_000  # decoded in one step of the event loop: some milliseconds


class Handler(msgspec.Struct, frozen=True):
    api: Api
    handle: Callable[[Call, Any], Awaitable[Message | None]]
    error_response: Callable[[Any, int, ErrorCode, str], Message | None]


class RejectedFrame(Exception):
    """The frame is no request that this listener serves: the connection is closed with this reason."""


class Route:
    """A handler of one listener, with the attributes that the hot path reads."""

    __slots__ = (
        "api",
        "cancelled_on_disconnect",
        "errors",
        "handler",
        "max_version",
        "min_version",
        "pipelined",
        "serve",
        "time_ms",
    )

    def __init__(
        self, handler: Handler, metrics: Metrics, serve: Callable[[Route, Call], Coroutine[Any, Any, None]]
    ) -> None:
        api = handler.api
        self.handler = handler
        self.serve: Callable[[Call], Coroutine[Any, Any, None]] = partial(serve, self)
        self.api = api
        self.min_version = api.min_version
        self.max_version = api.max_version
        self.pipelined = api.key in PIPELINED
        self.cancelled_on_disconnect = api.key in CANCELLED_ON_DISCONNECT
        self.time_ms = metrics.window("kafka.network:type=RequestMetrics,name=TotalTimeMs", request=api.name)
        self.errors = metrics.counter("kafka.network:type=RequestMetrics,name=ErrorsPerSec", request=api.name)


Routes = Mapping[int, Route]


class Dispatch:
    """One for the whole server."""

    def __init__(
        self,
        queue: RequestQueue,
        clock: Clock,
        offload: Offload,
        metrics: Metrics,
        on_fault: Callable[[NodeFault], None],
        max_elements: int,
        authorise: Callable[[Call, Any], None] | None = None,
    ) -> None:
        self._queue = queue
        self._clock = clock
        self._offload = offload
        self._max_elements = max_elements
        self._metrics = metrics
        self._on_fault = on_fault
        self._authorise = authorise  # raises KafkaError to deny

    def routes(self, handlers: Mapping[int, Handler]) -> Routes:
        return {int(key): Route(handler, self._metrics, self.serve) for key, handler in handlers.items()}

    def parse_call(self, routes: Routes, caller: Caller, frame: bytearray, now_ms: int) -> Call:
        """The call that a frame carries, its body not decoded yet; raises RejectedFrame."""
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
        return Call(caller, self._queue, route, frame, header, body_position, now_ms)

    async def serve(self, route: Route, call: Call) -> None:
        try:
            call.caller.respond(call, await self._response(call, route))
        except MalformedMessage as error:
            call.caller.close(f"malformed {route.api.name} v{call.version} request: {error}")
        except ConnectionAbortedError as error:
            call.caller.close(f"{call!r}: {error}")
        except NodeFault as fault:
            call.caller.close(f"{call!r}: the node stops: {fault}")
            self._on_fault(fault)
        except Exception:
            logger.exception("unexpected error of the server at %r from %s", call, call.client_host)
        finally:
            if not call.has_response:
                # Closed above already, unless the handler was cancelled while it waited.
                call.caller.close(f"{call!r}: ended without a response")
            self._queue.release(call)
            now_ms = self._clock.now_ms()
            route.time_ms.record(now_ms - call.received_ms, now_ms)

    async def _response(self, call: Call, route: Route) -> list[Part] | None:
        api = route.api
        if not route.min_version <= call.version <= route.max_version:
            return response_parts(call.correlation_id, api, 0, _unsupported_version(route))
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
            return await self._error_response(call, route, request, error)
        except (ConnectionAbortedError, NodeFault):
            raise
        except Exception as error:
            route.errors.add()
            logger.exception("unexpected error in the handler of %s %r from %s", api.name, call, call.client_host)
            if api.key in DISCONNECT_ON_UNEXPECTED_ERROR:
                raise ConnectionAbortedError("failed unexpectedly, and its records may have been appended") from error
            unexpected = KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, _UNEXPECTED)
            return await self._error_response(call, route, request, unexpected)

    async def _error_response(self, call: Call, route: Route, request: Any, error: KafkaError) -> list[Part]:
        route.errors.add()
        try:
            if call.offload_encoding:
                parts = await self._offload.run(_error_parts, call, route, request, error)
            else:
                parts = _error_parts(call, route, request, error)
        except ConnectionAbortedError:
            raise
        except Exception as bug:
            logger.exception("unexpected error in the error response of %s %r", route.api.name, call)
            raise ConnectionAbortedError(f"no response can carry {error}") from bug
        if parts is None:
            raise ConnectionAbortedError(str(error))
        return parts


def _error_parts(call: Call, route: Route, request: Any, error: KafkaError) -> list[Part] | None:
    response = route.handler.error_response(request, call.version, error.code, error.why)
    return None if response is None else response_parts(call.correlation_id, route.api, call.version, response)


_UNEXPECTED = "unexpected error in the broker; its log has the details"


def _unsupported_version(route: Route) -> Message:
    """The response to a newer client: the supported range of ApiVersions itself, in the layout of version 0."""
    own = ApiVersion(api_key=route.api.key, min_version=route.min_version, max_version=route.max_version)
    return ApiVersionsResponse(error_code=ErrorCode.UNSUPPORTED_VERSION, api_keys=[own])
