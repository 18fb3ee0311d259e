"""A tap of the simulated network observes what is written, and what arrives."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from strandline.simulation.transport import SimTransport
from strandline.simulation.world import Simulation
from unit.simulation.recording_protocols import RecordingProtocol, Server, connect


@pytest.fixture
def simulation() -> Iterator[Simulation]:
    with Simulation(seed=1) as simulation:
        yield simulation


class RecordingTap:
    def __init__(self) -> None:
        self.events: list[tuple[str, str, bool, bytes]] = []

    def written(self, sender: SimTransport, data: bytes) -> None:
        self.events.append(("written", sender.machine, sender.is_client, data))

    def arrived(self, sender: SimTransport, data: bytes) -> None:
        self.events.append(("arrived", sender.machine, sender.is_client, data))


def test_a_tap_observes_what_is_written_and_what_arrives(simulation: Simulation) -> None:
    tap = RecordingTap()

    async def scenario() -> None:
        server = Server(RecordingProtocol)
        simulation.machine("server").boot(server.run)
        client = await connect(simulation, simulation.machine("client"))
        simulation.fabric.weather.split_chance = 0.0
        simulation.fabric.tap = tap
        server.protocols[0].transport.write(b"response")
        simulation.fabric.block("client", "server")
        client.transport.write(b"request")
        await asyncio.sleep(1)
        assert server.protocols[0].data == b""

    simulation.run(scenario())
    assert tap.events == [
        ("written", "server", False, b"response"),
        ("written", "client", True, b"request"),
        ("arrived", "server", False, b"response"),
    ]


def test_a_tap_does_not_observe_arrivals_after_a_reset(simulation: Simulation) -> None:
    """A partial frame arrived before it, so the bytes that follow could not be decoded."""
    tap = RecordingTap()

    async def scenario() -> None:
        server = Server(RecordingProtocol)
        simulation.machine("server").boot(server.run)
        client = await connect(simulation, simulation.machine("client"))
        simulation.fabric.weather.split_chance = 0.0
        simulation.fabric.tap = tap
        simulation.fabric.weather.reset_chance = 1.0
        client.transport.write(b"half of th")
        simulation.fabric.weather.reset_chance = 0.0
        client.transport.write(b"something else")
        await asyncio.sleep(1)

    simulation.run(scenario())
    arrived = [data for how, _, _, data in tap.events if how == "arrived"]
    assert arrived and all(b"half of th".startswith(data) for data in arrived)
