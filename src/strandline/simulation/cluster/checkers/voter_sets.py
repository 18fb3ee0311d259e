"""I-1, where it begins: whoever counts a majority counts the voters that its log names.

A change of voters counts from its record on, and no longer than the record stands: one that is cut off from the log has
never been. Two leaders of one epoch are a while away from there, but no further.
"""

from __future__ import annotations

from strandline.simulation.cluster.checker import Checker
from strandline.simulation.cluster.cluster import Member
from strandline.simulation.cluster.node_state import NodeState, voters_of
from strandline.simulation.cluster.violation import Violation


class VoterSetsMatchTheLog(Checker):
    def __init__(self) -> None:
        self._named_at: dict[int, int] = {}
        """By node: where the record stands that names its voters."""

    def booted(self, member: Member) -> None:
        self._named_at.pop(member.id, None)

    def changed(self, member: Member, before: NodeState, now: NodeState) -> None:
        quorum = None if member.node is None else member.node.quorum
        history = None if quorum is None else voters_of(quorum)
        if history is None or now.log_end == before.log_end:
            return
        if history.voters_offset >= now.log_end > 0:
            why = f"{member.name} counts {[voter.id for voter in history.voters.voters]} as voters"
            raise Violation("I-1", f"{why}, by a record at {history.voters_offset}; its log ends at {now.log_end}")
        known, self._named_at[member.id] = self._named_at.get(member.id, -1), history.voters_offset
        led = before.role == now.role == "Leader" and before.epoch == now.epoch
        if led and history.voters_offset > known >= max(now.high_watermark, 1):
            why = f"{member.name} changes the voters at {history.voters_offset}"
            raise Violation("I-1", f"{why}, and the change at {known} is not committed: majorities need not overlap")
        named = member.files.last_voters() if now.log_end > before.log_end else None
        if named is not None and named != history.voters:
            why = f"{member.name} counts {history.voters} as voters"
            raise Violation("I-1", f"{why}, and the last record of its log that names any has {named}")
