"""Shrinks a failing plan: fewer faults, fewer clients, less time, as long as the same invariant is violated.

Every candidate is run. Removing a fault changes all later random draws, so the smaller run is a different one; it only
has to violate the same invariant and be short enough to read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from msgspec.structs import replace

from strandline.simulation.cluster.plan import Plan
from strandline.simulation.cluster.run import Outcome, run_plan


def shrink(
    failed: Outcome,
    at_most: int = 60,
    run: Callable[[Plan], Outcome] = run_plan,
    is_time_over: Callable[[], bool] = lambda: False,
) -> Outcome:
    """The smallest failure found in `at_most` runs, none of which starts when `is_time_over`; `failed` itself if no
    smaller plan violates the same invariant."""
    assert failed.violation is not None
    best, runs = _without_later_faults(failed), 0
    improved = True
    while improved and runs < at_most:
        improved = False
        for candidate in smaller(best.plan):
            if runs >= at_most or is_time_over():
                return best
            runs += 1
            outcome = run(candidate)
            if outcome.violation is not None and outcome.violation.invariant == failed.violation.invariant:
                best, improved = _without_later_faults(outcome), True
                break
    return best


def _without_later_faults(outcome: Outcome) -> Outcome:
    """Removes the faults planned after the violation."""
    end_ms = round(outcome.virtual_s * 1000)
    faults = tuple(each for each in outcome.plan.faults if each.at_ms <= end_ms)
    return replace(outcome, plan=replace(outcome.plan, faults=faults))


def smaller(plan: Plan) -> Iterator[Plan]:
    """Less time first, which makes every later run shorter. Then large steps first: half of the faults, then fewer,
    then single faults, then everything else that adds events."""
    last_ms = max((each.at_ms + each.length_ms for each in plan.faults), default=0)
    if plan.safety_ms > last_ms + 4_000:
        yield replace(plan, safety_ms=last_ms + 3_000)
    size = len(plan.faults) // 2
    while size >= 1:
        for start in range(0, len(plan.faults), size):
            yield replace(plan, faults=plan.faults[:start] + plan.faults[start + size :])
        size //= 2
    if plan.clients > 1:
        yield replace(plan, clients=1)
    if plan.stepped_chance:
        yield replace(plan, stepped_chance=0.0)
    if plan.drift:
        yield replace(plan, drift=False)
    if plan.weather.slow_chance or plan.weather.split_chance:
        yield replace(plan, weather=replace(plan.weather, slow_chance=0.0, split_chance=0.0))
