"""I-3: the quorum's high watermark never falls on a leader, and a majority holds durably what is below it.
I-5: a new leader has every committed record.

This is also where commits enter the ledger: what a leader calls committed *is* committed, once it has been found to be
held by a majority of the voters in force; whatever anybody has later is compared with that.
"""

from __future__ import annotations

from strandline.raft.machine.voters import Voter
from strandline.simulation.cluster.checker import Checker
from strandline.simulation.cluster.cluster import Cluster, Member
from strandline.simulation.cluster.committed_metadata import CommittedMetadata
from strandline.simulation.cluster.node_state import NodeState
from strandline.simulation.cluster.violation import Violation


class QuorumCommitsAreDurable(Checker):
    def __init__(self, cluster: Cluster, ledger: CommittedMetadata) -> None:
        self._cluster = cluster
        self._ledger = ledger
        self._voters: tuple[Voter, ...] = ()

    def changed(self, member: Member, before: NodeState, now: NodeState) -> None:
        led = before.role == "Leader" and before.epoch == now.epoch
        if now.role == "Leader" and not led:
            self._elected(member, now)
        if now.log_end < before.high_watermark and now.log_end < before.log_end:
            why = f"{member.name} cuts its log at {now.log_end}"
            raise Violation("I-3", f"{why}, and knows that {before.high_watermark} is committed")
        if led and now.high_watermark < before.high_watermark:
            why = f"{member.name} takes its high watermark back from {before.high_watermark} to"
            raise Violation("I-3", f"{why} {now.high_watermark} while it leads epoch {now.epoch}")
        # A leader that is removed commits its removal and resigns in one event.
        if (led or now.role == "Leader") and now.high_watermark > self._ledger.end:
            self._committed(member, now)
        if now.is_active and not before.is_active:
            self._activated(member, now)
        if now.high_watermark > before.high_watermark:
            self._check_note(member)

    def finish(self) -> None:
        self._check_majority("at the end")

    def _check_note(self, member: Member) -> None:
        """Whoever reads it when the node starts takes a log that ends before it for damaged."""
        noted, end = member.files.committed_note(), member.files.certain_end()
        if noted > end:
            why = f"{member.name} notes that {noted} is committed"
            raise Violation("I-3", f"{why}, and of its log nothing beyond {end} is certain to outlast a power loss")

    def _elected(self, member: Member, now: NodeState) -> None:
        batches = member.files.batches()
        end = batches[-1].next_offset if batches else 0
        snapshot = max(member.files.snapshots(), default=None)
        end = max(end, 0 if snapshot is None else snapshot.end_offset)
        if end < self._ledger.end:
            why = f"{member.name} leads epoch {now.epoch} with a log that ends at {end}"
            raise Violation("I-5", f"{why}, and {self._ledger.end} is committed")
        different = self._ledger.first_difference(batches, self._ledger.end)
        if different is not None:
            why = f"{member.name} leads epoch {now.epoch}, and the batch at {different.base_offset} of its log"
            raise Violation("I-5", f"{why} (epoch {different.epoch}) is not the one that was committed")

    def _activated(self, member: Member, now: NodeState) -> None:
        """Before a record of its own epoch is committed, a leader does not know what else is."""
        last = self._ledger.last_batch()
        if last is None or last.epoch < now.epoch:
            raise Violation("I-5", f"{member.name} is active in epoch {now.epoch}, and has committed nothing in it")

    def _committed(self, member: Member, now: NodeState) -> None:
        in_its_log = member.files.last_voters()
        self._voters = self._cluster.voters() if in_its_log is None else in_its_log.voters
        self._ledger.extend(member.files, now.high_watermark)
        if self._ledger.end != now.high_watermark:
            why = f"{member.name} commits up to {now.high_watermark}"
            raise Violation("I-3", f"{why}, but its log has whole batches up to {self._ledger.end} only")
        last = self._ledger.last_batch()
        if last is None or last.epoch != now.epoch:
            of = -1 if last is None else last.epoch
            why = f"{member.name} leads epoch {now.epoch} and commits up to {now.high_watermark}"
            raise Violation("I-3", f"{why}, where a record of epoch {of} stands: those are committed by counting")
        self._cluster.chronicle.repeat(member.name, "commits", f"up to {now.high_watermark} in epoch {now.epoch}")
        self._check_majority(f"when {member.name} commits up to {now.high_watermark}")

    def _check_majority(self, when: str) -> None:
        if not self._voters:
            return
        held = {voter.id: self._held_by(voter) for voter in self._voters}
        holding = [voter for voter, end in held.items() if end >= self._ledger.end]
        if len(holding) * 2 <= len(held):
            ends = ", ".join(f"node{voter} up to {end}" for voter, end in held.items())
            raise Violation("I-3", f"{when}, {self._ledger.end} is not held durably by a majority: {ends}")

    def _held_by(self, voter: Voter) -> int:
        member = self._cluster.members[voter.id]
        if not self._cluster.plan.layout.static_voters and member.directory_id != voter.directory_id:
            return 0  # the disk of this voter is gone, and another has its id
        return self._ledger.held_durably(member.files)
