"""Calls between nodes: lanes, shared and lost connections, versions, and who is refused. On a simulated network."""

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

FRIEND = Endpoint("friend", 9093)


class Friend:
    """The other node: parks every Fetch until told, answers the rest at once, and remembers who asked."""

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
        parked = asyncio.Event()
        self.fetches.append(parked)
        await parked.wait()
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


def play(scene: Callable[[PeerConnections, Simulation, Machine], Awaitable[None]], friend: Friend) -> None:
    with Simulation(seed=1) as simulation:
        there = simulation.machine("friend")
        here = simulation.machine("here")
        there.boot(friend.run)

        async def program(world: World) -> None:
            peers = PeerConnections(world.network, "raft-client-1")
            try:
                await scene(peers, simulation, there)
            finally:
                peers.close()

        async def scenario() -> None:
            await here.boot(program)

        simulation.run(scenario(), max_virtual_s=600)


def connections(simulation: Simulation) -> int:
    return sum("connected here" in line for line in simulation.trace.lines)


async def parked(friend: Friend) -> None:
    while not friend.fetches:
        await asyncio.sleep(0.001)


def test_a_vote_passes_a_parked_fetch_and_a_heartbeat_passes_both() -> None:
    friend = Friend()

    async def scene(peers: PeerConnections, simulation: Simulation, there: Machine) -> None:
        fetch = asyncio.create_task(peers.call(FRIEND, FetchRequest(max_bytes=77), timeout_ms=2000))
        await parked(friend)
        assert await peers.call(FRIEND, vote(4), timeout_ms=2000) == VoteResponse(error_code=4)
        beat = await peers.call(FRIEND, BrokerHeartbeatRequest(broker_id=5), timeout_ms=2000)
        assert beat == BrokerHeartbeatResponse(error_code=5)
        assert not fetch.done()
        friend.fetches[0].set()
        assert await fetch == FetchResponse(session_id=77)
        assert friend.client_ids == ["raft-client-1"]

    play(scene, friend)


def test_calls_at_once_share_one_connection_and_each_gets_its_own_answer() -> None:
    async def scene(peers: PeerConnections, simulation: Simulation, there: Machine) -> None:
        calls = [peers.call(FRIEND, vote(number), timeout_ms=2000) for number in range(1, 30)]
        answers = await asyncio.gather(*calls)
        assert answers == [VoteResponse(error_code=number) for number in range(1, 30)]
        assert connections(simulation) == 1

    play(scene, Friend())


def test_a_lost_connection_fails_its_calls_and_the_next_call_dials_again() -> None:
    friend = Friend()

    async def scene(peers: PeerConnections, simulation: Simulation, there: Machine) -> None:
        fetch = asyncio.create_task(peers.call(FRIEND, FetchRequest(), timeout_ms=2000))
        await parked(friend)
        there.kill()
        with pytest.raises(ConnectionLost):
            await fetch
        with pytest.raises(BrokerUnreachable):
            await peers.call(FRIEND, vote(1), timeout_ms=2000)
        there.boot(Friend().run)
        assert await peers.call(FRIEND, vote(2), timeout_ms=2000) == VoteResponse(error_code=2)

    play(scene, friend)


def test_hanging_up_ends_what_is_under_way_and_the_next_call_dials_anew() -> None:
    friend = Friend()

    async def scene(peers: PeerConnections, simulation: Simulation, there: Machine) -> None:
        fetch = asyncio.create_task(peers.call(FRIEND, FetchRequest(), timeout_ms=30_000))
        await parked(friend)
        peers.disconnect(Endpoint("elsewhere", 1))
        await asyncio.sleep(0.1)
        assert not fetch.done()
        peers.disconnect(FRIEND)
        with pytest.raises(ConnectionLost):
            await fetch
        assert await peers.call(FRIEND, vote(2), timeout_ms=2000) == VoteResponse(error_code=2)

    play(scene, friend)


def test_a_killed_process_refuses_while_silence_and_a_living_one_do_not() -> None:
    async def scene(peers: PeerConnections, simulation: Simulation, there: Machine) -> None:
        assert not await peers.refuses_connections(FRIEND)
        simulation.fabric.partition(("here",), ("friend",))
        assert not await peers.refuses_connections(FRIEND)
        simulation.fabric.heal()
        there.kill()
        assert await peers.refuses_connections(FRIEND)
        there.boot(Friend().run)
        there.lose_power()
        assert not await peers.refuses_connections(FRIEND)

    play(scene, Friend())


def test_an_answer_that_does_not_come_ends_the_connection_and_not_the_lane() -> None:
    friend = Friend()

    async def scene(peers: PeerConnections, simulation: Simulation, there: Machine) -> None:
        loop = asyncio.get_running_loop()
        began = loop.time()
        with pytest.raises(RequestTimedOut, match="Fetch"):
            await peers.call(FRIEND, FetchRequest(), timeout_ms=300)
        assert loop.time() - began == pytest.approx(0.3, abs=0.01)
        fetch = asyncio.create_task(peers.call(FRIEND, FetchRequest(max_bytes=3), timeout_ms=2000))
        while len(friend.fetches) < 2:
            await asyncio.sleep(0.001)
        friend.fetches[1].set()
        assert await fetch == FetchResponse(session_id=3)

    play(scene, friend)


def test_the_time_to_dial_counts_and_those_who_wait_for_the_dial_keep_their_own_time() -> None:
    async def scene(peers: PeerConnections, simulation: Simulation, there: Machine) -> None:
        simulation.fabric.partition(("here",), ("friend",))
        loop = asyncio.get_running_loop()
        began = loop.time()
        patient = asyncio.create_task(peers.call(FRIEND, vote(1), timeout_ms=5000))
        with pytest.raises(RequestTimedOut, match="within 400 ms"):
            await peers.call(FRIEND, vote(2), timeout_ms=400)
        assert loop.time() - began == pytest.approx(0.4, abs=0.01)
        simulation.fabric.heal()
        assert await patient == VoteResponse(error_code=1)

    play(scene, Friend())


def test_an_older_node_is_spoken_to_in_its_version_as_far_as_that_can_say_it() -> None:
    friend = Friend(vote_versions=(0, 1))

    async def scene(peers: PeerConnections, simulation: Simulation, there: Machine) -> None:
        assert await peers.call(FRIEND, vote(1), timeout_ms=2000) == VoteResponse(error_code=1)
        with pytest.raises(UnsupportedVersion, match=r"friend:9093 is too old for this node: Vote cannot be said"):
            await peers.call(FRIEND, vote(2, pre_vote=True), timeout_ms=2000)
        assert [request.voter_id for request in friend.votes] == [1]

    play(scene, friend)


def test_a_node_without_a_common_version_is_named_with_what_it_speaks() -> None:
    async def scene(peers: PeerConnections, simulation: Simulation, there: Machine) -> None:
        with pytest.raises(UnsupportedVersion, match=r"friend:9093 .* speaks Vote 7 to 9, we 0 to 2"):
            await peers.call(FRIEND, vote(1), timeout_ms=2000)

    play(scene, Friend(vote_versions=(7, 9)))


class Deaf:
    """A network on which every dial fails in one way."""

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
        (TimeoutError(errno.ETIMEDOUT, "no answer"), False),
    ],
)
def test_of_a_name_with_several_addresses_all_must_refuse(error: OSError, refused: bool) -> None:
    assert asyncio.run(PeerConnections(Deaf(error), "raft-client-1").refuses_connections(FRIEND)) is refused


@pytest.mark.parametrize("endpoint", [Endpoint("127.0.0.1", 70_000), Endpoint("a..b", 9093), Endpoint("a\0b", 9093)])
def test_what_is_no_address_is_out_of_reach_and_nothing_worse(endpoint: Endpoint) -> None:
    async def scenario() -> None:
        peers = PeerConnections(SystemNetwork(), "raft-client-1")
        with pytest.raises(BrokerUnreachable):
            await peers.call(endpoint, vote(1), timeout_ms=500)
        assert not await peers.refuses_connections(endpoint)

    asyncio.run(scenario())
