"""The invariants of a quorum (I-1 to I-5), checked while a `memory_cluster` runs.

I-1 one leader per epoch. I-2 epochs never decrease, a vote never changes within an epoch, and both are persisted before
a node sends a message that depends on them. I-3 the high watermark never decreases, and a majority of the voters has
synced everything below it. I-4 committed records are the same on all nodes, in logs and snapshots. I-5 a new leader has
every committed record.
"""

from __future__ import annotations

from typing import Any

from strandline.raft.machine.effects import Effect, Reply, ReplyWithRecords, ReplyWithSnapshot, Send, Truncate
from strandline.raft.machine.majorities import majority
from strandline.raft.machine.states import Leader
from strandline.raft.machine.values import NO_NODE, QuorumState
from strandline.raft.machine.voters import ReplicaKey
from unit.raft.memory_cluster import Node


class Invariants:
    def __init__(self) -> None:
        self.leaders: dict[int, ReplicaKey] = {}
        self.committed: list[tuple[int, Any]] = []
        """By offset: (epoch, record), as the first node applied it."""
        self.committers: dict[int, int] = {}
        self._persisted: dict[ReplicaKey, QuorumState] = {}
        self._checked: dict[tuple[int, int], int] = {}
        self._high_watermarks: dict[tuple[int, int], int] = {}
        self._leader_high_watermarks: dict[tuple[int, int], int] = {}

    def before_effect(self, node: Node, effect: Effect) -> None:
        if isinstance(effect, Reply | ReplyWithRecords | ReplyWithSnapshot | Send):
            sent, known = node.machine.state, node.state
            assert node.is_persisted, f"I-2: {node.id} sends a message in state {sent}, but has persisted {known}"
        if isinstance(effect, Truncate):
            assert effect.offset >= node.committed, (
                f"I-4: {node.id} truncates its log to {effect.offset}, below its high watermark"
            )

    def after_input(self, node: Node) -> None:
        self._check_persistent_state(node)
        self._check_applied(node)
        self._check_high_watermark(node)
        if isinstance(node.machine.role, Leader):
            self._check_leader(node)

    def _check_persistent_state(self, node: Node) -> None:
        now, before = node.state, self._persisted.get(node.me.key, QuorumState())
        assert node.is_persisted, f"I-2: {node.id} is in state {node.machine.state}, but has persisted {now}"
        assert now.epoch >= before.epoch, f"I-2: the epoch of {node.id} decreased from {before.epoch} to {now.epoch}"
        if now.epoch == before.epoch and before.voted_id != NO_NODE:
            first, second = (ReplicaKey(state.voted_id, state.voted_directory_id) for state in (before, now))
            is_same = first.matches(second)
            assert is_same, f"I-2: {node.id} voted twice in epoch {now.epoch}: for {first} and for {second}"
        self._persisted[node.me.key] = now

    def _check_applied(self, node: Node) -> None:
        """Everything once after each start, then what is new."""
        start = (node.id, node.start_count)
        for offset, epoch, record in node.applied[self._checked.get(start, 0) :]:
            if offset < len(self.committed):
                known = self.committed[offset]
                assert known == (epoch, record), f"I-4: at {offset} node {node.id} has {(epoch, record)}, not {known}"
            else:
                assert offset == len(self.committed), (
                    f"I-4: node {node.id} skipped from {len(self.committed)} to {offset}"
                )
                self.committed.append((epoch, record))
        self._checked[start] = len(node.applied)

    def _check_high_watermark(self, node: Node) -> None:
        start, now = (node.id, node.start_count), node.machine.high_watermark or 0
        before = self._high_watermarks.get(start, 0)
        assert now >= before, f"I-3: the high watermark of {node.id} decreased from {before} to {now}"
        self._high_watermarks[start] = now
        role = node.machine.role
        if isinstance(role, Leader) and role.high_watermark is not None:
            known = self._leader_high_watermarks.get((node.id, node.machine.epoch), 0)
            assert role.high_watermark >= known, f"I-3: the leader {node.id} went from {known} to {role.high_watermark}"
            self._leader_high_watermarks[node.id, node.machine.epoch] = role.high_watermark
            if now > before:
                self._check_majority_holds(node, now)

    def _check_majority_holds(self, leader: Node, end_offset: int) -> None:
        nodes, epoch = leader.cluster.nodes, leader.log.records(end_offset - 1, end_offset)[0][1]
        holding = 0
        for voter in leader.log.voters.voters:
            node = nodes[voter.id]
            last = node.log.records(end_offset - 1, end_offset)
            has_lost_disk = not node.me.key.matches(voter.key)  # after it acknowledged the records
            is_same = node.log.start_offset >= end_offset or (bool(last) and last[0][1] == epoch)
            holding += 1 if has_lost_disk or (is_same and node.log.synced_end >= end_offset) else 0
        needed = majority(len(leader.log.voters))
        assert holding >= needed, f"I-3: {holding} of {needed} voters hold {end_offset}, which {leader.id} committed"

    def _check_leader(self, node: Node) -> None:
        epoch = node.machine.epoch
        known = self.leaders.get(epoch)
        assert known in (None, node.me.key), f"I-1: epoch {epoch} has two leaders, {known} and {node.me.key}"
        if known is not None:
            return
        self.leaders[epoch] = node.me.key
        log, end = node.log, len(self.committed)
        assert log.end_offset >= end, f"I-5: {node.id} leads epoch {epoch} with {log.end_offset} of {end} records"
        for offset, record_epoch, record in log.records(0, end):
            assert self.committed[offset] == (record_epoch, record), f"I-5: {node.id} leads without record {offset}"
