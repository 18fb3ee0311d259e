"""I-6: which changes of a partition a record may make: new leaders, new ISR members, the end of a reassignment."""

from __future__ import annotations

from collections.abc import Mapping

from strandline.metadata.values import NO_LEADER
from strandline.simulation.cluster.checker import Checker
from strandline.simulation.cluster.metadata_model import Assignment, MetadataModel
from strandline.simulation.cluster.violation import Violation

_UNCLEAN = "unclean.leader.election.enable"


class NoUncleanElections(Checker):
    """A new leader was in the ISR or the ELR, unless a config allows unclean elections. No client requests one here."""

    def __init__(self, model: MetadataModel, configs: Mapping[str, str]) -> None:
        self._model = model
        self._unclean_everywhere = configs.get(_UNCLEAN) == "true"
        model.subscribe(self._changed)

    def _changed(self, name: str, before: Assignment, now: Assignment) -> None:
        leader = now.leader
        if leader in (NO_LEADER, before.leader, *before.isr, *before.elr, *before.adding):
            return
        # A leader with other ISR members joined the ISR in the same record, which may also complete a reassignment. The
        # last known leader may lead again when no eligible replica is left.
        completes = (before.adding or before.removing) and not (now.adding or now.removing)
        if completes or now.isr != (leader,) or before.last_known_elr == (leader,) or self._is_allowed():
            return
        why = f"{name} is led by {leader}, which was neither in the ISR nor in the ELR"
        raise Violation("I-6", f"{why}: {before} becomes {now}")

    def _is_allowed(self) -> bool:
        configs = self._model.configs.values()
        return self._unclean_everywhere or any(values.get(_UNCLEAN) == "true" for values in configs)


class ReassignmentsCompleteInSync(Checker):
    """When a reassignment completes, its remaining adding replicas are in the ISR."""

    def __init__(self, model: MetadataModel) -> None:
        model.subscribe(self._changed)

    def _changed(self, name: str, before: Assignment, now: Assignment) -> None:
        leaving = (*now.adding, *now.removing)
        stay = [each for each in before.adding if each in now.replicas and each not in leaving]
        if not set(stay) <= set(now.isr):
            why = f"the reassignment of {name} completes, and not all of the added replicas {stay} are in the ISR"
            raise Violation("I-6", f"{why}: {before} becomes {now}")


class FencedBrokersDoNotJoinIsr(Checker):
    """A broker that is fenced or in controlled shutdown does not join an ISR. (One that is elected from the ELR does,
    in the decision that unfences it.)"""

    def __init__(self, model: MetadataModel) -> None:
        self._model = model
        model.subscribe(self._changed)

    def _changed(self, name: str, before: Assignment, now: Assignment) -> None:
        new = [each for each in now.isr if each not in before.isr and each != now.leader]
        leaving = [each for each in new if each not in self._model.active]
        if leaving:
            why = f"{leaving} join the ISR of {name} while fenced or in controlled shutdown"
            raise Violation("I-6", f"{why}: {before} becomes {now}")
