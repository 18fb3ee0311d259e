"""I-6, from one record to the next: who may take over a partition, and when a reassignment may end."""

from __future__ import annotations

from collections.abc import Mapping

from strandline.metadata.values import NO_LEADER
from strandline.simulation.cluster.checker import Checker
from strandline.simulation.cluster.metadata_model import Assignment, MetadataModel
from strandline.simulation.cluster.violation import Violation

_UNCLEAN = "unclean.leader.election.enable"


class NoUncleanElections(Checker):
    """Nobody leads who was neither in sync nor eligible, unless a setting allows it. No client here asks for it."""

    def __init__(self, scribe: MetadataModel, settings: Mapping[str, str]) -> None:
        self._scribe = scribe
        self._unclean_everywhere = settings.get(_UNCLEAN) == "true"
        scribe.tell(self._changed)

    def _changed(self, name: str, before: Assignment, now: Assignment) -> None:
        leader = now.leader
        if leader in (NO_LEADER, before.leader, *before.isr, *before.elr, *before.adding):
            return
        # Whoever others are in sync with has been taken in by the same record, which may also end a reassignment. And
        # whoever led last may lead again when nobody who is eligible is left.
        ends = (before.adding or before.removing) and not (now.adding or now.removing)
        if ends or now.isr != (leader,) or before.last_known_elr == (leader,) or self._is_allowed():
            return
        why = f"{name} is led by {leader}, which was neither in sync nor eligible"
        raise Violation("I-6", f"{why}: {before} becomes {now}")

    def _is_allowed(self) -> bool:
        settings = self._scribe.settings.values()
        return self._unclean_everywhere or any(values.get(_UNCLEAN) == "true" for values in settings)


class ReassignmentsCompleteInSync(Checker):
    """A replica that was added and stays is in sync when it is no longer counted as added."""

    def __init__(self, scribe: MetadataModel) -> None:
        scribe.tell(self._changed)

    def _changed(self, name: str, before: Assignment, now: Assignment) -> None:
        leaving = (*now.adding, *now.removing)
        stay = [each for each in before.adding if each in now.replicas and each not in leaving]
        if not set(stay) <= set(now.isr):
            why = f"the reassignment of {name} is over, and of those it added {stay} stay and are not in sync"
            raise Violation("I-6", f"{why}: {before} becomes {now}")


class FencedBrokersDoNotJoinIsr(Checker):
    """Whoever is fenced or about to leave is not taken into an ISR. (One that is elected from the eligible is, in the
    very decision that unfences it.)"""

    def __init__(self, scribe: MetadataModel) -> None:
        self._scribe = scribe
        scribe.tell(self._changed)

    def _changed(self, name: str, before: Assignment, now: Assignment) -> None:
        new = [each for each in now.isr if each not in before.isr and each != now.leader]
        leaving = [each for each in new if each not in self._scribe.active]
        if leaving:
            why = f"{leaving} enter the ISR of {name}, and are fenced or about to leave"
            raise Violation("I-6", f"{why}: {before} becomes {now}")
