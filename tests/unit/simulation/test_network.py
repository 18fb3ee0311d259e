"""The simulated network: order and back-pressure when all is well, and how it looks when it is not."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Iterator
from typing import Any

import pytest

from strandline.runtime.world import World
from strandline.simulation.network import Weather
from strandline.simulation.transport import SimTransport
from strandline.simulation.world import Machine, Simulation


@pytest.fixture
def simulation() -> Iterator[Simulation]:
    with Simulation(seed=1) as simulation:
        yield simulation


class Ear(asyncio.Protocol):
    """Hears, and remembers what it heard."""

    def __init__(self) -> None:
        self.heard: list[Any] = []
        self.data = bytearray()
        self.pieces = 0
        self.lost: asyncio.Future[Exception | None] = asyncio.get_running_loop().create_future()
        self.transport: asyncio.Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        self.pieces += 1
        self.data += data

    def eof_received(self) -> bool | None:
        self.heard.append("end")
        return None

    def connection_lost(self, exc: Exception | None) -> None:
        self.lost.set_result(exc)

    def pause_writing(self) -> None:
        self.heard.append("pause")

    def resume_writing(self) -> None:
        self.heard.append("resume")


class Echo(Ear):
    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self.transport.write(data)


class BufferedEcho(asyncio.BufferedProtocol):
    def __init__(self) -> None:
        self.buffer = bytearray(197)
        self.transport: asyncio.Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport

    def get_buffer(self, sizehint: int) -> bytearray:
        return self.buffer

    def buffer_updated(self, nbytes: int) -> None:
        self.transport.write(self.buffer[:nbytes])


class Server:
    """A program that listens with one kind of protocol and keeps those it made."""

    def __init__(self, kind: Any = Echo, host: str = "0.0.0.0") -> None:
        self.kind = kind
        self.host = host
        self.protocols: list[Any] = []
        self.operations = 0

    def made(self) -> Any:
        protocol = self.kind()
        self.protocols.append(protocol)
        return protocol

    async def run(self, world: World) -> None:
        await world.network.listen(self.host, 9092, self.made)
        await asyncio.get_running_loop().create_future()


async def dial(simulation: Simulation, machine: Machine, protocol: Any = None, host: str = "server") -> Ear:
    """Connects from a machine that runs nothing else."""
    ear: Ear = protocol or Ear()

    async def program(world: World) -> None:
        await world.network.connect(host, 9092, lambda: ear)
        ready.set_result(None)
        await asyncio.get_running_loop().create_future()

    ready: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    task = machine.boot(program)
    task.add_done_callback(
        lambda task: ready.set_exception(task.exception()) if task.exception() and not ready.done() else None
    )
    await ready
    return ear


@pytest.mark.parametrize("kind", [Echo, BufferedEcho])
def test_bytes_arrive_in_order_however_they_are_cut(simulation: Simulation, kind: Any) -> None:
    sent = simulation.random("bytes").randbytes(300_000)
    simulation.fabric.weather = Weather(cut_chance=0.7)

    async def scenario() -> Ear:
        simulation.machine("server").boot(Server(kind).run)
        ear = await dial(simulation, simulation.machine("client"))
        for start in range(0, len(sent), 10_000):
            ear.transport.writelines([sent[start : start + 3], memoryview(sent)[start + 3 : start + 10_000]])
        await asyncio.sleep(60)
        return ear

    ear = simulation.run(scenario())
    assert bytes(ear.data) == sent
    assert ear.pieces > 5


def test_delays_are_those_of_the_weather(simulation: Simulation) -> None:
    simulation.fabric.weather = Weather(least_delay_us=1_000_000, most_delay_us=1_000_000, cut_chance=0)

    async def scenario() -> bytes:
        simulation.machine("server").boot(Server().run)
        await asyncio.sleep(1)
        ear = await dial(simulation, simulation.machine("client"))
        assert simulation.loop.time() == 3.0
        ear.transport.write(b"ping")
        await asyncio.sleep(1.9)
        assert ear.data == b""
        await asyncio.sleep(0.2)
        return bytes(ear.data)

    assert simulation.run(scenario()) == b"ping"


def test_a_peer_that_does_not_read_fills_the_write_buffer_until_it_reads_again(simulation: Simulation) -> None:
    simulation.fabric.weather = Weather(window_bytes=50_000)

    async def scenario() -> None:
        server = Server(Ear)
        simulation.machine("server").boot(server.run)
        ear = await dial(simulation, simulation.machine("client"))
        ear.transport.set_write_buffer_limits(high=20_000)
        other = server.protocols[0]
        other.transport.pause_reading()
        ear.transport.write(bytes(60_000))
        assert ear.heard == []
        assert ear.transport.get_write_buffer_size() == 10_000
        ear.transport.write(bytes(60_000))
        assert ear.heard == ["pause"]
        await asyncio.sleep(5)
        assert len(other.data) == 0
        assert ear.transport.get_write_buffer_size() == 70_000
        other.transport.resume_reading()
        await asyncio.sleep(5)
        assert len(other.data) == 120_000
        assert ear.heard == ["pause", "resume"]
        assert ear.transport.get_write_buffer_size() == 0

    simulation.run(scenario())


def test_closing_sends_what_was_written_and_then_the_end(simulation: Simulation) -> None:
    simulation.fabric.weather = Weather(window_bytes=1_000)

    async def scenario() -> None:
        server = Server(Ear)
        simulation.machine("server").boot(server.run)
        ear = await dial(simulation, simulation.machine("client"))
        ear.transport.write(bytes(100_000))
        ear.transport.close()
        assert ear.transport.is_closing()
        ear.transport.write(b"too late")
        assert await ear.lost is None
        assert await server.protocols[0].lost is None
        assert len(server.protocols[0].data) == 100_000
        assert server.protocols[0].heard == ["end"]

    simulation.run(scenario())


def test_half_a_connection_can_be_closed(simulation: Simulation) -> None:
    class Answering(Ear):
        def eof_received(self) -> bool:
            self.transport.write(b"all heard")
            self.transport.close()
            return True

    async def scenario() -> Ear:
        simulation.machine("server").boot(Server(Answering).run)
        ear = await dial(simulation, simulation.machine("client"))
        ear.transport.write(b"that was all")
        ear.transport.write_eof()
        assert await ear.lost is None
        return ear

    assert bytes(simulation.run(scenario()).data) == b"all heard"


def test_writing_to_a_peer_that_has_closed_is_answered_with_a_reset(simulation: Simulation) -> None:
    class Deaf(Ear):
        def eof_received(self) -> bool:
            return True

    async def scenario() -> Exception | None:
        server = Server(Ear)
        simulation.machine("server").boot(server.run)
        ear = await dial(simulation, simulation.machine("client"), Deaf())
        server.protocols[0].transport.close()
        await asyncio.sleep(1)
        ear.transport.write(b"anybody?")
        return await ear.lost

    assert isinstance(simulation.run(scenario()), ConnectionResetError)


def test_an_aborted_connection_ends_at_both_ends_and_may_lose_what_was_written() -> None:
    ends = set()
    for seed in range(20):
        with Simulation(seed) as simulation:

            async def scenario(simulation: Simulation = simulation) -> tuple[Exception | None, Exception | None]:
                server = Server(Ear)
                simulation.machine("server").boot(server.run)
                ear = await dial(simulation, simulation.machine("client"))
                ear.transport.write(bytes(1_000_000))
                ear.transport.abort()
                return await ear.lost, await server.protocols[0].lost

            mine, theirs = simulation.run(scenario())
            assert mine is None
            ends.add(type(theirs))
    assert ends == {type(None), ConnectionResetError}


def test_resets_happen_in_mid_frame() -> None:
    lengths = set()
    for seed in range(30):
        with Simulation(seed, Weather(cut_chance=0)) as simulation:

            async def scenario(simulation: Simulation = simulation) -> int:
                server = Server(Ear)
                simulation.machine("server").boot(server.run)
                ear = await dial(simulation, simulation.machine("client"))
                simulation.fabric.weather.reset_chance = 1.0
                ear.transport.write(b"x" * 1000)
                assert isinstance(await ear.lost, ConnectionResetError)
                assert isinstance(await server.protocols[0].lost, ConnectionResetError)
                return len(server.protocols[0].data)

            lengths.add(simulation.run(scenario()))
    assert len(lengths) > 5
    assert max(lengths) < 1000


def test_nobody_listening_is_a_refusal_and_an_unknown_name_an_error(simulation: Simulation) -> None:
    async def scenario() -> None:
        simulation.machine("server")
        client = simulation.machine("client")
        with pytest.raises(ConnectionRefusedError):
            await dial(simulation, client)
        with pytest.raises(socket.gaierror):
            await dial(simulation, client, host="nowhere")
        # A refusal is weather, too: a full backlog.
        simulation.machine("server").boot(Server().run)
        await asyncio.sleep(1)
        simulation.fabric.weather.refuse_chance = 1.0
        with pytest.raises(ConnectionRefusedError):
            await dial(simulation, client)

    simulation.run(scenario())


def test_a_port_is_taken_once_and_free_again_when_closed_or_when_its_process_is_gone(simulation: Simulation) -> None:
    async def program(world: World) -> str:
        listener = await world.network.listen("", 9092, Ear)
        with pytest.raises(OSError, match="in use"):
            await world.network.listen("localhost", 9092, Ear)
        await listener.close()
        listener = await world.network.listen("server", 9092, Ear)
        other = await world.network.listen("127.0.0.1", 0, Ear)
        assert listener.port == 9092
        assert other.port > 1024
        return "done"

    async def scenario() -> None:
        machine = simulation.machine("server")
        assert await machine.boot(program) == "done"
        assert await machine.boot(program) == "done"

    simulation.run(scenario())


def test_names_addresses_and_the_own_machine_can_be_dialled(simulation: Simulation) -> None:
    async def program(world: World) -> list[str]:
        protocols: list[Ear] = []

        def made() -> Ear:
            protocols.append(Ear())
            return protocols[-1]

        await world.network.listen("", 9092, made)
        for host in ("localhost", "127.0.0.1", "server", "10.0.0.1"):
            transport = await world.network.connect(host, 9092, Ear)
            assert transport.get_extra_info("peername")[1] == 9092
            assert transport.get_extra_info("socket") is None
        return [protocol.transport.get_extra_info("peername")[0] for protocol in protocols]

    async def scenario() -> list[str]:
        return await simulation.machine("server").boot(program)

    assert simulation.run(scenario()) == ["127.0.0.1"] * 4


def test_a_killed_process_ends_its_connections_and_its_port(simulation: Simulation) -> None:
    async def scenario() -> None:
        server = simulation.machine("server")
        server.boot(Server().run)
        ear = await dial(simulation, simulation.machine("client"))
        server.kill()
        await ear.lost
        with pytest.raises(ConnectionRefusedError):
            await dial(simulation, simulation.machine("other"))

    simulation.run(scenario())


def test_a_machine_without_power_is_silent_and_resets_old_connections_once_it_is_back(simulation: Simulation) -> None:
    async def scenario() -> None:
        server = simulation.machine("server")
        server.boot(Server().run)
        ear = await dial(simulation, simulation.machine("client"))
        server.lose_power()
        ear.transport.write(b"hello?")
        await asyncio.sleep(60)
        assert not ear.lost.done()
        with pytest.raises(TimeoutError):
            await dial(simulation, simulation.machine("other"))
        assert not ear.lost.done()
        server.boot(Server().run)
        assert isinstance(await ear.lost, ConnectionResetError)
        await dial(simulation, simulation.machine("third"))

    simulation.run(scenario())


def test_a_partition_delays_bytes_and_nothing_is_lost_when_it_heals(simulation: Simulation) -> None:
    async def scenario() -> None:
        server = Server()
        simulation.machine("server").boot(server.run)
        ear = await dial(simulation, simulation.machine("client"))
        simulation.fabric.partition(("server",), ("client",))
        for number in range(10):
            ear.transport.write(bytes([number]))
            await asyncio.sleep(1)
        assert server.protocols[0].data == b""
        simulation.fabric.heal()
        await asyncio.sleep(1)
        assert ear.data == bytes(range(10))

    simulation.run(scenario())


def test_a_link_can_be_cut_one_way(simulation: Simulation) -> None:
    async def scenario() -> None:
        server = Server()
        simulation.machine("server").boot(server.run)
        ear = await dial(simulation, simulation.machine("client"))
        simulation.fabric.block("server", "client")
        ear.transport.write(b"one way")
        await asyncio.sleep(10)
        assert server.protocols[0].data == b"one way"
        assert ear.data == b""

    simulation.run(scenario())


def test_what_stands_still_arrives_behind_what_was_sent_later_by_somebody_else(simulation: Simulation) -> None:
    server, client = Server(Ear), simulation.machine("client")

    async def scenario() -> None:
        simulation.machine("server").boot(server.run)
        await asyncio.sleep(1)
        first = await dial(simulation, client)
        simulation.fabric.stall("client", "server")
        first.transport.write(b"words of the dead")
        await asyncio.sleep(1)
        client.kill()
        second = await dial(simulation, client)
        second.transport.write(b"words of the living")
        await asyncio.sleep(1)
        assert [bytes(each.data) for each in server.protocols] == [b"", b"words of the living"]
        assert not server.protocols[0].lost.done()
        simulation.fabric.flow("client", "server")
        await asyncio.sleep(1)
        assert bytes(server.protocols[0].data) == b"words of the dead"
        assert server.protocols[0].lost.done()
        assert not server.protocols[1].lost.done()

    simulation.run(scenario())


def test_broken_connections_end_with_an_error_at_both_ends(simulation: Simulation) -> None:
    server = Server(Ear)

    async def scenario() -> None:
        simulation.machine("server").boot(server.run)
        await asyncio.sleep(1)
        ear = await dial(simulation, simulation.machine("client"))
        other = await dial(simulation, simulation.machine("other"))
        simulation.fabric.break_connections("server", "client")
        await asyncio.sleep(1)
        assert isinstance(ear.lost.result(), ConnectionResetError)
        assert isinstance(server.protocols[0].lost.result(), ConnectionResetError)
        assert not other.lost.done()

    simulation.run(scenario())


def test_dialling_through_a_partition_succeeds_once_it_heals(simulation: Simulation) -> None:
    async def scenario() -> float:
        simulation.machine("server").boot(Server().run)
        client = simulation.machine("client")
        simulation.fabric.partition(("server",), ("client",))
        simulation.loop.call_later(5, simulation.fabric.heal)
        await dial(simulation, client)
        return simulation.loop.time()

    assert 7 <= simulation.run(scenario()) < 8


def test_a_paused_process_reads_what_came_meanwhile_when_it_resumes(simulation: Simulation) -> None:
    async def scenario() -> None:
        server, machine = Server(), simulation.machine("server")
        machine.boot(server.run)
        ear = await dial(simulation, simulation.machine("client"))
        machine.pause()
        ear.transport.write(b"still there?")
        await asyncio.sleep(100)
        assert ear.data == b""
        machine.resume()
        await asyncio.sleep(1)
        assert ear.data == b"still there?"

    simulation.run(scenario())


def test_a_socket_paused_for_reading_notices_a_reset_when_it_reads_again(simulation: Simulation) -> None:
    async def scenario() -> None:
        server = Server(Ear)
        simulation.machine("server").boot(server.run)
        client = simulation.machine("client")
        await dial(simulation, client)
        other = server.protocols[0]
        other.transport.pause_reading()
        client.kill()
        await asyncio.sleep(10)
        assert not other.lost.done()
        other.transport.resume_reading()
        await other.lost

    simulation.run(scenario())


def test_a_lag_is_of_one_direction_and_goes_with_healing(simulation: Simulation) -> None:
    async def scenario() -> list[float]:
        simulation.machine("server").boot(Server().run)
        ear = await dial(simulation, simulation.machine("client"))

        async def echo() -> float:
            began = simulation.loop.time()
            already = len(ear.data)
            ear.transport.write(b"x")
            while len(ear.data) == already:
                await asyncio.sleep(0.001)
            return simulation.loop.time() - began

        usual = await echo()
        simulation.fabric.lags_us["client", "server"] = 3_000_000
        lagging = max([await echo() for _ in range(5)])
        simulation.fabric.heal()
        return [usual, lagging, await echo()]

    usual, lagging, healed = simulation.run(scenario())
    assert usual < 0.01
    assert 1 < lagging < 3.1
    assert healed < 0.01


class Listening:
    def __init__(self) -> None:
        self.heard: list[tuple[str, str, bool, bytes]] = []

    def written(self, sender: SimTransport, data: bytes) -> None:
        self.heard.append(("written", sender.machine, sender.dialled, data))

    def arrived(self, sender: SimTransport, data: bytes) -> None:
        self.heard.append(("arrived", sender.machine, sender.dialled, data))


def test_a_tap_hears_what_is_written_and_whether_it_arrives(simulation: Simulation) -> None:
    tap = Listening()

    async def scenario() -> None:
        server = Server(Ear)
        simulation.machine("server").boot(server.run)
        ear = await dial(simulation, simulation.machine("client"))
        simulation.fabric.weather.cut_chance = 0.0
        simulation.fabric.tap = tap
        server.protocols[0].transport.write(b"answer")
        simulation.fabric.block("client", "server")
        ear.transport.write(b"question")
        await asyncio.sleep(1)
        assert server.protocols[0].data == b""

    simulation.run(scenario())
    assert tap.heard == [
        ("written", "server", False, b"answer"),
        ("written", "client", True, b"question"),
        ("arrived", "server", False, b"answer"),
    ]


def test_a_tap_does_not_hear_what_comes_after_a_reset(simulation: Simulation) -> None:
    """Half a frame came before it: what follows would not make sense."""
    tap = Listening()

    async def scenario() -> None:
        server = Server(Ear)
        simulation.machine("server").boot(server.run)
        ear = await dial(simulation, simulation.machine("client"))
        simulation.fabric.weather.cut_chance = 0.0
        simulation.fabric.tap = tap
        simulation.fabric.weather.reset_chance = 1.0
        ear.transport.write(b"half of th")
        simulation.fabric.weather.reset_chance = 0.0
        ear.transport.write(b"something else")
        await asyncio.sleep(1)

    simulation.run(scenario())
    arrived = [data for how, _, _, data in tap.heard if how == "arrived"]
    assert arrived and all(b"half of th".startswith(data) for data in arrived)
