"""A failing plan is shrunk as long as the same invariant is violated."""

from __future__ import annotations

from msgspec.structs import replace

from strandline.simulation.cluster.plan import Options, Plan, PlannedFault, draw_plan
from strandline.simulation.cluster.run import Outcome
from strandline.simulation.cluster.shrink import shrink, smaller
from strandline.simulation.cluster.violation import Violation


def plan_of(*kinds: str) -> Plan:
    faults = tuple(PlannedFault(kind, 100 * number, 50, number) for number, kind in enumerate(kinds))
    return replace(draw_plan(1, Options(faults=["kill"])), faults=faults, clients=3, drift=True)


class Runs:
    """Violates I-5 if the plan has a kill and a pause, and I-1 if it has a pause only."""

    def __init__(self) -> None:
        self.count = 0

    def __call__(self, plan: Plan) -> Outcome:
        self.count += 1
        kinds = {fault.kind for fault in plan.faults}
        name = "I-5" if {"kill", "pause"} <= kinds else "I-1" if "pause" in kinds else None
        return Outcome(plan, None if name is None else Violation(name, "as planned"), virtual_s=50)


def test_shrinking_keeps_only_what_the_failure_needs() -> None:
    runs = Runs()
    failed = runs(plan_of("power", "kill", "lag", "lag", "pause", "reset", "power"))
    shrunk = shrink(failed, run=runs)
    assert shrunk.violation is not None and shrunk.violation.invariant == "I-5"
    assert [fault.kind for fault in shrunk.plan.faults] == ["kill", "pause"]
    assert shrunk.plan.clients == 1
    assert not shrunk.plan.drift


def test_faults_after_the_violation_are_removed_without_a_run() -> None:
    runs = Runs()
    failed = replace(runs(plan_of("kill", "pause", "power", "power")), virtual_s=0.15)
    assert [fault.kind for fault in shrink(failed, at_most=0, run=runs).plan.faults] == ["kill", "pause"]


def test_shrinking_stops_after_the_given_number_of_runs() -> None:
    runs = Runs()
    failed = runs(plan_of(*["power"] * 40, "kill", "pause"))
    shrink(failed, at_most=7, run=runs)
    assert runs.count == 1 + 7


def test_no_run_starts_when_the_time_is_over() -> None:
    runs = Runs()
    failed = runs(plan_of(*["power"] * 40, "kill", "pause"))
    shrink(failed, run=runs, is_time_over=lambda: runs.count >= 5)
    assert runs.count == 5


def test_the_first_candidate_has_less_time() -> None:
    plan = replace(plan_of("kill"), safety_ms=30_000)
    assert next(smaller(plan)).safety_ms == 3_050


def test_candidates_have_no_more_faults() -> None:
    plan = plan_of("kill", "pause", "power")
    for candidate in smaller(plan):
        assert len(candidate.faults) <= len(plan.faults)
        assert candidate != plan
