"""Every API that `protocol/apis` declares as served has all that serving it takes, on every listener that it names."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from inspect import unwrap
from typing import Any, TypeVar, get_type_hints

import pytest

from strandline.controller.decisions import MAX_RECORDS_PER_DECISION
from strandline.handlers.context import Call
from strandline.handlers.request_limits import check_request_limit
from strandline.handlers.tables import ROWS, Row, broker_table, controller_table
from strandline.model.errors import ErrorCode, KafkaError
from strandline.protocol.apis import API, Api, ApiKey
from strandline.protocol.codec import encode_bytes
from strandline.protocol.errors import EncodeError
from strandline.protocol.messages.metadata import MetadataRequest, MetadataResponse
from strandline.protocol.messages.topics import CreatableTopic, CreateTopicsRequest, CreateTopicsResponse
from strandline.protocol.types import Message, Primitive, layout
from unit.handlers.metadata_broker import FakeCall, MetadataBroker, run

R = TypeVar("R", bound=Message)


def test_every_served_api_lacks_nothing() -> None:
    """The failure lists what is missing, API by API."""
    assert [f"{api.name}: {lack}" for api in API.values() if api.is_served for lack in lacks(api)] == []


def test_an_api_that_is_not_served_has_no_row() -> None:
    assert [row.api.name for row in ROWS.values() if not row.api.is_served] == []


def test_rows_are_in_the_order_of_their_keys() -> None:
    assert list(ROWS) == sorted(ROWS)


def lacks(api: Api) -> Iterator[str]:
    row = ROWS.get(api.key)
    if row is None:
        yield "a row in handlers/tables"
        return
    decided = row.decided_by is not None or row.quorum
    if not (api.broker or api.controller):
        yield "a listener in protocol/apis"
    if api.broker and row.broker is None and not (api.forwarded and decided):
        yield "a handler on broker listeners, or forwarding to a controller method"
    if api.controller and row.controller is None and not decided:
        yield "a handler on the controller listener, or a controller method"
    if (row.broker is not None and not api.broker) or ((row.controller is not None or decided) and not api.controller):
        yield "the listener in protocol/apis on which it is handled"
    if api.forwarded and decided and not limited(api):
        yield "a limit on how much one forwarded request may name"
    yield from wrong_types(row)
    yield from versions_without_error_response(row)


def limited(api: Api) -> bool:
    """A list of the request that is too long for one decision is rejected, whichever it is."""
    for field in layout(api.request):
        if field.is_list:
            element: Any = "" if isinstance(field.kind, Primitive) else field.kind()
            request: Any = api.request()
            setattr(request, field.name, [element] * (MAX_RECORDS_PER_DECISION + 1))
            try:
                check_request_limit(request)
            except KafkaError as error:
                assert error.code is ErrorCode.POLICY_VIOLATION
            else:
                return False
    return True


def wrong_types(row: Row) -> Iterator[str]:
    """mypy checks that the functions of a row fit together; this checks that they are for the API of the row."""
    for function in (row.broker, row.controller, row.decided_by):
        if function is not None:
            hints = get_type_hints(unwrap(function))
            if hints["request"] is not row.api.request:
                yield f"a request of type {row.api.request.__name__} in {function.__name__}"
            if hints["return"] not in (row.api.response, row.api.response | None):
                yield f"a response of type {row.api.response.__name__} in {function.__name__}"


def versions_without_error_response(row: Row) -> Iterator[str]:
    for version in range(row.api.min_version, row.api.max_version + 1):
        request: Any = row.api.request()
        if hasattr(request, "acks"):
            request.acks = -1
        response = row.error_response(request, version, ErrorCode.NOT_CONTROLLER, "a reason")
        try:
            assert response is not None
            encode_bytes(response, version)
        except EncodeError as error:
            yield f"an error response in version {version}: {error}"


def test_a_missing_row_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    api = API[19]
    monkeypatch.delitem(ROWS, api.key)
    assert list(lacks(api)) == ["a row in handlers/tables"]


class FakeController:
    """Records forwarded requests."""

    def __init__(self) -> None:
        self.forwarded: list[Message] = []

    async def forward(self, call: Call, request: Message, response: type[R], *, version: int | None = None) -> R:
        self.forwarded.append(request)
        return response()


def test_each_listener_serves_the_apis_that_protocol_apis_assigns_to_it() -> None:
    metadata = MetadataBroker()
    controller = metadata.controller()
    controller.methods = dict.fromkeys(ROWS, never_called)
    served = [api for api in API.values() if api.is_served]
    assert sorted(broker_table(metadata.broker)) == [api.key for api in served if api.broker]
    assert sorted(controller_table(controller)) == [api.key for api in served if api.controller]


async def never_called(request: Any, version: int) -> Message:
    raise AssertionError("not reached")


def test_a_request_waits_until_the_broker_is_unfenced() -> None:
    async def scenario() -> None:
        broker = MetadataBroker().broker
        table = broker_table(broker)
        call: Any = FakeCall(ApiKey.METADATA, 12)
        response = asyncio.ensure_future(table[ApiKey.METADATA].handle(call, MetadataRequest(topics=[])))
        await asyncio.sleep(1)
        assert not response.done()
        broker.serving.set()
        assert isinstance(await response, MetadataResponse)
        broker.stop_serving()
        with pytest.raises(ConnectionAbortedError):
            await table[ApiKey.METADATA].handle(call, MetadataRequest(topics=[]))

    run(scenario())


def test_a_request_that_the_controller_decides_is_forwarded_unless_it_names_too_much() -> None:
    async def scenario() -> None:
        broker = MetadataBroker().broker
        broker.controller = controller = FakeController()
        broker.serving.set()
        call: Any = FakeCall(ApiKey.CREATE_TOPICS, 7)
        handle = broker_table(broker)[ApiKey.CREATE_TOPICS].handle
        request = CreateTopicsRequest(topics=[CreatableTopic(name="t")])
        assert isinstance(await handle(call, request), CreateTopicsResponse)
        with pytest.raises(KafkaError):
            await handle(call, CreateTopicsRequest(topics=request.topics * (MAX_RECORDS_PER_DECISION + 1)))
        assert controller.forwarded == [request] and call.parked

    run(scenario())
