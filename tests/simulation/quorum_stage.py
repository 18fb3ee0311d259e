"""Quorums of several nodes on simulated machines, and what happened to them.

What a leader was told is committed is kept in a ledger that no node can see, with whoever led which epoch and what each
image showed at each offset. `Ledger` complains at once when two of them disagree.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from simulation.quorum_node import KEYS, OFTEN, PORT, TINY, Node, voter
from strandline.metadata.image import Image
from strandline.model.ids import Endpoint
from strandline.raft.disk.storage import StorageSettings
from strandline.raft.machine.settings import QuorumSettings
from strandline.raft.machine.voters import Voter, VoterSet
from strandline.raft.shell.driver import SnapshotSettings
from strandline.simulation.world import Simulation


class Ledger:
    """What happened, as nobody in the cluster can know it."""

    def __init__(self) -> None:
        self.written = 0
        self.acked: dict[int, int] = {}
        """Number → the offset it was committed at."""
        self.leaders: dict[int, int] = {}
        self.images: dict[int, tuple[tuple[str, str], ...]] = {}

    def on_leading(self, node: int, epoch: int) -> None:
        known = self.leaders.setdefault(epoch, node)
        assert known == node, f"epoch {epoch} is led by {known} and by {node}"

    def on_committed(self, node: int, image: Image) -> None:
        shown = tuple(sorted(image.committed.configs(2, "r").items()))
        known = self.images.setdefault(image.committed.offset, shown)
        assert known == shown, f"node {node} shows at offset {image.committed.offset} {shown}, others saw {known}"

    def check_kept(self, image: Image) -> None:
        """Of each key the latest number that was acknowledged, or a later one."""
        shown = image.committed.configs(2, "r")
        for number, offset in self.acked.items():
            value = shown.get(str(number % KEYS))
            assert (value is not None and int(value) >= number) or self._overwritten(number), (
                f"{number} was committed at offset {offset}, and key {number % KEYS} shows {value}"
            )

    def _overwritten(self, number: int) -> bool:
        """A number that was given out later may have been committed earlier, by another leader."""
        offset = self.acked[number]
        return any(other % KEYS == number % KEYS and at > offset for other, at in self.acked.items())


class Stage:
    """A simulation with a quorum in it."""

    def __init__(
        self,
        simulation: Simulation,
        voters: Sequence[int] = (1, 2, 3),
        *,
        observers: Sequence[int] = (),
        dynamic: bool = False,
        settings: QuorumSettings | None = None,
        storage: StorageSettings = TINY,
        policy: SnapshotSettings = OFTEN,
    ) -> None:
        self.simulation = simulation
        self.settings = settings or QuorumSettings()
        self.ledger = Ledger()
        self.is_writing = True
        named = VoterSet(tuple(voter(number) for number in voters))
        plain = VoterSet(tuple(Voter(each.id, listeners=each.listeners) for each in named.voters))
        self.dynamic = named if dynamic else None
        self.configured = None if dynamic else plain
        self.bootstrap = [Endpoint(f"node{number}", PORT) for number in voters] if dynamic else []
        self.nodes = {
            number: Node(self, number, storage=storage, policy=policy, is_controller=number in voters)
            for number in (*voters, *observers)
        }

    def boot(self) -> None:
        for node in self.nodes.values():
            if not node.is_alive:
                node.boot()

    def living(self) -> list[Node]:
        return [node for node in self.nodes.values() if node.is_alive and node.is_ready]

    def leader(self) -> Node | None:
        leading = [node for node in self.living() if node.quorum.is_leader]
        return max(leading, key=lambda node: node.quorum.epoch, default=None)

    async def until_led(self, within_s: float = 20) -> Node:
        async with asyncio.timeout(within_s):
            while (node := self.leader()) is None:
                await asyncio.sleep(0.005)
        return node

    async def until_written(self, more: int, within_s: float = 60) -> None:
        due = len(self.ledger.acked) + more
        async with asyncio.timeout(within_s):
            while len(self.ledger.acked) < due:
                await asyncio.sleep(0.005)

    async def until_settled(self, within_s: float = 60) -> None:
        """Everybody has the same, and all that was acknowledged is in it. Nobody writes meanwhile."""
        self.is_writing = False
        try:
            async with asyncio.timeout(within_s):
                while not self._is_settled():
                    self.check_alive()
                    self.boot()
                    await asyncio.sleep(0.05)
        except TimeoutError:
            raise AssertionError("not settled: " + "; ".join(self.describe())) from None
        for node in self.nodes.values():
            self.ledger.check_kept(node.image)
        self.is_writing = True

    def _is_settled(self) -> bool:
        leader = self.leader()
        if leader is None or len(self.living()) < len(self.nodes):
            return False
        end_offset = leader.quorum.end_offset
        return all(
            node.quorum.high_watermark.value == node.storage.log.log_end_offset == end_offset
            and node.image.committed.offset == end_offset
            and node.quorum.leader.id == leader.number
            for node in self.nodes.values()
        )

    def describe(self) -> list[str]:
        return [
            f"node {node.number}: {node.quorum.leader} hw {node.quorum.high_watermark.value} "
            f"log {node.storage.log.log_start_offset}..{node.storage.log.log_end_offset} "
            f"{type(node.quorum._replica.role).__name__}"
            if node.is_alive and node.is_ready
            else f"node {node.number} is down"
            for node in self.nodes.values()
        ]

    def check_alive(self) -> None:
        """A node that gave up by itself says why."""
        for node in self.nodes.values():
            if node.task is not None and node.task.done() and not node.task.cancelled():
                error = node.task.exception()
                if error is not None:
                    raise error
