"""Quorums of several nodes on simulated machines, without brokers and controllers.

`History` records commits, the leader of each epoch, and what each node's image shows at each offset; it fails at once
when two nodes disagree.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from simulation.quorum_node import KEYS, OFTEN, PORT, TINY, QuorumNode, voter
from strandline.metadata.image import Image
from strandline.model.ids import Endpoint
from strandline.raft.disk.storage import StorageSettings
from strandline.raft.machine.settings import QuorumSettings
from strandline.raft.machine.voters import Voter, VoterSet
from strandline.raft.shell.driver import SnapshotSettings
from strandline.simulation.world import Simulation


class History:
    """What has happened on all nodes."""

    def __init__(self) -> None:
        self.written = 0
        self.acked: dict[int, int] = {}
        """Number → the offset it was committed at."""
        self.leaders: dict[int, int] = {}
        self.images: dict[int, tuple[tuple[str, str], ...]] = {}

    def on_leading(self, node: int, epoch: int) -> None:
        known = self.leaders.setdefault(epoch, node)
        assert known == node, f"epoch {epoch} is led by {known} and by {node}"

    def on_commit(self, node: int, image: Image) -> None:
        shown = tuple(sorted(image.committed.configs(2, "r").items()))
        known = self.images.setdefault(image.committed.offset, shown)
        assert known == shown, f"node {node} shows at offset {image.committed.offset} {shown}, others saw {known}"

    def check_acknowledged(self, image: Image) -> None:
        """Each key has its latest acknowledged number, or a later one."""
        shown = image.committed.configs(2, "r")
        for number, offset in self.acked.items():
            value = shown.get(str(number % KEYS))
            assert (value is not None and int(value) >= number) or self._overwritten(number), (
                f"{number} was committed at offset {offset}, and key {number % KEYS} shows {value}"
            )

    def _overwritten(self, number: int) -> bool:
        """A later number may have been committed earlier, by another leader."""
        offset = self.acked[number]
        return any(other % KEYS == number % KEYS and at > offset for other, at in self.acked.items())


class QuorumCluster:
    """Controllers and observers of one quorum."""

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
        self.history = History()
        self.is_writing = True
        named = VoterSet(tuple(voter(number) for number in voters))
        plain = VoterSet(tuple(Voter(each.id, listeners=each.listeners) for each in named.voters))
        self.dynamic = named if dynamic else None
        self.configured = None if dynamic else plain
        self.bootstrap = [Endpoint(f"node{number}", PORT) for number in voters] if dynamic else []
        self.nodes = {
            number: QuorumNode(self, number, storage=storage, policy=policy, is_controller=number in voters)
            for number in (*voters, *observers)
        }

    def boot(self) -> None:
        for node in self.nodes.values():
            if not node.is_running:
                node.boot()

    def ready_nodes(self) -> list[QuorumNode]:
        return [node for node in self.nodes.values() if node.is_running and node.is_ready]

    def leader(self) -> QuorumNode | None:
        leading = [node for node in self.ready_nodes() if node.quorum.is_leader]
        return max(leading, key=lambda node: node.quorum.epoch, default=None)

    async def until_elected(self, within_s: float = 20) -> QuorumNode:
        async with asyncio.timeout(within_s):
            while (node := self.leader()) is None:
                await asyncio.sleep(0.005)
        return node

    async def until_written(self, more: int, within_s: float = 60) -> None:
        due = len(self.history.acked) + more
        async with asyncio.timeout(within_s):
            while len(self.history.acked) < due:
                await asyncio.sleep(0.005)

    async def until_settled(self, within_s: float = 60) -> None:
        """Until all nodes have the same log and image, with everything that was acknowledged. Stops writes
        meanwhile."""
        self.is_writing = False
        try:
            async with asyncio.timeout(within_s):
                while not self._is_settled():
                    self.check_running()
                    self.boot()
                    await asyncio.sleep(0.05)
        except TimeoutError:
            raise AssertionError("not settled: " + "; ".join(self.describe())) from None
        for node in self.nodes.values():
            self.history.check_acknowledged(node.image)
        self.is_writing = True

    def _is_settled(self) -> bool:
        leader = self.leader()
        if leader is None or len(self.ready_nodes()) < len(self.nodes):
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
            if node.is_running and node.is_ready
            else f"node {node.number} is down"
            for node in self.nodes.values()
        ]

    def check_running(self) -> None:
        """Raises the error of a node that stopped by itself."""
        for node in self.nodes.values():
            if node.task is not None and node.task.done() and not node.task.cancelled():
                error = node.task.exception()
                if error is not None:
                    raise error
