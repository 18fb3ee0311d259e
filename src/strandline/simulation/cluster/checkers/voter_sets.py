"""I-1: each node counts majorities of the voter set that its log names.

A change of voters applies from its record on, and until the record is truncated. Counting other voters can lead to two
leaders of one epoch.
"""

from __future__ import annotations

from strandline.simulation.cluster.checker import Checker
from strandline.simulation.cluster.cluster import Member
from strandline.simulation.cluster.node_state import NodeState
from strandline.simulation.cluster.violation import Violation


class VoterSetsMatchTheLog(Checker):
    def __init__(self) -> None:
        self._named_at: dict[int, int] = {}
        """The offset of the record that names the voters of each node."""

    def node_started(self, member: Member) -> None:
        self._named_at.pop(member.id, None)

    def node_changed(self, member: Member, before: NodeState, now: NodeState) -> None:
        quorum = None if member.node is None else member.node.quorum
        history = None if quorum is None else quorum.voter_history
        if history is None or now.log_end == before.log_end:
            return
        if history.voters_offset >= now.log_end > 0:
            why = f"{member.name} counts {[voter.id for voter in history.voters.voters]} as voters"
            raise Violation("I-1", f"{why} from a record at {history.voters_offset}; its log ends at {now.log_end}")
        known, self._named_at[member.id] = self._named_at.get(member.id, -1), history.voters_offset
        led = before.role == now.role == "Leader" and before.epoch == now.epoch
        if led and history.voters_offset > known >= max(now.high_watermark, 1):
            why = f"{member.name} changes the voters at {history.voters_offset}"
            raise Violation("I-1", f"{why} before the change at {known} is committed: majorities need not overlap")
        named = member.files.last_voters() if now.log_end > before.log_end else None
        if named is not None and named != history.voters:
            why = f"{member.name} counts {history.voters} as voters"
            raise Violation("I-1", f"{why}; the last VotersRecord of its log has {named}")
