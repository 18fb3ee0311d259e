"""Everything that a seed decides before a run starts: the nodes, their configs, the faults and their times.

A plan is a value: equal plans give equal runs, and a failure is shrunk by removing faults from its plan. What depends
on the course of the run (such as which node leads when a fault happens) is decided then, from a number in the plan.

Each seed draws some of the faults, not all of them ("swarm testing": when everything fails all the time, no run gets
far enough to break in an interesting way), and limits so small that rare events happen every second.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from random import Random

import msgspec
from msgspec.structs import replace

from strandline.simulation.network import Weather

FAULTS: Mapping[str, str] = {
    "kill": "one node, the leader, a majority or all nodes are killed as by kill -9, and restarted",
    "stop": "a node is stopped cleanly and restarted",
    "power": "as kill, but unsynced writes may be lost and sectors torn",
    "moment": "a node is killed or loses power in the middle of its disk operations",
    "pause": "one node, the leader, a majority or all nodes are paused as by SIGSTOP, and resumed",
    "partition": "network partition: one node, two halves, a ring, a bridge, one direction only, or clients",
    "lag": "messages from and to one node are delayed",
    "reset": "connections are reset in the middle of a message",
    "late": "messages of a node are held back and arrive after the node was killed and restarted",
    "firewall": "connections of a broker are reset, and its links are blocked for a while",
    "clock": "the wall clock of a node is set forward or back",
    "drift": "the clocks of the nodes run at different rates from the start",
    "io": "one sync, read or write in the metadata directory fails; the node stops and is restarted",
    "full": "a disk is full for a while",
    "voters": "controllers join and leave the quorum; a disk is wiped and its node joins as a new voter",
    "brokers": "brokers join, leave and are unregistered",
}

LOSE_POWER = frozenset({"power", "moment", "late"})
"""The faults that may lose unsynced writes."""


class Layout(msgspec.Struct, frozen=True):
    """Node ids. An id in both lists is a combined node; spares exist from the start and may join later."""

    controllers: tuple[int, ...]
    brokers: tuple[int, ...]
    spare_controllers: tuple[int, ...] = ()
    spare_brokers: tuple[int, ...] = ()
    static_voters: bool = False

    @property
    def ids(self) -> list[int]:
        return sorted({*self.controllers, *self.brokers, *self.spare_controllers, *self.spare_brokers})

    def describe(self) -> str:
        both = [node for node in self.controllers if node in self.brokers]
        how = "static" if self.static_voters else "dynamic"
        named = f"controllers {list(self.controllers)} (voters {how}), brokers {list(self.brokers)}"
        return named + (f", both {both}" if both else "")


class PlannedFault(msgspec.Struct, frozen=True):
    kind: str
    at_ms: int
    length_ms: int
    draw: int
    """Seed of what is decided when the fault happens, such as the nodes it affects."""


class Options(msgspec.Struct, frozen=True):
    """Choices of the user; None leaves them to the seed."""

    minutes: float = 0.5
    layout: Layout | None = None
    faults: Sequence[str] | None = None
    configs: Mapping[str, str] = msgspec.field(default_factory=dict)
    """Override those that the seed draws."""
    producers: int | None = None


class Plan(msgspec.Struct, frozen=True):
    seed: int
    layout: Layout
    configs: Mapping[str, str]
    weather: Weather
    faults: tuple[PlannedFault, ...]
    safety_ms: int
    drift: bool = False
    stepped_chance: float = 0.05
    clients: int = 2
    pace_ms: int = 300
    producers: int = 0
    features: Mapping[str, int] = msgspec.field(default_factory=dict)

    @property
    def loses_power(self) -> bool:
        return any(fault.kind in LOSE_POWER for fault in self.faults)

    def describe(self) -> str:
        lines = [f"seed {self.seed}: {self.layout.describe()}; {self.safety_ms / 1000:g} s, {self.clients} clients"]
        lines[0] += f", {self.producers} producers"
        lines += [f"  {each.at_ms / 1000:8.3f} s  {each.kind} for {each.length_ms / 1000:g} s" for each in self.faults]
        return "\n".join(lines)


def draw_plan(seed: int, options: Options | None = None) -> Plan:
    """Each part has its own random generator, so that an option for one part does not change the others."""
    options = options or Options()
    safety_ms = round(options.minutes * 60_000)
    kinds = _draw_kinds(Random(f"{seed}/kinds"), options.faults)
    random = Random(f"{seed}/run")
    producers = Random(f"{seed}/producers").randint(0, 1) if options.producers is None else options.producers
    return Plan(
        seed,
        options.layout or draw_layout(Random(f"{seed}/layout")),
        {**_draw_configs(Random(f"{seed}/settings")), **options.configs},
        _draw_weather(Random(f"{seed}/weather")),
        _draw_faults(Random(f"{seed}/faults"), [kind for kind in kinds if kind != "drift"], safety_ms),
        safety_ms,
        drift="drift" in kinds,
        stepped_chance=random.choice((0.0, 0.0, 0.02)),
        clients=random.randint(1, 3),
        pace_ms=random.choice((150, 400, 1_000)),
        producers=producers,
        features={"eligible.leader.replicas.version": random.randint(0, 1)},
    )


def draw_layout(random: Random) -> Layout:
    shape = random.choices(("combined", "separate", "mixed", "five", "alone"), (5, 3, 2, 1, 1))[0]
    static = random.random() < 0.25
    match shape:
        case "combined":
            layout = Layout((1, 2, 3), (1, 2, 3))
        case "separate":
            layout = Layout((1, 2, 3), (11, 12))
        case "mixed":
            layout = Layout((1, 2, 3), (1, 11))
        case "five":
            layout = Layout((1, 2, 3, 4, 5), (1, 11))
        case _:
            layout = Layout((1,), (1, 11))
    if static:
        return replace(layout, static_voters=True, spare_brokers=(21,))
    return replace(layout, spare_controllers=(7, 8), spare_brokers=(21,))


def _draw_kinds(random: Random, wanted: Sequence[str] | None) -> list[str]:
    kinds = list(FAULTS) if wanted is None else list(wanted)
    if wanted is not None:
        return kinds
    return random.sample(kinds, random.randint(1, 5))


def _draw_faults(random: Random, kinds: list[str], safety_ms: int) -> tuple[PlannedFault, ...]:
    faults = []
    calm_ms = random.choice((500, 1_500, 4_000))
    at_ms = random.randint(0, 6_000)
    while kinds and at_ms < safety_ms:
        length_ms = random.choice((50, 300, 1_000, 3_000, 8_000)) * random.randint(50, 150) // 100
        faults.append(PlannedFault(random.choice(kinds), at_ms, length_ms, random.getrandbits(32)))
        at_ms += random.randint(0, 2 * calm_ms)
    return tuple(faults)


def _draw_weather(random: Random) -> Weather:
    return Weather(
        least_delay_us=20,
        most_delay_us=random.choice((100, 500, 3_000)),
        slow_chance=random.choice((0.0, 0.0, 0.01, 0.05)),
        slow_delay_us=random.choice((20_000, 200_000)),
        split_chance=random.choice((0.0, 0.1)),
    )


def _draw_configs(random: Random) -> dict[str, str]:
    """Configs that fit together: sessions are longer than heartbeat intervals, and request timeouts longer than the
    half second that a fetch may wait."""
    fetch_ms = random.choice((600, 1_000, 2_000))
    # A snapshot must be retained for as long as fetching it in pieces of this size takes.
    kept_bytes, piece_bytes = random.choice(((1_000, 1_048_576), (5_000, 1_000), (100_000, 300), (1_000_000, 64)))
    heartbeat_ms = random.choice((100, 300, 1_000))
    return {
        "controller.quorum.election.timeout.ms": str(random.choice((200, 500, 1_000))),
        "controller.quorum.fetch.timeout.ms": str(fetch_ms),
        "controller.quorum.election.backoff.max.ms": str(random.choice((100, 500))),
        "controller.quorum.request.timeout.ms": str(random.choice((1_000, 2_000))),
        "controller.quorum.fetch.max.bytes": str(random.choice((1, 300, 1_048_576))),
        "controller.quorum.fetch.snapshot.max.bytes": str(piece_bytes),
        "controller.quorum.append.linger.ms": str(random.choice((0, 5, 25))),
        "broker.heartbeat.interval.ms": str(heartbeat_ms),
        "broker.session.timeout.ms": str(heartbeat_ms * random.choice((3, 6))),
        "metadata.log.max.record.bytes.between.snapshots": str(random.choice((200, 1_000, 5_000, 1_000_000))),
        "metadata.log.max.snapshot.interval.ms": str(random.choice((300, 3_600_000, 3_600_000))),
        "internal.metadata.log.segment.bytes": str(random.choice((1_024, 4_096, 1_048_576))),
        "metadata.max.retention.bytes": str(kept_bytes),
        "metadata.max.idle.interval.ms": str(random.choice((0, 500))),
        "leader.imbalance.check.interval.seconds": str(random.choice((1, 300))),
        "replica.lag.time.max.ms": str(random.choice((1_500, 5_000, 30_000))),
        "replica.socket.timeout.ms": str(random.choice((1_500, 5_000))),
    }
