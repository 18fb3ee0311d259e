"""Envelope (58): a client's request that a broker sends on to the active controller, with the client's name on it.

The inner request is served by the table of the listener it came in by, as if the client had asked here. Its answer,
errors included, travels back inside; only NOT_CONTROLLER is told on the outside, so that the broker looks for the
active controller instead of passing the answer on.

`wrap` and `unwrap` are the broker's side of it.
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
    """A call as its client made it, at another node."""

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

    def on_connection_lost(self, purpose: str, tell: Callable[[], None]) -> None:
        self.outer.on_connection_lost(purpose, tell)


async def handle_envelope(controller: ControllerContext, call: Call, request: EnvelopeRequest) -> EnvelopeResponse:
    import ipaddress  # slow to load, and a node that starts has no envelopes to open

    try:
        header, position = decode_header(request.request_data)
        principal = _principal(request.request_principal)
        client_host = str(ipaddress.ip_address(request.client_host_address))
    except (MalformedMessage, ValueError) as error:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"the envelope cannot be opened: {error}") from error
    api = API.get(header.api_key)
    served = None if api is None else controller.table.get(api.key)
    if api is None or served is None or not api.forwarded:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"api key {header.api_key} is not for envelopes")
    if not api.min_version <= header.api_version <= api.max_version:
        raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, f"{api.name} has no version {header.api_version} here")
    inner = ForwardedCall(call, api.key, header.api_version, header.client_id, principal, client_host)
    try:
        asked, _ = decode(api.request, header.api_version, request.request_data, position)
    except MalformedMessage as error:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"the {api.name} inside cannot be read: {error}") from error
    try:
        answer = await served.handle(inner, asked)
    except KafkaError as error:
        if error.code is ErrorCode.NOT_CONTROLLER:
            raise
        answer = served.error_response(asked, header.api_version, error.code, error.why)
    assert answer is not None, "every forwarded request has an answer"
    parts = response_parts(header.correlation_id, api, header.api_version, answer)
    return EnvelopeResponse(response_data=_joined(parts)[_SIZE_BYTES:])


def wrap(call: Call, api: Api, version: int, request: Message) -> EnvelopeRequest:
    """What a broker sends for its client; the correlation id inside is ours alone, so any will do."""
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
    """The answer inside; raises KafkaError when the envelope itself was refused."""
    code = code_of(response.error_code)
    if code is not ErrorCode.NONE or response.response_data is None:
        raise KafkaError(code, f"the controller did not take the forwarded {api.name}")
    _, position = decode_response_header(response.response_data, api, version)
    answer: Message = decode(api.response, version, response.response_data, position)[0]
    return answer


def _principal(data: bytes | None) -> str:
    if data is None or len(data) < _VERSION.size:
        raise MalformedMessage("there is no principal")
    version = _VERSION.unpack_from(data)[0]
    low, high = DefaultPrincipalData.versions
    if not low <= version <= high:
        raise MalformedMessage(f"the principal has version {version}")
    principal, _ = decode(DefaultPrincipalData, version, data, _VERSION.size)
    return f"{principal.type}:{principal.name}"


def _address(host: str) -> bytes:
    """As bytes; clients in a simulation have names only."""
    import ipaddress

    try:
        return ipaddress.ip_address(host.partition("%")[0]).packed
    except ValueError:
        return ipaddress.IPv4Address(0).packed


def _joined(parts: list[Part]) -> bytes:
    return b"".join(part.read() if isinstance(part, FileSlice) else part for part in parts)
