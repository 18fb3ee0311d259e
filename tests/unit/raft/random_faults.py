"""A quorum under random faults, drawn from one seed: messages are lost, duplicated and late, nodes are killed at any
effect, voters are added and removed. Afterwards the faults end, and the quorum must recover.
"""

from __future__ import annotations

from copy import copy
from random import Random

from strandline.protocol.messages.quorum import AddRaftVoterRequest, RemoveRaftVoterRequest
from strandline.raft.machine.effects import Effect
from strandline.raft.machine.messages import listeners_to_wire
from strandline.raft.machine.settings import QuorumSettings
from strandline.raft.machine.voters import VoterSet
from unit.raft.invariants import Invariants
from unit.raft.memory_cluster import CLUSTER_ID, Cluster, Node, PendingRequest, configured, voter

_RECOVERY_MS = 30_000


class RandomFaults(Cluster):
    def __init__(self, seed: int) -> None:
        draw = Random(seed)
        settings = QuorumSettings(
            fetch_snapshot_max_bytes=draw.choice([100, 400, 100_000]), auto_join=draw.random() < 0.3
        )
        super().__init__(seed, settings, bootstrap=(1, 2, 3))
        self.batches_per_fetch = draw.choice([1, 2, 8])
        self.draw = draw
        self.invariants = Invariants()
        self.partitioned: dict[tuple[int, int], None] = {}
        """(from, to) of the partitioned links."""
        self.has_faults = True
        self.has_lost_a_disk = False
        self.disks = dict.fromkeys(range(1, 7), 1)
        self.pending: list[PendingRequest] = []
        self._written = 0
        self._set_up()

    def _set_up(self) -> None:
        count = self.draw.choice([1, 2, 3, 3, 3, 5])
        first = [voter(node_id) for node_id in range(1, count + 1)]
        self.is_dynamic = self.draw.random() < 0.75
        kraft_version = 1 if self.is_dynamic else 0
        voters = VoterSet(tuple(first)) if self.is_dynamic else configured(first)
        for node_id in range(1, count + 2):
            is_voter = node_id <= count
            known = voters if is_voter or not self.is_dynamic else VoterSet(())
            self.add_node(voter(node_id), known, kraft_version if is_voter or not self.is_dynamic else 0)
        observers_know = VoterSet(()) if self.is_dynamic else voters
        self.add_node(voter(6), observers_know, 0, is_controller=False)
        self._formatted = {node.id: (node.log.voters, node.log.kraft_version) for node in self.nodes.values()}
        for node in self.nodes.values():
            node.start()

    def on_effect(self, node: Node, effect: Effect) -> None:
        if self.has_faults and self.draw.random() < 0.002:
            self._kill(node)
            return
        self.invariants.before_effect(node, effect)

    def on_performed(self, node: Node) -> None:
        self.invariants.after_input(node)

    def run_with_faults(self, steps: int) -> None:
        speed = self.draw.choice([1, 1, 3, 10])
        actions = [
            (self._deliver, 60),
            (self._finish_sync, 25),
            (self._pass_time, 16 / speed),
            (self._write, 8),
            (self._lose_message, 4),
            (self._duplicate_message, 3),
            (self._start_one, 3),
            (self._kill_one, 1),
            (self._change_voters, 1),
            (self._take_snapshot, 1),
            (self._partition_or_heal, 1),
            (self._resign, 0.3),
            (self._replace_disk, 0.05),
        ]
        for action in self.draw.choices([each for each, _ in actions], [weight for _, weight in actions], k=steps):
            action()

    def recover_from_faults(self) -> None:
        """Without faults, within half a minute, there is one leader, and all nodes have the same log."""
        self.has_faults = False
        self.partitioned.clear()
        for node in self.nodes.values():
            if not node.is_up:
                node.start()
        end_ms = self.now_ms + _RECOVERY_MS
        for node in self._run_without_faults(end_ms - 10_000):
            if node.machine.is_leader:
                node.append(["recovered"])
        self._run_without_faults(end_ms)
        leaders = [node for node in self.nodes.values() if node.machine.is_leader]
        assert len(leaders) == 1, f"not exactly one leader: {[node.id for node in leaders]}"
        ends = {node.id: (node.log.end_offset, node.committed) for node in self.nodes.values()}
        end = leaders[0].log.end_offset
        assert set(ends.values()) == {(end, end)}, f"not all nodes have caught up: {ends}"
        assert leaders[0].applied[-1][2] == "recovered" or len(self.invariants.committed) == end

    def _run_without_faults(self, end_ms: int) -> list[Node]:
        busy = 0
        while True:
            busy += 1
            assert busy < 50_000, "the quorum does not become idle"
            syncing = next((node for node in self.nodes.values() if node.syncing_to is not None), None)
            if self.envelopes:
                self.deliver(self.envelopes[0])
            elif syncing is not None:
                syncing.finish_sync()
            else:
                deadline_ms = self.next_deadline_ms()
                if deadline_ms is None or deadline_ms > end_ms:
                    self.now_ms = end_ms
                    return list(self.nodes.values())
                self.advance_time(deadline_ms)

    def _deliver(self) -> None:
        if not self.envelopes:
            return
        envelope = self.draw.choice(self.envelopes[:20])
        link = (envelope.target, envelope.sender.id) if envelope.is_response else (envelope.sender.id, envelope.target)
        if link in self.partitioned:
            self.envelopes.remove(envelope)
        else:
            self.deliver(envelope)

    def _lose_message(self) -> None:
        if self.envelopes:
            envelope = self.draw.choice(self.envelopes)
            if self.draw.random() < 0.5:
                self.envelopes.remove(envelope)
            else:
                self.fail(envelope)

    def _duplicate_message(self) -> None:
        if self.envelopes:
            self.envelopes.append(copy(self.draw.choice(self.envelopes)))

    def _finish_sync(self) -> None:
        syncing = [node for node in self.nodes.values() if node.is_up and node.syncing_to is not None]
        if syncing:
            self.draw.choice(syncing).finish_sync()

    def _pass_time(self) -> None:
        deadline_ms = self.next_deadline_ms()
        if deadline_ms is not None and self.draw.random() < 0.7:
            self.advance_time(deadline_ms)
        else:
            self.advance_time(self.now_ms + self.draw.randrange(1, 400))

    def _write(self) -> None:
        node = self._a_leader()
        if node is not None:
            self._written += 1
            node.append([f"{node.id}:{self._written}"] * self.draw.randrange(1, 3))

    def _a_leader(self) -> Node | None:
        leaders = [node for node in self.nodes.values() if node.is_up and node.machine.is_leader]
        return self.draw.choice(leaders) if leaders else None

    def _kill_one(self) -> None:
        up = [node for node in self.nodes.values() if node.is_up]
        if up:
            self._kill(self.draw.choice(up))

    def _kill(self, node: Node) -> None:
        """A part of the unsynced records may have reached the disk."""
        node.kill(keep_unsynced=True)
        node.drop_unsynced(self.draw.randint(node.log.synced_end, node.log.end_offset))

    def _start_one(self) -> None:
        down = [node for node in self.nodes.values() if not node.is_up]
        if down:
            self.draw.choice(down).start()

    def _partition_or_heal(self) -> None:
        if self.partitioned and self.draw.random() < 0.6:
            self.partitioned.clear()
        else:
            some = self.draw.sample(list(self.nodes), self.draw.randrange(1, len(self.nodes)))
            both_ways = self.draw.random() < 0.7
            for one in some:
                for other in self.nodes:
                    if other not in some:
                        self.partitioned[one, other] = None
                        if both_ways:
                            self.partitioned[other, one] = None

    def _take_snapshot(self) -> None:
        up = [node for node in self.nodes.values() if node.is_up]
        if up:
            self.draw.choice(up).take_snapshot()

    def _resign(self) -> None:
        node = self._a_leader()
        if node is not None:
            node.perform(node.machine.resign(self.now_ms))

    def _change_voters(self) -> None:
        leader = self._a_leader()
        if leader is None:
            return
        node = self.draw.choice([node for node in self.nodes.values() if node.is_controller])
        pending = PendingRequest(f"voter {node.id}")
        self.pending.append(pending)
        if leader.log.kraft_version == 0:
            leader.perform(leader.machine.upgrade_kraft_version(pending, 1, self.now_ms))
        elif leader.log.voters.voter_with_key(node.me.key) is None:
            request = AddRaftVoterRequest(
                cluster_id=CLUSTER_ID,
                voter_id=node.id,
                voter_directory_id=node.me.directory_id,
                listeners=listeners_to_wire(node.me),
                ack_when_committed=self.draw.random() < 0.5,
            )
            leader.receive(pending, request)
        elif not self.has_lost_a_disk:
            removal = RemoveRaftVoterRequest(
                cluster_id=CLUSTER_ID, voter_id=node.id, voter_directory_id=node.me.directory_id
            )
            leader.receive(pending, removal)

    def _replace_disk(self) -> None:
        """Of one voter of three or more, once, and only with dynamic voters, where a new disk makes a new replica
        (KIP-853)."""
        known = [node.log.voters for node in self.nodes.values() if len(node.log.voters) > 0]
        if self.has_lost_a_disk or not self.is_dynamic or min(len(voters) for voters in known) < 3:
            return
        self.has_lost_a_disk = True
        node = self.nodes[self.draw.choice(known[0].voters).id]
        if node.is_up:
            node.kill()
        self.disks[node.id] += 1
        node.replace_disk(voter(node.id, self.disks[node.id]))
