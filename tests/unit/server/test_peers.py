"""Calls between nodes on a simulated network: lanes, shared and lost connections, versions and probes."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from strandline.client.errors import BrokerUnreachable, ConnectionLost, RequestTimedOut, UnsupportedVersion
from strandline.model.errors import ErrorCode
from strandline.model.ids import Endpoint
from strandline.protocol.apis import API, ApiKey
from strandline.protocol.messages.api_versions import ApiVersion, ApiVersionsRequest, ApiVersionsResponse
from strandline.protocol.messages.brokers import BrokerHeartbeatRequest, BrokerHeartbeatResponse
from strandline.protocol.messages.fetch import FetchRequest, FetchResponse
from strandline.protocol.messages.quorum import (
    VoteRequest,
    VoteRequestPartitionData,
    VoteRequestTopicData,
    VoteResponse,
)
from strandline.runtime.metrics import Metrics
from strandline.runtime.network import SystemNetwork
from strandline.runtime.world import World
from strandline.server.dispatch import Handler
from strandline.server.peers import PeerConnections
from strandline.server.requests import Call
from strandline.server.server import Server
from strandline.server.settings import ListenerSpec, ServerSettings
from strandline.simulation.world import Machine, Simulation

PEER = Endpoint("peer", 9093)


class FakePeer:
    """The other node: parks every Fetch until its event is set, and responds to other requests at once."""

    def __init__(self, vote_versions: tuple[int, int] = (0, 2)) -> None:
        self.fetches: list[asyncio.Event] = []
        self.client_ids: list[str | None] = []
        self.connections: list[object] = []
        self.votes: list[VoteRequest] = []
        self._vote_versions = vote_versions

    async def run(self, world: World) -> None:
        server = Server([ListenerSpec("CONTROLLER", "", 9093)], world, ServerSettings(), Metrics())
        handles = {
            ApiKey.API_VERSIONS: self._versions,
            ApiKey.FETCH: self._fetch,
            ApiKey.VOTE: self._vote,
            ApiKey.BROKER_HEARTBEAT: self._heartbeat,
        }
        table = {int(key): Handler(API[key], handle, _no_error) for key, handle in handles.items()}
        await server.start({"CONTROLLER": table})
        await asyncio.Event().wait()

    async def _versions(self, call: Call, request: ApiVersionsRequest) -> ApiVersionsResponse:
        served = [ApiKey.API_VERSIONS, ApiKey.FETCH, ApiKey.BROKER_HEARTBEAT]
        ranges = [ApiVersion(key, API[key].request.versions[0], API[key].request.versions[1]) for key in served]
        return ApiVersionsResponse(api_keys=[*ranges, ApiVersion(ApiKey.VOTE, *self._vote_versions)])

    async def _fetch(self, call: Call, request: FetchRequest) -> FetchResponse:
        fetch_parked = asyncio.Event()
        self.fetches.append(fetch_parked)
        await fetch_parked.wait()
        return FetchResponse(session_id=request.max_bytes)

    async def _vote(self, call: Call, request: VoteRequest) -> VoteResponse:
        self.client_ids.append(call.client_id)
        self.votes.append(request)
        return VoteResponse(error_code=request.voter_id)

    async def _heartbeat(self, call: Call, request: BrokerHeartbeatRequest) -> BrokerHeartbeatResponse:
        return BrokerHeartbeatResponse(error_code=request.broker_id)


def _no_error(request: Any, version: int, code: ErrorCode, why: str) -> None:
    raise AssertionError(f"{request!r} failed: {why}")


def vote(number: int, *, pre_vote: bool = False) -> VoteRequest:
    partition = VoteRequestPartitionData(replica_epoch=1, pre_vote=pre_vote)
    return VoteRequest(voter_id=number, topics=[VoteRequestTopicData(partitions=[partition])])


def run_scenario(exchange: Callable[[PeerConnections, Simulation, Machine], Awaitable[None]], peer: FakePeer) -> None:
    with Simulation(seed=1) as simulation:
        there = simulation.machine("peer")
        here = simulation.machine("here")
        there.boot(peer.run)

        async def program(world: World) -> None:
            peers = PeerConnections(world.network, "raft-client-1")
            try:
                await exchange(peers, simulation, there)
            finally:
                peers.close()

        async def scenario() -> None:
            await here.boot(program)

        simulation.run(scenario(), max_virtual_s=600)


def connections(simulation: Simulation) -> int:
    return sum("connected here" in line for line in simulation.trace.lines)


async def fetch_parked(peer: FakePeer) -> None:
    while not peer.fetches:
        await asyncio.sleep(0.001)


def test_votes_and_heartbeats_do_not_wait_behind_a_parked_fetch() -> None:
    peer = FakePeer()

    async def exchange(peers: PeerConnections, simulation: Simulation, there: Machine) -> None:
        fetch = asyncio.create_task(peers.call(PEER, FetchRequest(max_bytes=77), timeout_ms=2000))
        await fetch_parked(peer)
        assert await peers.call(PEER, vote(4), timeout_ms=2000) == VoteResponse(error_code=4)
        beat = await peers.call(PEER, BrokerHeartbeatRequest(broker_id=5), timeout_ms=2000)
        assert beat == BrokerHeartbeatResponse(error_code=5)
        assert not fetch.done()
        peer.fetches[0].set()
        assert await fetch == FetchResponse(session_id=77)
        assert peer.client_ids == ["raft-client-1"]

    run_scenario(exchange, peer)


def test_concurrent_calls_share_one_connection_and_each_gets_its_response() -> None:
    async def exchange(peers: PeerConnections, simulation: Simulation, there: Machine) -> None:
        calls = [peers.call(PEER, vote(number), timeout_ms=2000) for number in range(1, 30)]
        responses = await asyncio.gather(*calls)
        assert responses == [VoteResponse(error_code=number) for number in range(1, 30)]
        assert connections(simulation) == 1

    run_scenario(exchange, FakePeer())


def test_a_lost_connection_fails_its_calls_and_the_next_call_reconnects() -> None:
    peer = FakePeer()

    async def exchange(peers: PeerConnections, simulation: Simulation, there: Machine) -> None:
        fetch = asyncio.create_task(peers.call(PEER, FetchRequest(), timeout_ms=2000))
        await fetch_parked(peer)
        there.kill()
        with pytest.raises(ConnectionLost):
            await fetch
        with pytest.raises(BrokerUnreachable):
            await peers.call(PEER, vote(1), timeout_ms=2000)
        there.boot(FakePeer().run)
        assert await peers.call(PEER, vote(2), timeout_ms=2000) == VoteResponse(error_code=2)

    run_scenario(exchange, peer)


def test_disconnecting_fails_calls_in_flight_and_the_next_call_reconnects() -> None:
    peer = FakePeer()

    async def exchange(peers: PeerConnections, simulation: Simulation, there: Machine) -> None:
        fetch = asyncio.create_task(peers.call(PEER, FetchRequest(), timeout_ms=30_000))
        await fetch_parked(peer)
        peers.disconnect(Endpoint("elsewhere", 1))
        await asyncio.sleep(0.1)
        assert not fetch.done()
        peers.disconnect(PEER)
        with pytest.raises(ConnectionLost):
            await fetch
        assert await peers.call(PEER, vote(2), timeout_ms=2000) == VoteResponse(error_code=2)

    run_scenario(exchange, peer)


def test_only_a_machine_whose_process_was_killed_refuses_connections() -> None:
    async def exchange(peers: PeerConnections, simulation: Simulation, there: Machine) -> None:
        assert not await peers.refuses_connections(PEER)
        simulation.fabric.partition(("here",), ("peer",))
        assert not await peers.refuses_connections(PEER)
        simulation.fabric.heal()
        there.kill()
        assert await peers.refuses_connections(PEER)
        there.boot(FakePeer().run)
        there.lose_power()
        assert not await peers.refuses_connections(PEER)

    run_scenario(exchange, FakePeer())


def test_a_late_response_closes_the_connection_and_the_lane_reconnects() -> None:
    peer = FakePeer()

    async def exchange(peers: PeerConnections, simulation: Simulation, there: Machine) -> None:
        loop = asyncio.get_running_loop()
        started = loop.time()
        with pytest.raises(RequestTimedOut, match="Fetch"):
            await peers.call(PEER, FetchRequest(), timeout_ms=300)
        assert loop.time() - started == pytest.approx(0.3, abs=0.01)
        fetch = asyncio.create_task(peers.call(PEER, FetchRequest(max_bytes=3), timeout_ms=2000))
        while len(peer.fetches) < 2:
            await asyncio.sleep(0.001)
        peer.fetches[1].set()
        assert await fetch == FetchResponse(session_id=3)

    run_scenario(exchange, peer)


def test_connecting_counts_against_the_timeout_of_each_call_that_waits_for_it() -> None:
    async def exchange(peers: PeerConnections, simulation: Simulation, there: Machine) -> None:
        simulation.fabric.partition(("here",), ("peer",))
        loop = asyncio.get_running_loop()
        started = loop.time()
        longer = asyncio.create_task(peers.call(PEER, vote(1), timeout_ms=5000))
        with pytest.raises(RequestTimedOut, match="within 400 ms"):
            await peers.call(PEER, vote(2), timeout_ms=400)
        assert loop.time() - started == pytest.approx(0.4, abs=0.01)
        simulation.fabric.heal()
        assert await longer == VoteResponse(error_code=1)

    run_scenario(exchange, FakePeer())


def test_a_request_that_the_version_of_an_older_node_cannot_express_is_not_sent() -> None:
    peer = FakePeer(vote_versions=(0, 1))

    async def exchange(peers: PeerConnections, simulation: Simulation, there: Machine) -> None:
        assert await peers.call(PEER, vote(1), timeout_ms=2000) == VoteResponse(error_code=1)
        with pytest.raises(UnsupportedVersion, match=r"peer:9093 is too old for this node: Vote cannot be encoded"):
            await peers.call(PEER, vote(2, pre_vote=True), timeout_ms=2000)
        assert [request.voter_id for request in peer.votes] == [1]

    run_scenario(exchange, peer)


def test_without_a_common_version_the_error_names_the_node_and_both_ranges() -> None:
    async def exchange(peers: PeerConnections, simulation: Simulation, there: Machine) -> None:
        with pytest.raises(UnsupportedVersion, match=r"peer:9093 .* supports Vote 7 to 9, this client 0 to 2"):
            await peers.call(PEER, vote(1), timeout_ms=2000)

    run_scenario(exchange, FakePeer(vote_versions=(7, 9)))


class FailingNetwork:
    """A network on which every connection attempt fails with the same error."""

    def __init__(self, error: OSError) -> None:
        self._error = error

    async def connect(self, host: str, port: int, factory: Any) -> asyncio.Transport:
        raise self._error

    async def listen(self, host: str, port: int, factory: Any, backlog: int = 50) -> Any:
        raise NotImplementedError


@pytest.mark.parametrize(
    ("error", "refused"),
    [
        (ConnectionRefusedError(errno.ECONNREFUSED, "no"), True),
        (OSError(f"Multiple exceptions: [Errno {errno.ECONNREFUSED}] a, [Errno {errno.ECONNREFUSED}] b"), True),
        (OSError(f"Multiple exceptions: [Errno {errno.ECONNREFUSED}] a, [Errno {errno.EHOSTUNREACH}] b"), False),
        (OSError(errno.EHOSTUNREACH, "no route"), False),
        (TimeoutError(errno.ETIMEDOUT, "timed out"), False),
    ],
)
def test_all_addresses_of_a_name_must_refuse(error: OSError, refused: bool) -> None:
    assert asyncio.run(PeerConnections(FailingNetwork(error), "raft-client-1").refuses_connections(PEER)) is refused


@pytest.mark.parametrize("endpoint", [Endpoint("127.0.0.1", 70_000), Endpoint("a..b", 9093), Endpoint("a\0b", 9093)])
def test_an_invalid_address_is_unreachable(endpoint: Endpoint) -> None:
    async def scenario() -> None:
        peers = PeerConnections(SystemNetwork(), "raft-client-1")
        with pytest.raises(BrokerUnreachable):
            await peers.call(endpoint, vote(1), timeout_ms=500)
        assert not await peers.refuses_connections(endpoint)

    asyncio.run(scenario())
