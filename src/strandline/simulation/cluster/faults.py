"""What may happen to a cluster. Each fault is a short coroutine: it strikes, lasts, and makes good again.

Kept by the *atlas*: never what the mode does not promise to survive. For the metadata quorum that leaves nearly
everything, at any number of nodes at once; not allowed is what no quorum survives, that a voter forgets what it voted
or what it acknowledged. So a disk is wiped only after its voter has left the quorum, and comes back as another voter;
the quorum is never left without a majority of voters that have a disk; and a disk that failed is not trusted again
before its node was started anew.
"""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Awaitable, Callable, Mapping
from random import Random
from typing import Final

from strandline.simulation.cluster.cluster import Cluster, Member
from strandline.simulation.cluster.membership_changes import change_brokers, change_voters
from strandline.simulation.cluster.metadata_files import METADATA_DIRECTORY
from strandline.simulation.cluster.plan import PlannedFault

Strike = Callable[[Cluster, Random, float], Awaitable[str | None]]
"""Returns when it is over; None when nothing could be done."""
_RUSH_MS = 200
"""Faults hurt where much is under way: around each of them clients are in a hurry."""


class Faults:
    """Carries out the faults of a plan, side by side; `heal` makes good whatever is left."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._tasks: list[asyncio.Task[None]] = []

    def start(self) -> None:
        loop = asyncio.get_running_loop()
        for planned in self._cluster.plan.faults:
            task = loop.create_task(self._strike(planned), name=f"{planned.kind} at {planned.at_ms} ms")
            task.add_done_callback(raise_error)
            self._tasks.append(task)

    async def _strike(self, planned: PlannedFault) -> None:
        await asyncio.sleep(max(0, planned.at_ms - _RUSH_MS // 2) / 1000)
        self._cluster.rush(_RUSH_MS)
        await asyncio.sleep(min(planned.at_ms, _RUSH_MS // 2) / 1000)
        done = await STRIKES[planned.kind](self._cluster, Random(planned.draw), planned.length_ms / 1000)
        if done is not None:
            self._cluster.chronicle.faults[done] += 1

    async def heal(self) -> None:
        """Everybody runs, hears everybody, and has room on a disk that works."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        cluster = self._cluster
        cluster.chronicle.note("", "the faults end; everything heals")
        fabric = cluster.simulation.fabric
        fabric.heal()
        fabric.weather.reset_chance = fabric.weather.slow_chance = 0.0
        for member in cluster.members.values():
            mend(member)
            if member.paused:
                member.resume()
            if member.running and (member.excused or member.stopping):
                member.kill()  # it is on its way down, or may be: its disk may have failed
        for member in cluster.members.values():
            if member.machine.boots and not member.running:
                member.boot()


def raise_error(task: asyncio.Task[None]) -> None:
    """As a callback of the loop: an error that nobody waits for ends the run."""
    if not task.cancelled() and (error := task.exception()) is not None:
        raise error


def mend(member: Member) -> None:
    member.machine.volume.capacity_bytes = None
    if member.running:
        member.machine.disk.remove_all_faults()
        member.machine.disk.lose_power_at = None


def some(cluster: Cluster, random: Random) -> list[Member]:
    """Who is hurt: one, the leader, a majority of the controllers, or everybody that runs."""
    running = [member for member in cluster.running() if not member.paused]
    leader = cluster.leader()
    whom = random.choices(("one", "leader", "majority", "all"), (5, 4, 1, 1))[0]
    controllers = [member for member in running if member.id in cluster.controller_ids]
    if whom == "all":
        return running
    if whom == "majority" and controllers:
        return random.sample(controllers, len(controllers) // 2 + 1)
    if whom == "leader" and leader in running:
        return [leader]
    return [random.choice(running)] if running else []


async def kill(cluster: Cluster, random: Random, length_s: float) -> str | None:
    return await _down(cluster, some(cluster, random), Member.kill, "kill", random, length_s)


async def power(cluster: Cluster, random: Random, length_s: float) -> str | None:
    return await _down(cluster, some(cluster, random), Member.lose_power, "power", random, length_s)


async def _down(
    cluster: Cluster, members: list[Member], end: Callable[[Member], None], kind: str, random: Random, length_s: float
) -> str | None:
    for member in members:
        end(member)
    at_once = random.random() < 0.5
    for member in members:
        await asyncio.sleep(length_s if member is members[0] else 0.0 if at_once else random.random())
        if not member.running and member.wanted:
            member.boot()
    return kind if members else None


async def stop(cluster: Cluster, random: Random, length_s: float) -> str | None:
    members = some(cluster, random)[:1]
    for member in members:
        member.stop()
        process = member.machine.process
        while process is not None and process.alive:
            await asyncio.sleep(0.1)
        await asyncio.sleep(length_s)
        if not member.running and member.wanted:
            member.boot()
    return "stop" if members else None


async def moment(cluster: Cluster, random: Random, length_s: float) -> str | None:
    """In the middle of the work of its disk: a few operations from now."""
    members = some(cluster, random)[:1]
    for member in members:
        disk, process = member.machine.disk, member.machine.process
        disk.lose_power_at = disk.operations + random.randint(1, 20)
        if random.random() < 0.5:
            disk.when_power_is_lost = member.machine.kill
        await asyncio.sleep(length_s)
        disk.lose_power_at = None
        if process is not None and process.alive:
            return None
        cluster.note(member, "was cut off in the middle of its disk work")
        if not member.running and member.wanted:
            member.boot()
    return "moment" if members else None


async def pause(cluster: Cluster, random: Random, length_s: float) -> str | None:
    members = some(cluster, random)
    for member in members:
        member.pause()
    processes = [member.machine.process for member in members]
    await asyncio.sleep(length_s)
    for member, process in zip(members, processes, strict=True):
        if member.paused and member.machine.process is process:
            member.resume()
    return "pause" if members else None


async def partition(cluster: Cluster, random: Random, length_s: float) -> str | None:
    nodes = [member.name for member in cluster.members.values()]
    clients = cluster.clients
    random.shuffle(nodes)
    leader = cluster.leader()
    shape = random.choice(("single", "leader", "halves", "ring", "bridge", "one way", "client"))
    links: list[tuple[str, str]] = []
    match shape:
        case "leader" if leader is not None:
            links = _between([leader.name], [node for node in nodes if node != leader.name])
        case "single" | "leader":
            links = _between(nodes[:1], nodes[1:])
        case "halves":
            cut = random.randint(1, len(nodes) - 1) if len(nodes) > 1 else 0
            links = _between(nodes[:cut], nodes[cut:])
        case "ring":
            next_to = {(nodes[index - 1], node) for index, node in enumerate(nodes)}
            links = [(a, b) for a in nodes for b in nodes if a != b and not {(a, b), (b, a)} & next_to]
        case "bridge":
            half = len(nodes) // 2
            links = _between(nodes[:half], nodes[half + 1 :])
        case "one way":
            links = [(nodes[0], other) for other in nodes[1:]]
            if random.random() < 0.5:
                links = [(b, a) for a, b in links]
        case _:
            links = _between(clients, random.sample(nodes, random.randint(1, len(nodes))))
    cluster.chronicle.note("network", f"partition ({shape}): {_describe(links)}")
    for source, target in links:
        cluster.simulation.fabric.block(source, target)
    await asyncio.sleep(length_s)
    for source, target in links:
        cluster.simulation.fabric.unblock(source, target)
    cluster.chronicle.note("network", f"the partition ({shape}) heals")
    return f"partition ({shape})"


def _between(some: list[str], others: list[str]) -> list[tuple[str, str]]:
    return [link for a in some for b in others for link in ((a, b), (b, a))]


def _describe(links: list[tuple[str, str]]) -> str:
    both = [f"{a}|{b}" for a, b in links if (b, a) in links and a < b]
    one_way = [f"{a}->{b}" for a, b in links if (b, a) not in links]
    return " ".join(both + one_way)


async def lag(cluster: Cluster, random: Random, length_s: float) -> str | None:
    names = [member.name for member in cluster.members.values()]
    slow = random.choice(names)
    lags = cluster.simulation.fabric.lags_us
    length_us = random.choice((20_000, 300_000, 2_000_000))
    links = [link for link in _between([slow], [name for name in names if name != slow]) if random.random() < 0.7]
    cluster.chronicle.note("network", f"up to {length_us / 1_000_000:g} s late: {_describe(links)}")
    lags.update(dict.fromkeys(links, length_us))
    await asyncio.sleep(length_s)
    for link in links:
        lags.pop(link, None)
    return "lag"


async def reset(cluster: Cluster, random: Random, length_s: float) -> str | None:
    weather = cluster.simulation.fabric.weather
    cluster.chronicle.note("network", "connections break now and then")
    weather.reset_chance = random.choice((0.002, 0.02, 0.1))
    await asyncio.sleep(length_s)
    weather.reset_chance = 0.0
    return "reset"


async def late(cluster: Cluster, random: Random, length_s: float) -> str | None:
    """Most often of a broker that is started again meanwhile: its predecessor speaks after it."""
    member = _some_broker(cluster, random)
    if member is None:
        return None
    if random.random() < 0.3:
        # Its registration is asked for again and again while the session of its predecessor lasts.
        member.lose_power()
        member.boot()
        await asyncio.sleep(random.uniform(0, 0.3))
    fabric = cluster.simulation.fabric
    others = [other.name for other in cluster.members.values() if other is not member]
    cluster.note(member, "is not heard on the connections that it has: they stand still")
    for other in others:
        fabric.stall(member.name, other)
    await asyncio.sleep(random.uniform(0, 1.5) * _setting_s(cluster, "broker.heartbeat.interval.ms"))
    await asyncio.sleep(random.choice((0, 0.5)))  # as long as a fetch may wait
    if random.random() < 0.8 and member.running and not member.paused:
        await _succeeded(cluster, member, random, length_s)
    else:
        await asyncio.sleep(length_s)
    cluster.note(member, "is heard: what stood still arrives")
    for other in others:
        fabric.unstall(member.name, other)
    return "late"


async def _succeeded(cluster: Cluster, member: Member, random: Random, length_s: float) -> None:
    """Until the controller knows the successor, or for as long as one may have to wait for that."""
    epoch = _epoch(cluster, member)
    random.choice((Member.kill, Member.lose_power))(member)
    await asyncio.sleep(random.uniform(0, 0.2))
    if not member.running and member.wanted:
        member.boot()
    loop = asyncio.get_running_loop()
    until_s = loop.time() + length_s + 2 * _setting_s(cluster, "broker.session.timeout.ms")
    while _epoch(cluster, member) == epoch and loop.time() < until_s:
        await asyncio.sleep(0.01)
    await asyncio.sleep(random.choice((0, 0.2)))


def _epoch(cluster: Cluster, member: Member) -> int:
    broker = cluster.ledger.image.latest.broker(member.id)
    return -1 if broker is None else broker.epoch


async def firewall(cluster: Cluster, random: Random, length_s: float) -> str | None:
    """A connection that ends, and silence after it: no evidence that anybody is dead."""
    member, leader = _some_broker(cluster, random), cluster.leader()
    if member is None or leader is None:
        return None
    others = [other.name for other in cluster.members.values() if other is not member]
    others = [leader.name] if random.random() < 0.5 else others
    links = _between([member.name], others)
    cluster.chronicle.note("network", f"connections break and nothing gets through: {_describe(links)}")
    fabric = cluster.simulation.fabric
    for other in others:
        fabric.break_connections(member.name, other)
    for source, target in links:
        fabric.block(source, target)
    await asyncio.sleep(length_s)
    for source, target in links:
        fabric.unblock(source, target)
    cluster.chronicle.note("network", f"passes again: {_describe(links)}")
    return "firewall"


def _some_broker(cluster: Cluster, random: Random) -> Member | None:
    """One that talks to the controller over the network."""
    leader = cluster.leader()
    brokers = [member for member in cluster.brokers() if member.running and not member.paused and member is not leader]
    return random.choice(brokers) if brokers else None


def _setting_s(cluster: Cluster, key: str) -> float:
    return int(cluster.plan.settings[key]) / 1000


async def clock(cluster: Cluster, random: Random, length_s: float) -> str | None:
    running = cluster.running()
    if not running:
        return None
    member = random.choice(running)
    jump_ms = random.choice((-86_400_000, -10_000, -500, 500, 10_000, 86_400_000))
    cluster.note(member, f"sets its clock by {jump_ms / 1000:g} s")
    member.machine.wall_skew_ms += jump_ms
    member.machine.clock.wall_skew_ms += jump_ms
    return "clock"


async def io(cluster: Cluster, random: Random, length_s: float) -> str | None:
    """Once: the node stops rather than go on with a disk that lies, and is started again on the same disk."""
    members = some(cluster, random)[:1]
    for member in members:
        kind = random.choice(("sync", "sync", "read", "write"))
        member.excuse()
        disk = member.machine.disk
        fault = disk.fail(kind, under=METADATA_DIRECTORY, code=errno.EIO, after=random.randint(0, 5), times=1)
        cluster.note(member, f"has a disk that will fail to {kind}, once")
        await asyncio.sleep(length_s)
        if fault.triggered:
            await _started_again(member)
        elif member.running and member.machine.disk is disk:
            disk.remove_fault(fault)
    return "io" if members else None


async def full(cluster: Cluster, random: Random, length_s: float) -> str | None:
    members = some(cluster, random)[:1]
    for member in members:
        member.excuse()
        volume = member.machine.volume
        volume.capacity_bytes = volume.used_bytes() + random.choice((0, 4_096, 16_384))
        cluster.note(member, "has a full disk")
        await asyncio.sleep(length_s)
        member.machine.volume.capacity_bytes = None
        cluster.note(member, "has room on its disk again")
        await _started_again(member)
    return "full" if members else None


async def _started_again(member: Member) -> None:
    """As an operator does after trouble with a disk: whether or not the node has given up by itself."""
    if member.running:
        member.kill()
    await asyncio.sleep(0.1)
    if not member.running and member.wanted:
        member.boot()


async def voters(cluster: Cluster, random: Random, length_s: float) -> str | None:
    return await change_voters(cluster, random, length_s)


async def brokers(cluster: Cluster, random: Random, length_s: float) -> str | None:
    return await change_brokers(cluster, random, length_s)


STRIKES: Final[Mapping[str, Strike]] = {
    "kill": kill,
    "stop": stop,
    "power": power,
    "moment": moment,
    "pause": pause,
    "partition": partition,
    "lag": lag,
    "reset": reset,
    "late": late,
    "firewall": firewall,
    "clock": clock,
    "io": io,
    "full": full,
    "voters": voters,
    "brokers": brokers,
}
