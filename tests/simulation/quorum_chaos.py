"""Faults for a quorum, drawn at will."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from random import Random

from simulation.quorum_node import Node
from simulation.quorum_stage import Stage

KINDS = (
    *("kill", "kill leader", "kill all", "power", "power all", "power soon", "stop"),
    *("boot", "boot", "boot all", "pause", "resume", "wait"),
    *("partition", "partition", "one way", "heal", "resets"),
)


class Chaos:
    """Faults at will, drawn from a generator; `heal` ends them all and boots whoever is down."""

    def __init__(self, stage: Stage, random: Random) -> None:
        self._stage = stage
        self._random = random
        self._paused: list[Node] = []
        self.story: list[str] = []

    async def run(self, seconds: float) -> None:
        loop = asyncio.get_running_loop()
        until = loop.time() + seconds
        while loop.time() < until:
            await asyncio.sleep(self._random.choice([0.01, 0.1, 0.5, 1.5, 4]) * self._random.random())
            self._strike()
            self._stage.check_alive()

    def heal(self) -> None:
        for node in self._stage.nodes.values():
            if node.is_alive:
                node.machine.disk.lose_power_at = None
                if node in self._paused:
                    node.machine.resume()
        self._paused.clear()
        self._stage.simulation.fabric.heal()
        self._stage.simulation.fabric.weather.reset_chance = 0
        self._stage.boot()

    def _strike(self) -> None:
        random, stage = self._random, self._stage
        nodes = list(stage.nodes.values())
        node = random.choice(nodes)
        leader = stage.leader()
        kind = random.choice(KINDS)
        if "leader" in kind and leader is not None:
            node = leader
        self.story.append(f"{asyncio.get_running_loop().time():.3f} {kind} {node.number}")
        match kind.split()[0]:
            case "kill" if kind == "kill all":
                for each in nodes:
                    self._end(each, each.machine.kill)
            case "kill":
                self._end(node, node.machine.kill)
            case "power" if kind == "power all":
                for each in nodes:
                    self._end(each, each.machine.lose_power)
            case "power" if kind == "power soon":
                if node.is_alive:
                    node.machine.disk.lose_power_at = node.machine.disk.operations + random.randrange(20)
            case "power":
                self._end(node, node.machine.lose_power)
            case "boot" if kind == "boot all":
                stage.boot()
            case "boot":
                if not node.is_alive:
                    node.boot()
            case "stop":
                if node.is_alive and node not in self._paused:
                    node.stop.set()
            case "pause":
                if node.is_alive and node not in self._paused:
                    node.machine.pause()
                    self._paused.append(node)
            case _:
                self._disturb(kind, node)

    def _end(self, node: Node, how: Callable[[], None]) -> None:
        if node.is_alive:
            how()
        if node in self._paused:
            self._paused.remove(node)

    def _disturb(self, kind: str, node: Node) -> None:
        random, fabric = self._random, self._stage.simulation.fabric
        names = [each.machine.name for each in self._stage.nodes.values()]
        if len(names) == 1:
            return
        match kind:
            case "partition":
                alone = tuple(random.sample(names, random.randrange(1, len(names))))
                fabric.partition(alone, tuple(name for name in names if name not in alone))
            case "one way":
                fabric.block(*random.sample(names, 2))
            case "heal":
                fabric.heal()
            case "resume":
                for each in self._paused:
                    if each.is_alive:
                        each.machine.resume()
                self._paused.clear()
            case "resets":
                fabric.weather.reset_chance = random.choice([0, 0, 0.01, 0.05])
