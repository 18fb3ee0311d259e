"""Whoever listens at the simulated network hears what is written, and what arrives."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from strandline.simulation.transport import SimTransport
from strandline.simulation.world import Simulation
from unit.simulation.recording_protocols import Ear, Server, dial


@pytest.fixture
def simulation() -> Iterator[Simulation]:
    with Simulation(seed=1) as simulation:
        yield simulation


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
