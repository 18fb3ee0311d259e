"""The nodes of a simulated cluster on their machines: formatted, started, killed, and looked up by role.

    with Simulation(seed=7) as simulation:
        cluster = Cluster(simulation, draw_plan(7), Chronicle(simulation.loop))
        simulation.run(scenario(cluster))       # cluster.start(); cluster.member(1).kill(); …

The nodes are unmodified. The simulation reads their files from the machine's volume and their memory through public
attributes (node_state.py, replica_state.py).
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
from strandline.raft.shell.driver import Quorum
from strandline.runtime.world import World
from strandline.simulation.cluster.chronicle import Chronicle
from strandline.simulation.cluster.committed_metadata import CommittedMetadata
from strandline.simulation.cluster.metadata_files import MetadataFiles
from strandline.simulation.cluster.plan import Layout, Plan
from strandline.simulation.cluster.violation import Violation
from strandline.simulation.disk import SimDisk
from strandline.simulation.nodes import CLUSTER_ID, PORT, TINY
from strandline.simulation.process import Process
from strandline.simulation.volume import Volume
from strandline.simulation.world import Machine, Simulation

_PAUSE_STEP_MS = 50
FORMATTED_AT_MS = 1_800_000_000_000


def machine_name(node_id: int) -> str:
    return f"node{node_id}"


class Member:
    """One node id: its machine, the node that runs there now, and the simulation's expectations of it."""

    def __init__(self, cluster: Cluster, node_id: int, machine: Machine, config: Config) -> None:
        self.id = node_id
        self.machine = machine
        self.config = config
        self.files = MetadataFiles(machine)
        self.node: Node | None = None
        self.may_become_voter = False
        """An AddRaftVoter request for this directory has an unknown outcome."""
        self.was_wiped = False
        self.stopping = False
        self.resumed_us = -1
        """The time at which the process was last resumed after a pause."""
        self.should_run = False
        """Healing restarts the node."""
        self._failure_allowed: Process | None = None
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

    def allow_failure(self) -> None:
        """A disk fault may make the current process stop by itself."""
        self._failure_allowed = self.machine.process

    @property
    def failure_allowed(self) -> bool:
        return self._failure_allowed is not None and self.machine.process is self._failure_allowed

    def boot(self) -> None:
        self.should_run = True
        self._stop = asyncio.Event()
        self.stopping = False
        self._cluster.note(self, "starts")
        task = self.machine.boot(self._program)
        task.add_done_callback(self._ended)
        assert self.machine.process is not None
        if self.machine.volume.capacity_bytes is not None:
            self.allow_failure()
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
            self._cluster.stopped_by_itself(self, error)
        else:
            raise Violation("error", f"{self.name} failed: {error!r}") from error

    def kill(self) -> None:
        self._cluster.note(self, "is killed")
        self.machine.kill()

    def lose_power(self) -> None:
        self._cluster.note(self, "loses power")
        self.machine.lose_power()

    def stop(self) -> None:
        """Requests a clean stop, which completes some time later."""
        self._cluster.note(self, "is stopping")
        self.stopping = True
        self._stop.set()

    def pause(self) -> None:
        self._cluster.note(self, "is paused")
        self.machine.pause()

    def resume(self) -> None:
        self._cluster.note(self, "resumes")
        self.resumed_us = self._cluster.simulation.loop.now_us
        self.machine.resume()

    def wipe(self, random: Random) -> None:
        """Replaces the disk by a new one, formatted to join the existing cluster."""
        self._cluster.note(self, "gets a new disk")
        self.machine.volume = Volume()
        self.may_become_voter = False
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
        self.metadata = CommittedMetadata()
        self.clients: list[str] = []
        """Names of the machines that clients run on."""
        self.membership_changing = False
        """One change at a time (see membership_changes.py)."""
        self.admins = 0
        self._burst_until_us = 0
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
            self.members[node_id] = Member(self, node_id, machine, member_config(layout, node_id, self.plan.configs))
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
        """Boots all nodes except the spares."""
        for node_id in sorted({*self.plan.layout.controllers, *self.plan.layout.brokers}):
            self.members[node_id].boot()

    def member(self, node_id: int) -> Member:
        return self.members[node_id]

    @property
    def controller_ids(self) -> list[int]:
        """Including spares."""
        return [member.id for member in self.members.values() if member.config.node.is_controller]

    def voters(self) -> tuple[Voter, ...]:
        """The committed voter set."""
        if self.metadata.voters is not None:
            return self.metadata.voters.voters
        return tuple(Voter(node_id, self.members[node_id].directory_id) for node_id in self.plan.layout.controllers)

    def member_on(self, machine: str) -> Member | None:
        return next((member for member in self.members.values() if member.name == machine), None)

    def running(self) -> list[Member]:
        return [member for member in self.members.values() if member.running]

    def leader(self) -> Member | None:
        """The active controller; the one of the latest epoch if several nodes consider themselves active."""
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

    def burst(self, length_ms: int) -> None:
        """Lets clients send at their highest rate for `length_ms`."""
        self._burst_until_us = max(self._burst_until_us, self.simulation.loop.now_us + length_ms * 1000)

    async def pause_client(self, random: Random, at_most_ms: int, *, burst_ms: int) -> None:
        """The pause of a client between two requests: at most `burst_ms` during a burst."""
        left_ms = random.randint(1, at_most_ms)
        while left_ms > 0:
            if self.simulation.loop.now_us < self._burst_until_us:
                left_ms = min(left_ms, random.randint(1, burst_ms))
            await asyncio.sleep(min(left_ms, _PAUSE_STEP_MS) / 1000)
            left_ms -= _PAUSE_STEP_MS

    def note(self, member: Member, what: str) -> None:
        self.chronicle.note(member.name, what)

    def booted(self, member: Member, process: Process) -> None:
        self.by_process[process] = member
        if self.on_boot is not None:
            self.on_boot(member)

    def stopped_by_itself(self, member: Member, error: BaseException) -> None:
        self.chronicle.note(member.name, f"stops by itself: {error}")
        if not member.failure_allowed:
            raise Violation("liveness", f"{member.name} has stopped by itself: {error}")


def is_active(quorum: Quorum) -> bool:
    """Whether the controller of this node is the active one."""
    return quorum.replica is not None and quorum.is_leader


def controller_address(node_id: int) -> str:
    return f"{node_id}@{machine_name(node_id)}:{PORT + 1}"


def member_config(layout: Layout, node_id: int, configs: Mapping[str, str]) -> Config:
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
            **configs,
        },
        hostname=machine,
        where=f"{machine}.properties",
    )
