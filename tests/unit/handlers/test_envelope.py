"""Envelopes: a broker forwards a client's request to the controller and gets the response back."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

from strandline.handlers.context import BoundApi, Call
from strandline.handlers.envelope import handle_envelope, unwrap, wrap
from strandline.handlers.tables import ROWS
from strandline.model.errors import ErrorCode, KafkaError
from strandline.protocol.apis import API, ApiKey
from strandline.protocol.messages.brokers import EnvelopeRequest, EnvelopeResponse
from strandline.protocol.messages.topics import (
    CreatableTopic,
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from unit.handlers.metadata_broker import MetadataBroker


@dataclass
class ClientCall:
    api_key: int = ApiKey.CREATE_TOPICS
    version: int = 5
    client_id: str = "shop"
    principal: str = "User:ada"
    listener: str = "PLAINTEXT"
    client_host: str = "10.1.2.3"
    offload_encoding: bool = False

    def park(self) -> None: ...
    def on_connection_lost(self, purpose: str, notify: Callable[[], None]) -> None: ...


CREATE = API[ApiKey.CREATE_TOPICS]
REQUEST = CreateTopicsRequest(topics=[CreatableTopic(name="orders", num_partitions=3, replication_factor=1)])


def _serve(handle: Any, envelope: EnvelopeRequest) -> EnvelopeResponse:
    outer = ClientCall(api_key=ApiKey.ENVELOPE, principal="User:broker", listener="CONTROLLER")
    controller: Any = MetadataBroker().controller()
    controller.table[ApiKey.CREATE_TOPICS] = BoundApi(handle, ROWS[ApiKey.CREATE_TOPICS].error_response)
    return asyncio.run(handle_envelope(controller, outer, envelope))


def test_the_controller_receives_the_request_with_its_client_and_principal() -> None:
    seen: list[tuple[Call, CreateTopicsRequest]] = []

    async def handle(call: Call, request: CreateTopicsRequest) -> CreateTopicsResponse:
        seen.append((call, request))
        return CreateTopicsResponse(topics=[CreatableTopicResult(name="orders", num_partitions=3)])

    client = ClientCall()
    response = unwrap(CREATE, 5, _serve(handle, wrap(client, CREATE, 5, REQUEST)))
    call, request = seen[0]
    assert (call.principal, call.client_id, call.client_host, call.version) == ("User:ada", "shop", "10.1.2.3", 5)
    assert call.listener == "CONTROLLER"
    assert request.topics[0].name == "orders"
    assert isinstance(response, CreateTopicsResponse)
    assert response.topics[0].num_partitions == 3


def test_an_error_is_returned_inside_as_the_error_response_of_the_api() -> None:
    async def handle(call: Call, request: CreateTopicsRequest) -> CreateTopicsResponse:
        raise KafkaError(ErrorCode.POLICY_VIOLATION, "too many")

    client = ClientCall()
    envelope = _serve(handle, wrap(client, CREATE, 5, REQUEST))
    assert envelope.error_code == 0
    response = unwrap(CREATE, 5, envelope)
    assert isinstance(response, CreateTopicsResponse)
    assert [(topic.name, topic.error_code) for topic in response.topics] == [("orders", ErrorCode.POLICY_VIOLATION)]


def test_not_controller_is_the_error_of_the_envelope_itself() -> None:
    async def handle(call: Call, request: CreateTopicsRequest) -> CreateTopicsResponse:
        raise KafkaError(ErrorCode.NOT_CONTROLLER, "another node is active")

    with pytest.raises(KafkaError) as rejected:
        _serve(handle, wrap(ClientCall(), CREATE, 5, REQUEST))
    assert rejected.value.code is ErrorCode.NOT_CONTROLLER
    with pytest.raises(KafkaError) as unwrapped:
        unwrap(CREATE, 5, EnvelopeResponse(error_code=ErrorCode.NOT_CONTROLLER))
    assert unwrapped.value.code is ErrorCode.NOT_CONTROLLER


@pytest.mark.parametrize(
    "envelope",
    [
        EnvelopeRequest(),
        EnvelopeRequest(request_data=b"\x00\x13\x00\x05", request_principal=b"", client_host_address=b"\x7f\0\0\1"),
        EnvelopeRequest(
            request_data=wrap(ClientCall(), CREATE, 5, REQUEST).request_data,
            request_principal=b"\x00\x07rest",
            client_host_address=b"\x7f\0\0\1",
        ),
        EnvelopeRequest(
            request_data=wrap(ClientCall(), CREATE, 5, REQUEST).request_data[:-9],
            request_principal=wrap(ClientCall(), CREATE, 5, REQUEST).request_principal,
            client_host_address=b"\x7f\0\0\1",
        ),
    ],
    ids=["empty", "truncated header", "newer principal", "truncated body"],
)
def test_a_malformed_envelope_is_rejected(envelope: EnvelopeRequest) -> None:
    async def handle(call: Call, request: CreateTopicsRequest) -> CreateTopicsResponse:
        raise AssertionError("not reached")

    with pytest.raises(KafkaError) as rejected:
        _serve(handle, envelope)
    assert rejected.value.code is ErrorCode.INVALID_REQUEST
