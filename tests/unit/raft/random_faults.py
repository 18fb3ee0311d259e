"""A quorum in bad weather: messages lost, doubled and late, nodes killed in the middle of what they do, voters coming
and going, all of it drawn from one seed. Afterwards the weather clears, and the quorum must find together again.
"""

from __future__ import annotations

from copy import copy
from random import Random

from strandline.protocol.messages.quorum import AddRaftVoterRequest, RemoveRaftVoterRequest
from strandline.raft.machine.effects import Effect
from strandline.raft.machine.settings import QuorumSettings
from strandline.raft.machine.voters import VoterSet
from strandline.raft.machine.wire import listeners_to_wire
from unit.raft.invariants import Invariants
from unit.raft.memory_cluster import CLUSTER_ID, Cluster, Node, PendingRequest, configured, voter

_CALM_MS = 30_000


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
        self.cut: dict[tuple[int, int], None] = {}
        """Pairs (from, to) between which nothing arrives."""
        self.is_stormy = True
        self.has_lost_a_disk = False
        self.disks = dict.fromkeys(range(1, 7), 1)
        self.asked: list[PendingRequest] = []
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
        if self.is_stormy and self.draw.random() < 0.002:
            self._kill(node)
            return
        self.invariants.before_effect(node, effect)

    def on_performed(self, node: Node) -> None:
        self.invariants.after_input(node)

    def rage(self, steps: int) -> None:
        haste = self.draw.choice([1, 1, 3, 10])
        actions = [
            (self._deliver, 60),
            (self._finish_sync, 25),
            (self._pass_time, 16 / haste),
            (self._write, 8),
            (self._lose_letter, 4),
            (self._double_letter, 3),
            (self._start_one, 3),
            (self._kill_one, 1),
            (self._change_voters, 1),
            (self._take_snapshot, 1),
            (self._cut_or_heal, 1),
            (self._resign, 0.3),
            (self._lose_disk, 0.05),
        ]
        for action in self.draw.choices([each for each, _ in actions], [weight for _, weight in actions], k=steps):
            action()

    def clear_up(self) -> None:
        """Everybody is up and nothing is lost: within half a minute one leads and all have the same log."""
        self.is_stormy = False
        self.cut.clear()
        for node in self.nodes.values():
            if not node.is_up:
                node.start()
        end_ms = self.now_ms + _CALM_MS
        for node in self._run_calmly(end_ms - 10_000):
            if node.machine.is_leader:
                node.append(["calm"])
        self._run_calmly(end_ms)
        leaders = [node for node in self.nodes.values() if node.machine.is_leader]
        assert len(leaders) == 1, f"nobody leads, or several: {[node.id for node in leaders]}"
        ends = {node.id: (node.log.end_offset, node.committed) for node in self.nodes.values()}
        end = leaders[0].log.end_offset
        assert set(ends.values()) == {(end, end)}, f"not everybody has caught up: {ends}"
        assert leaders[0].applied[-1][2] == "calm" or len(self.invariants.committed) == end

    def _run_calmly(self, end_ms: int) -> list[Node]:
        busy = 0
        while True:
            busy += 1
            assert busy < 50_000, "the quorum does not come to rest"
            syncing = next((node for node in self.nodes.values() if node.syncing_to is not None), None)
            if self.letters:
                self.deliver(self.letters[0])
            elif syncing is not None:
                syncing.finish_sync()
            else:
                deadline_ms = self.next_deadline_ms()
                if deadline_ms is None or deadline_ms > end_ms:
                    self.now_ms = end_ms
                    return list(self.nodes.values())
                self.let_time_pass(deadline_ms)

    def _deliver(self) -> None:
        if not self.letters:
            return
        letter = self.draw.choice(self.letters[:20])
        way = (letter.target, letter.sender.id) if letter.is_answered else (letter.sender.id, letter.target)
        if way in self.cut:
            self.letters.remove(letter)
        else:
            self.deliver(letter)

    def _lose_letter(self) -> None:
        if self.letters:
            letter = self.draw.choice(self.letters)
            if self.draw.random() < 0.5:
                self.letters.remove(letter)
            else:
                self.fail(letter)

    def _double_letter(self) -> None:
        if self.letters:
            self.letters.append(copy(self.draw.choice(self.letters)))

    def _finish_sync(self) -> None:
        syncing = [node for node in self.nodes.values() if node.is_up and node.syncing_to is not None]
        if syncing:
            self.draw.choice(syncing).finish_sync()

    def _pass_time(self) -> None:
        deadline_ms = self.next_deadline_ms()
        if deadline_ms is not None and self.draw.random() < 0.7:
            self.let_time_pass(deadline_ms)
        else:
            self.let_time_pass(self.now_ms + self.draw.randrange(1, 400))

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
        """Some of what was not synced may have reached the disk all the same."""
        node.kill(keep_unsynced=True)
        node.lose_unsynced(self.draw.randint(node.log.synced_end, node.log.end_offset))

    def _start_one(self) -> None:
        down = [node for node in self.nodes.values() if not node.is_up]
        if down:
            self.draw.choice(down).start()

    def _cut_or_heal(self) -> None:
        if self.cut and self.draw.random() < 0.6:
            self.cut.clear()
        else:
            some = self.draw.sample(list(self.nodes), self.draw.randrange(1, len(self.nodes)))
            both_ways = self.draw.random() < 0.7
            for one in some:
                for other in self.nodes:
                    if other not in some:
                        self.cut[one, other] = None
                        if both_ways:
                            self.cut[other, one] = None

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
        who = self.draw.choice([node for node in self.nodes.values() if node.is_controller])
        question = PendingRequest(f"voter {who.id}")
        self.asked.append(question)
        if leader.log.kraft_version == 0:
            leader.perform(leader.machine.upgrade_kraft_version(question, 1, self.now_ms))
        elif leader.log.voters.voter_with_key(who.me.key) is None:
            request = AddRaftVoterRequest(
                cluster_id=CLUSTER_ID,
                voter_id=who.id,
                voter_directory_id=who.me.directory_id,
                listeners=listeners_to_wire(who.me),
                ack_when_committed=self.draw.random() < 0.5,
            )
            leader.receive(question, request)
        elif not self.has_lost_a_disk:
            removal = RemoveRaftVoterRequest(
                cluster_id=CLUSTER_ID, voter_id=who.id, voter_directory_id=who.me.directory_id
            )
            leader.receive(question, removal)

    def _lose_disk(self) -> None:
        """One voter of three or more, once, and only where its successor is somebody else (KIP-853)."""
        known = [node.log.voters for node in self.nodes.values() if len(node.log.voters) > 0]
        if self.has_lost_a_disk or not self.is_dynamic or min(len(voters) for voters in known) < 3:
            return
        self.has_lost_a_disk = True
        node = self.nodes[self.draw.choice(known[0].voters).id]
        if node.is_up:
            node.kill()
        self.disks[node.id] += 1
        node.lose_disk(voter(node.id, self.disks[node.id]))
