"""I-1: one quorum leader per epoch."""

from __future__ import annotations

from strandline.model.ids import Uuid
from strandline.simulation.cluster.checker import Checker
from strandline.simulation.cluster.cluster import Member
from strandline.simulation.cluster.node_state import NodeState
from strandline.simulation.cluster.violation import Violation


class OneLeaderPerEpoch(Checker):
    def __init__(self) -> None:
        self._leaders: dict[int, tuple[int, Uuid]] = {}
        self._former: set[tuple[int, Uuid, int]] = set()
        """(Node id, directory id, epoch) that a process found as its own leadership on disk at startup."""

    def node_started(self, member: Member) -> None:
        found = member.files.quorum_state(cached=True)
        if found is not None and found.leader_id == member.id:
            self._former.add((member.id, member.directory_id, found.epoch))

    def node_changed(self, member: Member, before: NodeState, now: NodeState) -> None:
        if now.role != "Leader" or (before.role == "Leader" and before.epoch == now.epoch):
            return
        leader = (member.id, member.directory_id)
        first = self._leaders.setdefault(now.epoch, leader)
        if first != leader:
            raise Violation("I-1", f"{member.name} leads epoch {now.epoch}, and so did node{first[0]}")
        if (*leader, now.epoch) in self._former:
            # After a restart it does not know which offsets of this epoch it has used.
            raise Violation("I-1", f"{member.name} leads epoch {now.epoch} again after a restart")
