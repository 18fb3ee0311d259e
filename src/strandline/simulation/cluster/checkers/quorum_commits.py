"""I-3: the high watermark of a quorum leader never decreases, and a majority of the voters durably has all records
below it. I-5: a new leader has every committed record.

This checker also extends the committed metadata, with which all other nodes are compared, when a leader advances its
high watermark.
"""

from __future__ import annotations

from strandline.raft.machine.voters import Voter
from strandline.simulation.cluster.checker import Checker
from strandline.simulation.cluster.cluster import Cluster, Member
from strandline.simulation.cluster.committed_metadata import CommittedMetadata
from strandline.simulation.cluster.node_state import NodeState
from strandline.simulation.cluster.violation import Violation


class QuorumCommitsAreDurable(Checker):
    def __init__(self, cluster: Cluster, metadata: CommittedMetadata) -> None:
        self._cluster = cluster
        self._metadata = metadata
        self._voters: tuple[Voter, ...] = ()

    def node_changed(self, member: Member, before: NodeState, now: NodeState) -> None:
        led = before.role == "Leader" and before.epoch == now.epoch
        if now.role == "Leader" and not led:
            self._elected(member, now)
        if now.log_end < before.high_watermark and now.log_end < before.log_end:
            why = f"{member.name} truncates its log to {now.log_end}"
            raise Violation("I-3", f"{why}, below its high watermark {before.high_watermark}")
        if led and now.high_watermark < before.high_watermark:
            why = f"the high watermark of {member.name} decreases from {before.high_watermark} to"
            raise Violation("I-3", f"{why} {now.high_watermark} while it leads epoch {now.epoch}")
        # A leader that is removed commits its removal and resigns in one event.
        if (led or now.role == "Leader") and now.high_watermark > self._metadata.end:
            self._commit(member, now)
        if now.is_active and not before.is_active:
            self._activated(member, now)
        if now.high_watermark > before.high_watermark:
            self._check_committed_offset_file(member)

    def finish(self) -> None:
        self._check_majority("at the end")

    def _check_committed_offset_file(self, member: Member) -> None:
        """Checks the recorded offset: at startup a node considers a log that ends before it damaged."""
        stored, end = member.files.committed_offset_file(), member.files.durable_log_end()
        if stored > end:
            why = f"{member.name} has written the committed offset {stored}"
            raise Violation("I-3", f"{why}, and its log is durable only up to {end}")

    def _elected(self, member: Member, now: NodeState) -> None:
        batches = member.files.batches()
        end = batches[-1].next_offset if batches else 0
        snapshot = max(member.files.snapshots(), default=None)
        end = max(end, 0 if snapshot is None else snapshot.end_offset)
        if end < self._metadata.end:
            why = f"{member.name} leads epoch {now.epoch} with a log that ends at {end}"
            raise Violation("I-5", f"{why}, and {self._metadata.end} is committed")
        different = self._metadata.first_difference(batches, self._metadata.end)
        if different is not None:
            why = f"{member.name} leads epoch {now.epoch}, and the batch at {different.base_offset} of its log"
            raise Violation("I-5", f"{why} (epoch {different.epoch}) differs from the committed batch")

    def _activated(self, member: Member, now: NodeState) -> None:
        """A leader knows what is committed only after it has committed a record of its own epoch."""
        last = self._metadata.last_batch()
        if last is None or last.epoch < now.epoch:
            raise Violation("I-5", f"{member.name} is active in epoch {now.epoch}, and has committed nothing in it")

    def _commit(self, member: Member, now: NodeState) -> None:
        in_its_log = member.files.last_voters()
        self._voters = self._cluster.voters() if in_its_log is None else in_its_log.voters
        self._metadata.extend(member.files, now.high_watermark)
        if self._metadata.end != now.high_watermark:
            why = f"{member.name} commits up to {now.high_watermark}"
            raise Violation("I-3", f"{why}, but its log has whole batches up to {self._metadata.end} only")
        last = self._metadata.last_batch()
        if last is None or last.epoch != now.epoch:
            of = -1 if last is None else last.epoch
            why = f"{member.name} leads epoch {now.epoch} and commits up to {now.high_watermark}"
            raise Violation("I-3", f"{why}, which ends with a record of epoch {of}: only counted, not committed")
        self._cluster.chronicle.repeat(member.name, "commits", f"up to {now.high_watermark} in epoch {now.epoch}")
        self._check_majority(f"when {member.name} commits up to {now.high_watermark}")

    def _check_majority(self, when: str) -> None:
        if not self._voters:
            return
        held = {voter.id: self._held_by(voter) for voter in self._voters}
        holding = [voter for voter, end in held.items() if end >= self._metadata.end]
        if len(holding) * 2 <= len(held):
            ends = ", ".join(f"node{voter} up to {end}" for voter, end in held.items())
            raise Violation("I-3", f"{when}, {self._metadata.end} is not durable on a majority: {ends}")

    def _held_by(self, voter: Voter) -> int:
        member = self._cluster.members[voter.id]
        if not self._cluster.plan.layout.static_voters and member.directory_id != voter.directory_id:
            return 0  # the disk of this voter was replaced
        return self._metadata.durable_end(member.files)
