"""I-1: one quorum leader per epoch."""

from __future__ import annotations

from strandline.model.ids import Uuid
from strandline.simulation.cluster.cluster import Member
from strandline.simulation.cluster.insight import Sight
from strandline.simulation.cluster.observer import Checker
from strandline.simulation.cluster.violation import Violation


class OneLeaderPerEpoch(Checker):
    def __init__(self) -> None:
        self._leaders: dict[int, tuple[int, Uuid, int]] = {}

    def changed(self, member: Member, before: Sight, now: Sight) -> None:
        if now.role != "Leader" or (before.role == "Leader" and before.epoch == now.epoch):
            return
        # The boot is part of who leads: a restarted leader must not lead the same epoch again, for it has forgotten
        # which offsets of it were given out.
        who = (member.id, member.directory_id, member.machine.boots)
        first = self._leaders.setdefault(now.epoch, who)
        if first != who:
            again = "again after a restart" if first[0] == member.id else f"after node{first[0]} did"
            raise Violation("I-1", f"{member.name} leads epoch {now.epoch} {again}")
