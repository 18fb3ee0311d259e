"""Performs the transcripts of `scenarios/*.txt` on a `memory_cluster`: verbs in, effects out.

A transcript is prose, lines that begin with `> ` (verbs), and below each verb, indented, what happened. Nothing happens
and no time passes by itself. Random times are fixed: node 1 always draws short ones, node 2 longer ones, and so on.

Verbs:

    voters 1 2 3        a new quorum with dynamic voters, named by formatting (kraft.version 1) configured 1 2 3    a
    new quorum with configured voters (kraft.version 0) controller 4        another controller, not yet a voter; `broker
    5`: an observer setting auto_join true start 1 2 3         `kill 1`: ends the process; `power_loss 1`: and loses
    everything that is not synced new_disk 3          node 3, which is down, gets a new and empty disk move 3 9999
    node 3, which is down, will listen at another port timeout 2           the timeout of node 2 in its present role
    expires elect 1             likewise, and everything that follows is delivered, until node 1 leads deliver 1->2
    the oldest message from 1 to 2 (`deliver 1->2 fetch`: the oldest Fetch request or response) drop 1->2           it
    is lost; `drop all`: so is every other message on the network disconnect 1->2     it is lost with its connection,
    and the node that waits for it, or for a response, notices partition 1 2 | 3   nothing is delivered between the two
    sides until `heal` settle              delivers all messages, and all that follow from them run 1000
    likewise, while a second passes wait 1000           a second passes, and nothing is delivered fetch 1
    from now on a fetch returns at most one batch slow 1              syncs of node 1 take until `sync 1`; `fast 1`: no
    longer append 1 x y        node 1, the leader, appends two records snapshot 1          node 1 writes a snapshot of
    what is committed and removes the log before it add 4 at 1          an administrator sends AddRaftVoter to node 1;
    also `remove 2 at 1`, `upgrade at 1`, `describe at 1` resign 1 show                the role, the epoch, the leader
    and the log of every node

`settle` and `run` leave out routine effects: fetches, records that are sent, syncs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random
from typing import Any

from msgspec.structs import replace

from strandline.model.ids import ZERO_UUID
from strandline.protocol.messages.quorum import (
    AddRaftVoterRequest,
    DescribeQuorumRequest,
    DescribeQuorumRequestPartitionData,
    DescribeQuorumRequestTopicData,
    RemoveRaftVoterRequest,
)
from strandline.raft.machine.effects import Effect
from strandline.raft.machine.messages import listeners_to_wire
from strandline.raft.machine.states import Leader
from strandline.raft.machine.voters import VoterSet
from unit.raft.effect_lines import is_routine, line_for, table
from unit.raft.invariants import Invariants
from unit.raft.memory_cluster import CLUSTER_ID, Cluster, Envelope, Node, PendingRequest, configured, voter


class FixedRandom(Random):
    """Always draws from the same point of the range."""

    def __init__(self, point: float) -> None:
        super().__init__(0)
        self.point = point

    def randrange(self, start: int, stop: int | None = None, step: int = 1) -> int:
        low, high = (0, start) if stop is None else (start, stop)
        return low + int((high - low) * self.point)

    def choice(self, seq: Any) -> Any:
        return seq[0]


class TranscriptCluster(Cluster):
    def __init__(self) -> None:
        super().__init__()
        self.lines: list[str] = []
        self.invariants = Invariants()
        self.slow: list[int] = []
        self.sides: list[list[int]] = []
        self.is_brief = False
        self._randoms: dict[int, FixedRandom] = {}
        self._printed: dict[int, str] = {}
        self._disks: dict[int, int] = {}

    def play(self, line: str) -> list[str]:
        """Performs one verb; returns what happened."""
        self.lines = []
        verb, *words = line.split()
        act: Callable[[list[str]], None] | None = getattr(self, f"_do_{verb}", None)
        assert act is not None, f"there is no verb {verb!r}"
        self.is_brief = verb in ("settle", "run")
        act(words)
        if verb not in ("wait", "start", "kill", "power_loss"):
            self._sync()
        return self.lines

    def random_for(self, node_id: int) -> Random:
        return self._randoms.setdefault(node_id, FixedRandom(node_id / 10))

    def on_effect(self, node: Node, effect: Effect) -> None:
        self._print_state(node)
        if not (self.is_brief and is_routine(effect)):
            self.lines.append(line_for(node, effect))
        self.invariants.before_effect(node, effect)

    def on_performed(self, node: Node) -> None:
        self._print_state(node)
        self.invariants.after_input(node)

    def on_failed(self, envelope: Envelope, refused: bool) -> None:
        if refused:
            self.lines.append(f"{envelope.sender.id} is refused a connection to {envelope.target}")
        else:
            self.lines.append(f"{envelope.sender.id} loses its connection to {envelope.target}")

    def _print_state(self, node: Node) -> None:
        state = f"{type(node.machine.role).__name__} in epoch {node.machine.epoch}"
        if self._printed.get(node.id) != state:
            self._printed[node.id] = state
            self.lines.append(f"{node.id} is {state}")

    def _sync(self) -> None:
        """Finishes the syncs of all disks that are not slow."""
        while syncing := [
            node
            for node in self.nodes.values()
            if node.syncing_to is not None and node.is_up and node.id not in self.slow
        ]:
            syncing[0].finish_sync()

    def _do_voters(self, words: list[str]) -> None:
        voters = VoterSet(tuple(voter(int(word)) for word in words))
        self.bootstrap = [at for each in voters.voters if (at := each.endpoint)]
        for each in voters.voters:
            self.add_node(each, voters, 1)

    def _do_configured(self, words: list[str]) -> None:
        voters = [voter(int(word)) for word in words]
        for each in voters:
            self.add_node(each, configured(voters), 0)

    def _do_controller(self, words: list[str]) -> None:
        self._add_observer(int(words[0]), is_controller=True)

    def _do_broker(self, words: list[str]) -> None:
        self._add_observer(int(words[0]), is_controller=False)

    def _add_observer(self, node_id: int, *, is_controller: bool) -> None:
        """With dynamic voters it knows only the bootstrap servers."""
        first = next(iter(self.nodes.values()))
        known = VoterSet(()) if first.log.kraft_version > 0 else first.log.voters
        self.add_node(voter(node_id), known, 0, is_controller=is_controller)

    def _do_setting(self, words: list[str]) -> None:
        name, value = words
        self.settings = replace(self.settings, **{name: value == "true" if value in ("true", "false") else int(value)})

    def _do_timeout(self, words: list[str]) -> None:
        node = self.nodes[int(words[0])]
        role = node.machine.role
        assert not isinstance(role, Leader)
        role.deadline_ms = self.now_ms
        node.perform(node.machine.on_time(self.now_ms))

    def _do_elect(self, words: list[str]) -> None:
        self._do_timeout(words)
        self._do_settle([])
        machine = self.nodes[int(words[0])].machine
        assert machine.is_leader
        self.lines = [f"{words[0]} leads epoch {machine.epoch}"]

    def _do_fetch(self, words: list[str]) -> None:
        self.batches_per_fetch = int(words[0])

    def _do_start(self, words: list[str]) -> None:
        for word in words:
            self._printed.pop(int(word), None)
            self.nodes[int(word)].start()

    def _do_kill(self, words: list[str]) -> None:
        self.nodes[int(words[0])].kill(keep_unsynced=True)

    def _do_power_loss(self, words: list[str]) -> None:
        self.nodes[int(words[0])].kill()

    def _do_new_disk(self, words: list[str]) -> None:
        node = self.nodes[int(words[0])]
        self._disks[node.id] = self._disks.get(node.id, 1) + 1
        node.replace_disk(voter(node.id, self._disks[node.id]))

    def _do_move(self, words: list[str]) -> None:
        node = self.nodes[int(words[0])]
        node.me = voter(node.id, self._disks.get(node.id, 1), port=int(words[1]))

    def _do_deliver(self, words: list[str]) -> None:
        self.deliver(self._find(words))

    def _do_drop(self, words: list[str]) -> None:
        if words == ["all"]:
            self.envelopes.clear()
        else:
            self.envelopes.remove(self._find(words))

    def _do_disconnect(self, words: list[str]) -> None:
        envelope = self._find(words)
        self.fail(envelope, refused=not self.nodes[envelope.target].is_up)

    def _find(self, words: Sequence[str]) -> Envelope:
        way = tuple(int(end) for end in words[0].split("->"))
        for envelope in self.envelopes:
            kind = type(envelope.request).__name__.removesuffix("Request").lower()
            if self._route(envelope) == way and (len(words) == 1 or kind.startswith(words[1])):
                return envelope
        raise AssertionError(f"no message {' '.join(words)}: {[self._route(each) for each in self.envelopes]}")

    def _route(self, envelope: Envelope) -> tuple[int, int]:
        way = envelope.sender.id, envelope.target
        return way[::-1] if envelope.is_response else way

    def _do_partition(self, words: list[str]) -> None:
        bar = words.index("|")
        self.sides = [[int(word) for word in side] for side in (words[:bar], words[bar + 1 :])]

    def _do_heal(self, words: list[str]) -> None:
        self.sides = []

    def _do_settle(self, words: list[str]) -> None:
        for _ in range(10_000):
            self._sync()
            deadline_ms = self.next_deadline_ms()
            if self.envelopes:
                self._deliver_or_drop(self.envelopes[0])
            elif deadline_ms is not None and deadline_ms <= self.now_ms:
                self.advance_time(self.now_ms)
            else:
                return
        raise AssertionError("messages are sent without end")

    def _deliver_or_drop(self, envelope: Envelope) -> None:
        one, other = self._route(envelope)
        if any(one in side and other not in side for side in self.sides):
            self.envelopes.remove(envelope)
        else:
            self.deliver(envelope)

    def _do_run(self, words: list[str]) -> None:
        end_ms = self.now_ms + int(words[0])
        self._do_settle([])
        while (deadline_ms := self.next_deadline_ms()) is not None and deadline_ms <= end_ms:
            self.advance_time(deadline_ms)
            self._do_settle([])
        self.now_ms = end_ms

    def _do_wait(self, words: list[str]) -> None:
        end_ms = self.now_ms + int(words[0])
        while (deadline_ms := self.next_deadline_ms()) is not None and deadline_ms <= end_ms:
            self.advance_time(deadline_ms)
            self._sync()
        self.now_ms = end_ms

    def _do_slow(self, words: list[str]) -> None:
        self.slow.append(int(words[0]))

    def _do_fast(self, words: list[str]) -> None:
        self.slow.remove(int(words[0]))

    def _do_sync(self, words: list[str]) -> None:
        self.nodes[int(words[0])].finish_sync()

    def _do_append(self, words: list[str]) -> None:
        assert self.nodes[int(words[0])].machine.is_leader
        self.nodes[int(words[0])].append(words[1:])

    def _do_snapshot(self, words: list[str]) -> None:
        snapshot_id = self.nodes[int(words[0])].take_snapshot()
        assert snapshot_id is not None
        self.lines.append(f"{words[0]} has snapshot {snapshot_id.end_offset}@{snapshot_id.epoch}")

    def _do_add(self, words: list[str]) -> None:
        new, leader = self.nodes[int(words[0])].me, self.nodes[int(words[2])]
        request = AddRaftVoterRequest(
            cluster_id=CLUSTER_ID,
            voter_id=new.id,
            voter_directory_id=new.directory_id,
            listeners=listeners_to_wire(new),
        )
        leader.receive(PendingRequest("add"), request)

    def _do_remove(self, words: list[str]) -> None:
        removed, leader = int(words[0]), self.nodes[int(words[2])]
        known = leader.log.voters.voter(removed) or self.nodes[removed].me
        if known.directory_id == ZERO_UUID:
            known = self.nodes[removed].me
        request = RemoveRaftVoterRequest(
            cluster_id=CLUSTER_ID, voter_id=known.id, voter_directory_id=known.directory_id
        )
        leader.receive(PendingRequest("remove"), request)

    def _do_upgrade(self, words: list[str]) -> None:
        node = self.nodes[int(words[1])]
        node.perform(node.machine.upgrade_kraft_version(PendingRequest("upgrade"), 1, self.now_ms))

    def _do_describe(self, words: list[str]) -> None:
        node = self.nodes[int(words[1])]
        partition = DescribeQuorumRequestPartitionData()
        topic = DescribeQuorumRequestTopicData(topic_name="__cluster_metadata", partitions=[partition])
        request = DescribeQuorumRequest(topics=[topic])
        node.receive(PendingRequest("describe"), request)

    def _do_resign(self, words: list[str]) -> None:
        node = self.nodes[int(words[0])]
        node.perform(node.machine.resign(self.now_ms))

    def _do_show(self, words: list[str]) -> None:
        self.lines += table(list(self.nodes.values()))
