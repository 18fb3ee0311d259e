"""A `memory_cluster` in which messages and syncs take time, to measure how long a quorum is without a leader."""

from __future__ import annotations

import heapq
from random import Random

from strandline.raft.machine.effects import Effect, Lead, Persist
from strandline.raft.machine.settings import QuorumSettings
from strandline.raft.machine.voters import VoterSet
from unit.raft.memory_cluster import Cluster, Envelope, Node, voter


class TimedCluster(Cluster):
    """Messages take 1 to 4 ms, syncs 2 to 15; a node sends nothing while it syncs its quorum-state."""

    def __init__(self, seed: int, voters: int, settings: QuorumSettings | None = None) -> None:
        super().__init__(seed, settings=settings)
        self.draw = Random(seed)
        self.led: list[tuple[int, int]] = []
        """(time, node id) of each Lead effect."""
        self.silent: list[int] = []
        self._schedule: list[tuple[int, int, Envelope | Node]] = []
        self._count = 0
        self._busy_until: dict[int, int] = {}
        self._syncing: dict[int, None] = {}
        known = VoterSet(tuple(voter(node_id) for node_id in range(1, voters + 1)))
        for each in known.voters:
            self.add_node(each, known, 1)

    @property
    def leader(self) -> Node:
        (leader,) = [node for node in self.nodes.values() if node.is_up and node.machine.is_leader]
        return leader

    def on_effect(self, node: Node, effect: Effect) -> None:
        if isinstance(effect, Lead):
            self.led.append((self.now_ms, node.id))
        elif isinstance(effect, Persist):
            self._busy_until[node.id] = self.now_ms + self.draw.randint(2, 15)

    def run_until_led(self, by_others_than: int = -1) -> int:
        """Returns how long it takes, in ms."""
        began_ms = self.now_ms
        self.led.clear()
        while not [node_id for _, node_id in self.led if node_id != by_others_than]:
            self._step(self.now_ms + 60_000)
        return self.now_ms - began_ms

    def run(self, ms: int) -> None:
        end_ms = self.now_ms + ms
        while self.now_ms < end_ms:
            self._step(end_ms)

    def _step(self, end_ms: int) -> None:
        self._plan()
        deadline_ms = self.next_deadline_ms()
        if (
            self._schedule
            and (deadline_ms is None or self._schedule[0][0] <= deadline_ms)
            and self._schedule[0][0] <= end_ms
        ):
            at_ms, _, what = heapq.heappop(self._schedule)
            self.now_ms = max(self.now_ms, at_ms)
            self._do(what)
        elif deadline_ms is not None and deadline_ms <= end_ms:
            self.advance_time(deadline_ms)
        else:
            self.now_ms = end_ms

    def _plan(self) -> None:
        for envelope in self.envelopes:
            speaker = envelope.target if envelope.is_response else envelope.sender.id
            leaves_ms = max(self.now_ms, self._busy_until.get(speaker, 0))
            self._put(leaves_ms + self.draw.randint(1, 4), envelope)
        self.envelopes.clear()
        for node in self.nodes.values():
            if node.is_up and node.syncing_to is not None and node.id not in self._syncing:
                self._syncing[node.id] = None
                self._put(self.now_ms + self.draw.randint(2, 15), node)

    def _put(self, at_ms: int, what: Envelope | Node) -> None:
        self._count += 1
        heapq.heappush(self._schedule, (at_ms, self._count, what))

    def _do(self, what: Envelope | Node) -> None:
        if isinstance(what, Node):
            self._syncing.pop(what.id, None)
            what.finish_sync()
        elif (what.sender.id in self.silent) == (what.target in self.silent):
            self.envelopes.append(what)
            self.deliver(what)
