"""Machines with nodes on them: formatted, started, killed, and found again by who leads.

    with Simulation(seed=7) as simulation:
        cluster = Cluster(simulation, draw_plan(7), Chronicle(simulation.loop))
        simulation.run(scenario(cluster))       # cluster.start(); cluster.member(1).kill(); …

The nodes are the ones that production runs. What the simulation knows of them it reads: their files from the machine's
volume, their memory from the attributes that any part of a node may read.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from random import Random

from strandline.model.errors import NodeFault
from strandline.model.ids import Uuid, random_uuid
from strandline.node.config import Config
from strandline.node.node import Node
from strandline.node.storage import FormatPlan, StorageError, format_storage
from strandline.raft.machine.voters import Voter
from strandline.runtime.world import World
from strandline.simulation.cluster.chronicle import Chronicle
from strandline.simulation.cluster.committed_metadata import CommittedMetadata
from strandline.simulation.cluster.metadata_files import MetadataFiles
from strandline.simulation.cluster.node_state import is_active
from strandline.simulation.cluster.plan import Layout, Plan
from strandline.simulation.cluster.violation import Violation
from strandline.simulation.disk import SimDisk
from strandline.simulation.nodes import CLUSTER_ID, PORT, TINY
from strandline.simulation.process import Process
from strandline.simulation.volume import Volume
from strandline.simulation.world import Machine, Simulation

_GLANCE_MS = 50
FORMATTED_AT_MS = 1_800_000_000_000


def machine_name(node_id: int) -> str:
    return f"node{node_id}"


class Member:
    """One node id: the machine it has, the node that runs there now, and what may be expected of it."""

    def __init__(self, cluster: Cluster, node_id: int, machine: Machine, config: Config) -> None:
        self.id = node_id
        self.machine = machine
        self.config = config
        self.files = MetadataFiles(machine)
        self.node: Node | None = None
        self.doubtful = False
        """This disk may yet become a voter, by a request that nobody knows the end of."""
        self.was_wiped = False
        self.stopping = False
        self.paused_us = -1
        """When it last went on after a pause."""
        self.wanted = False
        """It is to run: healing starts it again."""
        self._excused: Process | None = None
        self.directory_id: Uuid
        self._cluster = cluster
        self._stop = asyncio.Event()

    @property
    def name(self) -> str:
        return self.machine.name

    @property
    def running(self) -> bool:
        return self.machine.process is not None and self.machine.process.alive

    @property
    def paused(self) -> bool:
        return self.machine.process is not None and self.machine.process.alive and self.machine.process.paused

    def excuse(self) -> None:
        """A fault of its disk may make the process that runs now stop by itself."""
        self._excused = self.machine.process

    @property
    def excused(self) -> bool:
        return self._excused is not None and self.machine.process is self._excused

    def boot(self) -> None:
        self.wanted = True
        self._stop = asyncio.Event()
        self.stopping = False
        self._cluster.note(self, "starts")
        task = self.machine.boot(self._program)
        task.add_done_callback(self._ended)
        assert self.machine.process is not None
        if self.machine.volume.capacity_bytes is not None:
            self.excuse()
        self._cluster.booted(self, self.machine.process)

    async def _program(self, world: World) -> None:
        self.node = Node(self.config, world)
        try:
            await self.node.run(self._stop)
        finally:
            world.close()

    def _ended(self, task: asyncio.Task[None]) -> None:
        error = None if task.cancelled() else task.exception()
        if error is None:
            self._cluster.note(self, "has stopped")
        elif isinstance(error, (NodeFault, StorageError)):
            self._cluster.gave_up(self, error)
        else:
            raise Violation("error", f"{self.name} failed: {error!r}") from error

    def kill(self) -> None:
        self._cluster.note(self, "is killed")
        self.machine.kill()

    def lose_power(self) -> None:
        self._cluster.note(self, "loses power")
        self.machine.lose_power()

    def stop(self) -> None:
        """In good order: asked for now, done some time later."""
        self._cluster.note(self, "is asked to stop")
        self.stopping = True
        self._stop.set()

    def pause(self) -> None:
        self._cluster.note(self, "is paused")
        self.machine.pause()

    def resume(self) -> None:
        self._cluster.note(self, "goes on")
        self.paused_us = self._cluster.simulation.loop.now_us
        self.machine.resume()

    def wipe(self, random: Random) -> None:
        """A new disk under the same node id, formatted to join a cluster that exists."""
        self._cluster.note(self, "gets a new disk")
        self.machine.volume = Volume()
        self.doubtful = False
        self.was_wiped = True
        self.format(random, FormatPlan(no_initial_controllers=self.config.node.is_controller))

    def format(self, random: Random, plan: FormatPlan) -> None:
        disk = SimDisk(self.machine.volume)
        report = format_storage(self.config, CLUSTER_ID, plan, disk=disk, random=random, wall_ms=FORMATTED_AT_MS)
        (self.directory_id,) = report.formatted.values()


class Cluster:
    def __init__(self, simulation: Simulation, plan: Plan, chronicle: Chronicle) -> None:
        self.simulation = simulation
        self.plan = plan
        self.chronicle = chronicle
        self.by_process: dict[Process, Member] = {}
        self.members: dict[int, Member] = {}
        self.on_boot: Callable[[Member], None] | None = None
        self.ledger = CommittedMetadata()
        self.clients: list[str] = []
        """Names of the machines that clients run on."""
        self.membership_changes = False
        """One at a time (see membership.py)."""
        self.admins = 0
        self._rush_until_us = 0
        self._random = simulation.random("cluster")
        self._make_members()

    def _make_members(self) -> None:
        layout, random = self.plan.layout, self._random
        for node_id in layout.ids:
            machine = self.simulation.machine(
                machine_name(node_id),
                clock_rate=random.uniform(0.9, 1.1) if self.plan.drift else 1.0,
                wall_skew_ms=random.randint(-5_000, 5_000) if self.plan.drift else 0,
                stepped_chance=self.plan.stepped_chance,
            )
            self.members[node_id] = Member(self, node_id, machine, member_config(layout, node_id, self.plan.settings))
        directory_ids = {node_id: random_uuid(random) for node_id in layout.controllers}
        first = ",".join(f"{controller_address(node_id)}:{directory_ids[node_id]}" for node_id in layout.controllers)
        for member in self.members.values():
            member.format(random, self._format_plan(member, first))

    def _format_plan(self, member: Member, first_controllers: str) -> FormatPlan:
        layout = self.plan.layout
        dynamic = member.config.node.is_controller and not layout.static_voters
        return FormatPlan(
            initial_controllers=first_controllers if dynamic and member.id in layout.controllers else None,
            no_initial_controllers=dynamic and member.id not in layout.controllers,
            features=self.plan.features,
        )

    def start(self) -> None:
        """Everybody but the spares, at once."""
        for node_id in sorted({*self.plan.layout.controllers, *self.plan.layout.brokers}):
            self.members[node_id].boot()

    def member(self, node_id: int) -> Member:
        return self.members[node_id]

    @property
    def controller_ids(self) -> list[int]:
        """Spares included."""
        return [member.id for member in self.members.values() if member.config.node.is_controller]

    def voters(self) -> tuple[Voter, ...]:
        """As committed."""
        if self.ledger.voters is not None:
            return self.ledger.voters.voters
        return tuple(Voter(node_id, self.members[node_id].directory_id) for node_id in self.plan.layout.controllers)

    def named(self, machine: str) -> Member | None:
        return next((member for member in self.members.values() if member.name == machine), None)

    def running(self) -> list[Member]:
        return [member for member in self.members.values() if member.running]

    def leader(self) -> Member | None:
        """Who leads the quorum, as far as it knows itself; the youngest epoch if there are several."""
        leading = [
            (member.node.quorum.epoch, member.id)
            for member in self.running()
            if member.node is not None and member.node.quorum is not None and is_active(member.node.quorum)
        ]
        return self.members[max(leading)[1]] if leading else None

    def brokers(self) -> list[Member]:
        return [member for member in self.members.values() if member.config.node.is_broker]

    def bootstrap(self) -> str:
        return ",".join(f"{member.name}:{PORT}" for member in self.brokers())

    def rush(self, length_ms: int) -> None:
        """Clients are in a hurry for so long."""
        self._rush_until_us = max(self._rush_until_us, self.simulation.loop.now_us + length_ms * 1000)

    async def rest(self, random: Random, at_most_ms: int, *, rushed_ms: int) -> None:
        """What clients do between two requests: for a while, or hardly at all when there is a rush."""
        left_ms = random.randint(1, at_most_ms)
        while left_ms > 0:
            if self.simulation.loop.now_us < self._rush_until_us:
                left_ms = min(left_ms, random.randint(1, rushed_ms))
            await asyncio.sleep(min(left_ms, _GLANCE_MS) / 1000)
            left_ms -= _GLANCE_MS

    def note(self, member: Member, what: str) -> None:
        self.chronicle.note(member.name, what)

    def booted(self, member: Member, process: Process) -> None:
        self.by_process[process] = member
        if self.on_boot is not None:
            self.on_boot(member)

    def gave_up(self, member: Member, error: BaseException) -> None:
        self.chronicle.note(member.name, f"gives up: {error}")
        if not member.excused:
            raise Violation("liveness", f"{member.name} has stopped by itself: {error}")


def controller_address(node_id: int) -> str:
    return f"{node_id}@{machine_name(node_id)}:{PORT + 1}"


def member_config(layout: Layout, node_id: int, settings: Mapping[str, str]) -> Config:
    machine = machine_name(node_id)
    is_controller = node_id in (*layout.controllers, *layout.spare_controllers)
    is_broker = node_id in (*layout.brokers, *layout.spare_brokers)
    roles = ["broker"] * is_broker + ["controller"] * is_controller
    listeners = [f"PLAINTEXT://{machine}:{PORT}"] * is_broker + [f"CONTROLLER://{machine}:{PORT + 1}"] * is_controller
    known = layout.controllers if layout.static_voters else (*layout.controllers, *layout.spare_controllers)
    if layout.static_voters:
        quorum = {"controller.quorum.voters": ",".join(controller_address(each) for each in known)}
    else:
        servers = [controller_address(each).partition("@")[2] for each in known]
        quorum = {"controller.quorum.bootstrap.servers": ",".join(servers)}
    return Config.of(
        {
            "process.roles": ",".join(roles),
            "node.id": str(node_id),
            "listeners": ",".join(listeners),
            "controller.listener.names": "CONTROLLER",
            "log.dirs": "/data",
            **TINY,
            **quorum,
            **settings,
        },
        hostname=machine,
        where=f"{machine}.properties",
    )
