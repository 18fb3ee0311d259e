"""Envelope (58): a client's request that a broker forwards to the active controller, with the client's principal
(KIP-590).

The request inside is served from the table of the controller listener, as if the client had sent it there. Its
response, errors included, is returned inside; only NOT_CONTROLLER is the error of the envelope itself, so that the
broker looks for the active controller instead of returning the response to its client.

`wrap` and `unwrap` are used by the broker (`node/controller_channel`).
"""

from __future__ import annotations

import struct
from collections.abc import Callable

import msgspec

from strandline.handlers.context import Call, ControllerContext
from strandline.model.errors import ErrorCode, KafkaError, code_of
from strandline.protocol.apis import API, Api
from strandline.protocol.codec import MalformedMessage, decode, encode_bytes
from strandline.protocol.framing import decode_header, decode_response_header, request_parts, response_parts
from strandline.protocol.messages.brokers import EnvelopeRequest, EnvelopeResponse
from strandline.protocol.messages.principal import DefaultPrincipalData
from strandline.protocol.types import Message
from strandline.runtime.file_slice import FileSlice, Part

_VERSION = struct.Struct(">h")
_SIZE_BYTES = 4


class ForwardedCall(msgspec.Struct):
    """The call of a client of another node."""

    outer: Call
    api_key: int
    version: int
    client_id: str
    principal: str
    client_host: str
    offload_encoding: bool = False

    @property
    def listener(self) -> str:
        return self.outer.listener

    def park(self) -> None:
        self.outer.park()

    def on_connection_lost(self, purpose: str, callback: Callable[[], None]) -> None:
        self.outer.on_connection_lost(purpose, callback)


async def handle_envelope(controller: ControllerContext, call: Call, request: EnvelopeRequest) -> EnvelopeResponse:
    import ipaddress  # slow to import, and not needed while a node starts

    try:
        header, position = decode_header(request.request_data)
        principal = _principal(request.request_principal)
        client_host = str(ipaddress.ip_address(request.client_host_address))
    except (MalformedMessage, ValueError) as error:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"malformed envelope: {error}") from error
    api = API.get(header.api_key)
    served = None if api is None else controller.table.get(api.key)
    if api is None or served is None or not api.forwarded:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"api key {header.api_key} is not forwarded in envelopes")
    if not api.min_version <= header.api_version <= api.max_version:
        raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, f"{api.name} version {header.api_version} is not supported")
    inner = ForwardedCall(call, api.key, header.api_version, header.client_id, principal, client_host)
    try:
        inner_request, _ = decode(api.request, header.api_version, request.request_data, position)
    except MalformedMessage as error:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"malformed {api.name} in the envelope: {error}") from error
    try:
        response = await served.handle(inner, inner_request)
    except KafkaError as error:
        if error.code is ErrorCode.NOT_CONTROLLER:
            raise
        response = served.error_response(inner_request, header.api_version, error.code, error.why)
    assert response is not None, "every forwarded request has a response"
    parts = response_parts(header.correlation_id, api, header.api_version, response)
    return EnvelopeResponse(response_data=_joined(parts)[_SIZE_BYTES:])


def wrap(call: Call, api: Api, version: int, request: Message) -> EnvelopeRequest:
    """Wraps a client's request for the active controller. The correlation id inside is not used."""
    parts = request_parts(api, version, 0, call.client_id, request)
    kind, _, name = call.principal.partition(":")
    newest = DefaultPrincipalData.versions[1]
    principal = _VERSION.pack(newest) + encode_bytes(DefaultPrincipalData(type=kind, name=name), newest)
    return EnvelopeRequest(
        request_data=_joined(parts)[_SIZE_BYTES:],
        request_principal=principal,
        client_host_address=_address(call.client_host),
    )


def unwrap(api: Api, version: int, response: EnvelopeResponse) -> Message:
    """The response inside; raises KafkaError when the envelope itself was rejected."""
    code = code_of(response.error_code)
    if code is not ErrorCode.NONE or response.response_data is None:
        raise KafkaError(code, f"the controller rejected the forwarded {api.name}")
    _, position = decode_response_header(response.response_data, api, version)
    inner: Message = decode(api.response, version, response.response_data, position)[0]
    return inner


def _principal(data: bytes | None) -> str:
    if data is None or len(data) < _VERSION.size:
        raise MalformedMessage("the principal is missing")
    version = _VERSION.unpack_from(data)[0]
    low, high = DefaultPrincipalData.versions
    if not low <= version <= high:
        raise MalformedMessage(f"unsupported version {version} of the principal")
    principal, _ = decode(DefaultPrincipalData, version, data, _VERSION.size)
    return f"{principal.type}:{principal.name}"


def _address(host: str) -> bytes:
    """0.0.0.0 for clients in a simulation, which have names only."""
    import ipaddress

    try:
        return ipaddress.ip_address(host.partition("%")[0]).packed
    except ValueError:
        return ipaddress.IPv4Address(0).packed


def _joined(parts: list[Part]) -> bytes:
    return b"".join(part.read() if isinstance(part, FileSlice) else part for part in parts)
