"""The faults. Each is a short coroutine that injects a fault, waits, and repairs it.

Faults stay within what Kafka's guarantees cover. The metadata quorum must survive nearly everything, on any number of
nodes at once, except that a voter loses its vote or acknowledged records. Therefore a disk is wiped only after its
voter has left the quorum, and its node joins as a new voter; a majority of the voters always keep their disks; and
after a disk fault the node is restarted.
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

FaultFunction = Callable[[Cluster, Random, float], Awaitable[str | None]]
"""Returns the kind of fault after it is repaired; None if it was not possible."""
_BURST_MS = 200
"""Around each fault clients send a burst of requests, since faults are most effective with requests in flight."""


class Faults:
    """Runs the faults of a plan concurrently; `heal` ends and repairs all of them."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._tasks: list[asyncio.Task[None]] = []

    def start(self) -> None:
        loop = asyncio.get_running_loop()
        for planned in self._cluster.plan.faults:
            task = loop.create_task(self._inject(planned), name=f"{planned.kind} at {planned.at_ms} ms")
            task.add_done_callback(raise_error)
            self._tasks.append(task)

    async def _inject(self, planned: PlannedFault) -> None:
        await asyncio.sleep(max(0, planned.at_ms - _BURST_MS // 2) / 1000)
        self._cluster.burst(_BURST_MS)
        await asyncio.sleep(min(planned.at_ms, _BURST_MS // 2) / 1000)
        done = await FAULT_FUNCTIONS[planned.kind](self._cluster, Random(planned.draw), planned.length_ms / 1000)
        if done is not None:
            self._cluster.chronicle.faults[done] += 1

    async def heal(self) -> None:
        """Afterwards all nodes run, with working disks and without network faults."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        cluster = self._cluster
        cluster.chronicle.note("", "all faults end")
        fabric = cluster.simulation.fabric
        fabric.heal()
        fabric.weather.reset_chance = fabric.weather.slow_chance = 0.0
        for member in cluster.members.values():
            repair_disk(member)
            if member.paused:
                member.resume()
            if member.running and (member.failure_allowed or member.stopping):
                member.kill()  # it is stopping, or may be, since its disk may have failed
        for member in cluster.members.values():
            if member.machine.boots and not member.running:
                member.boot()


def raise_error(task: asyncio.Task[None]) -> None:
    """A done callback: the error of a task that is not awaited ends the run."""
    if not task.cancelled() and (error := task.exception()) is not None:
        raise error


def repair_disk(member: Member) -> None:
    member.machine.volume.capacity_bytes = None
    if member.running:
        member.machine.disk.remove_all_faults()
        member.machine.disk.lose_power_at = None


def choose_members(cluster: Cluster, random: Random) -> list[Member]:
    """The nodes that a fault affects: one, the leader, a majority of the controllers, or all running nodes."""
    running = [member for member in cluster.running() if not member.paused]
    leader = cluster.leader()
    scope = random.choices(("one", "leader", "majority", "all"), (5, 4, 1, 1))[0]
    controllers = [member for member in running if member.id in cluster.controller_ids]
    if scope == "all":
        return running
    if scope == "majority" and controllers:
        return random.sample(controllers, len(controllers) // 2 + 1)
    if scope == "leader" and leader in running:
        return [leader]
    return [random.choice(running)] if running else []


async def kill(cluster: Cluster, random: Random, length_s: float) -> str | None:
    return await _down(cluster, choose_members(cluster, random), Member.kill, "kill", random, length_s)


async def power(cluster: Cluster, random: Random, length_s: float) -> str | None:
    return await _down(cluster, choose_members(cluster, random), Member.lose_power, "power", random, length_s)


async def _down(
    cluster: Cluster, members: list[Member], end: Callable[[Member], None], kind: str, random: Random, length_s: float
) -> str | None:
    for member in members:
        end(member)
    at_once = random.random() < 0.5
    for member in members:
        await asyncio.sleep(length_s if member is members[0] else 0.0 if at_once else random.random())
        if not member.running and member.should_run:
            member.boot()
    return kind if members else None


async def stop(cluster: Cluster, random: Random, length_s: float) -> str | None:
    members = choose_members(cluster, random)[:1]
    for member in members:
        member.stop()
        process = member.machine.process
        while process is not None and process.alive:
            await asyncio.sleep(0.1)
        await asyncio.sleep(length_s)
        if not member.running and member.should_run:
            member.boot()
    return "stop" if members else None


async def moment(cluster: Cluster, random: Random, length_s: float) -> str | None:
    """A few disk operations from now."""
    members = choose_members(cluster, random)[:1]
    for member in members:
        disk, process = member.machine.disk, member.machine.process
        disk.lose_power_at = disk.operations + random.randint(1, 20)
        if random.random() < 0.5:
            disk.when_power_is_lost = member.machine.kill
        await asyncio.sleep(length_s)
        disk.lose_power_at = None
        if process is not None and process.alive:
            return None
        cluster.note(member, "was killed or lost power in the middle of its disk operations")
        if not member.running and member.should_run:
            member.boot()
    return "moment" if members else None


async def pause(cluster: Cluster, random: Random, length_s: float) -> str | None:
    members = choose_members(cluster, random)
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
            split_at = random.randint(1, len(nodes) - 1) if len(nodes) > 1 else 0
            links = _between(nodes[:split_at], nodes[split_at:])
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
    cluster.chronicle.note("network", f"delayed up to {length_us / 1_000_000:g} s: {_describe(links)}")
    lags.update(dict.fromkeys(links, length_us))
    await asyncio.sleep(length_s)
    for link in links:
        lags.pop(link, None)
    return "lag"


async def reset(cluster: Cluster, random: Random, length_s: float) -> str | None:
    weather = cluster.simulation.fabric.weather
    cluster.chronicle.note("network", "connections are reset now and then")
    weather.reset_chance = random.choice((0.002, 0.02, 0.1))
    await asyncio.sleep(length_s)
    weather.reset_chance = 0.0
    return "reset"


async def late(cluster: Cluster, random: Random, length_s: float) -> str | None:
    """Usually the broker is restarted meanwhile, so that messages of its former process arrive after the new ones."""
    member = _some_broker(cluster, random)
    if member is None:
        return None
    if random.random() < 0.3:
        # The broker retries its registration until the session of its former process has expired.
        member.lose_power()
        member.boot()
        await asyncio.sleep(random.uniform(0, 0.3))
    fabric = cluster.simulation.fabric
    others = [other.name for other in cluster.members.values() if other is not member]
    cluster.note(member, "has its existing connections stalled")
    for other in others:
        fabric.stall(member.name, other)
    await asyncio.sleep(random.uniform(0, 1.5) * _setting_s(cluster, "broker.heartbeat.interval.ms"))
    await asyncio.sleep(random.choice((0, 0.5)))  # as long as a fetch may wait
    if random.random() < 0.8 and member.running and not member.paused:
        await _restart_and_register(cluster, member, random, length_s)
    else:
        await asyncio.sleep(length_s)
    cluster.note(member, "has its stalled messages delivered")
    for other in others:
        fabric.unstall(member.name, other)
    return "late"


async def _restart_and_register(cluster: Cluster, member: Member, random: Random, length_s: float) -> None:
    """Restarts the broker and waits until its new process has registered, or until that should have happened."""
    epoch = _epoch(cluster, member)
    random.choice((Member.kill, Member.lose_power))(member)
    await asyncio.sleep(random.uniform(0, 0.2))
    if not member.running and member.should_run:
        member.boot()
    loop = asyncio.get_running_loop()
    until_s = loop.time() + length_s + 2 * _setting_s(cluster, "broker.session.timeout.ms")
    while _epoch(cluster, member) == epoch and loop.time() < until_s:
        await asyncio.sleep(0.01)
    await asyncio.sleep(random.choice((0, 0.2)))


def _epoch(cluster: Cluster, member: Member) -> int:
    broker = cluster.metadata.image.latest.broker(member.id)
    return -1 if broker is None else broker.epoch


async def firewall(cluster: Cluster, random: Random, length_s: float) -> str | None:
    """Connections are reset and nothing passes any more: no evidence that the broker has failed."""
    member, leader = _some_broker(cluster, random), cluster.leader()
    if member is None or leader is None:
        return None
    others = [other.name for other in cluster.members.values() if other is not member]
    others = [leader.name] if random.random() < 0.5 else others
    links = _between([member.name], others)
    cluster.chronicle.note("network", f"connections are reset and links blocked: {_describe(links)}")
    fabric = cluster.simulation.fabric
    for other in others:
        fabric.break_connections(member.name, other)
    for source, target in links:
        fabric.block(source, target)
    await asyncio.sleep(length_s)
    for source, target in links:
        fabric.unblock(source, target)
    cluster.chronicle.note("network", f"links unblocked: {_describe(links)}")
    return "firewall"


def _some_broker(cluster: Cluster, random: Random) -> Member | None:
    """A broker that is not in the process of the active controller."""
    leader = cluster.leader()
    brokers = [member for member in cluster.brokers() if member.running and not member.paused and member is not leader]
    return random.choice(brokers) if brokers else None


def _setting_s(cluster: Cluster, key: str) -> float:
    return int(cluster.plan.configs[key]) / 1000


async def clock(cluster: Cluster, random: Random, length_s: float) -> str | None:
    running = cluster.running()
    if not running:
        return None
    member = random.choice(running)
    jump_ms = random.choice((-86_400_000, -10_000, -500, 500, 10_000, 86_400_000))
    cluster.note(member, f"has its wall clock set by {jump_ms / 1000:+g} s")
    member.machine.wall_skew_ms += jump_ms
    member.machine.clock.wall_skew_ms += jump_ms
    return "clock"


async def io(cluster: Cluster, random: Random, length_s: float) -> str | None:
    """One operation fails: the node stops and is restarted on the same disk."""
    members = choose_members(cluster, random)[:1]
    for member in members:
        kind = random.choice(("sync", "sync", "read", "write"))
        member.allow_failure()
        disk = member.machine.disk
        fault = disk.fail(kind, under=METADATA_DIRECTORY, code=errno.EIO, after=random.randint(0, 5), times=1)
        cluster.note(member, f"has a disk whose next {kind} may fail")
        await asyncio.sleep(length_s)
        if fault.triggered:
            await _restart(member)
        elif member.running and member.machine.disk is disk:
            disk.remove_fault(fault)
    return "io" if members else None


async def full(cluster: Cluster, random: Random, length_s: float) -> str | None:
    members = choose_members(cluster, random)[:1]
    for member in members:
        member.allow_failure()
        volume = member.machine.volume
        volume.capacity_bytes = volume.used_bytes() + random.choice((0, 4_096, 16_384))
        cluster.note(member, "has a full disk")
        await asyncio.sleep(length_s)
        member.machine.volume.capacity_bytes = None
        cluster.note(member, "has room on its disk again")
        await _restart(member)
    return "full" if members else None


async def _restart(member: Member) -> None:
    """Restarts a node as an operator does after a disk fault, whether or not it has stopped by itself."""
    if member.running:
        member.kill()
    await asyncio.sleep(0.1)
    if not member.running and member.should_run:
        member.boot()


async def voters(cluster: Cluster, random: Random, length_s: float) -> str | None:
    return await change_voters(cluster, random, length_s)


async def brokers(cluster: Cluster, random: Random, length_s: float) -> str | None:
    return await change_brokers(cluster, random, length_s)


FAULT_FUNCTIONS: Final[Mapping[str, FaultFunction]] = {
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
