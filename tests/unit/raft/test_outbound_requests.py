"""How a request to another node ends, and what that is evidence of."""

from __future__ import annotations

import asyncio

import pytest

from strandline.model.errors import ErrorCode, KafkaError
from strandline.model.ids import Endpoint
from strandline.protocol.messages.quorum import VoteRequest, VoteResponse
from strandline.protocol.types import Message
from strandline.raft.machine.effects import Send
from strandline.raft.shell.outbound_requests import MAX_REPORTED, OutboundRequests
from strandline.runtime.tasks import TaskGroup
from unit.server.memory_server import run

THERE = Endpoint("there", 9093)


class FakePeers:
    def __init__(self, outcome: Message | Exception, *, refuses: bool = False) -> None:
        self._outcome = outcome
        self._refuses = refuses
        self.probes = 0

    async def call(self, endpoint: Endpoint, request: Message, *, timeout_ms: int) -> Message:
        await asyncio.sleep(0)
        if isinstance(self._outcome, Exception):
            raise self._outcome
        return self._outcome

    async def refuses_connections(self, endpoint: Endpoint) -> bool:
        self.probes += 1
        return self._refuses


def completed(peer: FakePeers, times: int = 1) -> list[tuple[Send, Message | None, bool]]:
    outcomes: list[tuple[Send, Message | None, bool]] = []

    async def scenario() -> None:
        outbound = OutboundRequests(
            peer, 2000, lambda send, response, refused: outcomes.append((send, response, refused))
        )
        async with TaskGroup() as tasks:
            for _ in range(times):
                outbound.start(Send(2, THERE, VoteRequest()), tasks)
            await outbound.wait()

    run(scenario())
    return outcomes


def test_a_response_is_passed_on_with_its_request() -> None:
    ((send, response, refused),) = completed(FakePeers(VoteResponse(error_code=7)))
    assert (send.to, response, refused) == (2, VoteResponse(error_code=7), False)


@pytest.mark.parametrize("refuses", [True, False])
@pytest.mark.parametrize(
    "failure", [ConnectionRefusedError("no"), KafkaError(ErrorCode.NETWORK_EXCEPTION, "the connection was lost")]
)
def test_a_lost_connection_is_followed_by_a_probe(failure: Exception, refuses: bool) -> None:
    peer = FakePeers(failure, refuses=refuses)
    ((_, response, refused),) = completed(peer)
    assert (response, refused, peer.probes) == (None, refuses, 1)


@pytest.mark.parametrize("failure", [TimeoutError(), KafkaError(ErrorCode.REQUEST_TIMED_OUT, "no answer")])
def test_a_timeout_is_followed_by_no_probe(failure: Exception) -> None:
    peer = FakePeers(failure, refuses=True)
    ((_, response, refused),) = completed(peer)
    assert (response, refused, peer.probes) == (None, False, 0)


def test_an_unsupported_version_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    peer = FakePeers(KafkaError(ErrorCode.UNSUPPORTED_VERSION, "it speaks Vote 7 to 9"))
    outcomes = completed(peer, times=3)
    assert [response for _, response, _ in outcomes] == [VoteResponse(error_code=ErrorCode.UNSUPPORTED_VERSION)] * 3
    assert caplog.text.count("cannot communicate with there:9093: it speaks Vote 7 to 9") == 1


def test_the_number_of_remembered_log_reasons_is_limited(caplog: pytest.LogCaptureFixture) -> None:
    peer = FakePeers(KafkaError(ErrorCode.UNSUPPORTED_VERSION, "it speaks Vote 7 to 9"))

    async def scenario() -> None:
        outbound = OutboundRequests(peer, 2000, lambda send, response, refused: None)

        async def ask(port: int) -> None:
            async with TaskGroup() as tasks:
                outbound.start(Send(2, Endpoint("there", port), VoteRequest()), tasks)
                await outbound.wait()

        for port in (*range(MAX_REPORTED + 1), MAX_REPORTED, 1, 0):
            await ask(port)

    run(scenario())
    logged = [record.getMessage().split(": ")[0].rpartition(":")[2] for record in caplog.records]
    assert logged == [str(port) for port in (*range(MAX_REPORTED + 1), 0)], "the first was dropped for the last"
