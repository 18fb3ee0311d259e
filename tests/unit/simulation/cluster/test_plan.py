"""Plans are a function of the seed, draw every fault and layout, and have consistent configs."""

from __future__ import annotations

from pathlib import Path

from strandline.simulation.cluster.faults import FAULT_FUNCTIONS
from strandline.simulation.cluster.plan import FAULTS, Layout, Options, draw_plan


def test_a_seed_gives_one_plan() -> None:
    assert draw_plan(5) == draw_plan(5)
    assert draw_plan(5) != draw_plan(6)


def test_every_fault_is_drawn_for_some_seed_and_no_seed_has_them_all() -> None:
    plans = [draw_plan(seed) for seed in range(200)]
    kinds = [{fault.kind for fault in plan.faults} for plan in plans]
    assert set().union(*kinds) == set(FAULT_FUNCTIONS) == set(FAULTS) - {"drift"}
    assert any(plan.drift for plan in plans)
    assert max(len(each) for each in kinds) <= 5


def test_layouts_of_all_kinds_are_drawn() -> None:
    layouts = [draw_plan(seed).layout for seed in range(100)]
    assert any(layout.static_voters for layout in layouts)
    assert any(set(layout.controllers) & set(layout.brokers) for layout in layouts)
    assert any(not set(layout.controllers) & set(layout.brokers) for layout in layouts)
    assert {len(layout.controllers) for layout in layouts} == {1, 3, 5}
    for layout in layouts:
        assert not (layout.static_voters and layout.spare_controllers)


def test_drawn_configs_fit_together() -> None:
    for seed in range(100):
        configs = draw_plan(seed).configs
        heartbeat, session = (int(configs[f"broker.{key}.ms"]) for key in ("heartbeat.interval", "session.timeout"))
        assert session >= 3 * heartbeat
        assert int(configs["controller.quorum.request.timeout.ms"]) > 500


def test_options_take_precedence_over_drawn_values() -> None:
    layout = Layout((1, 2), (3,))
    options = Options(minutes=1, layout=layout, faults=["kill"], configs={"broker.session.timeout.ms": "77"})
    plan = draw_plan(9, options)
    assert plan.layout == layout
    assert {fault.kind for fault in plan.faults} == {"kill"}
    assert plan.configs["broker.session.timeout.ms"] == "77"
    assert plan.safety_ms == 60_000
    assert all(fault.at_ms < plan.safety_ms for fault in plan.faults)


def test_a_shorter_run_has_a_prefix_of_the_faults_of_a_longer_one() -> None:
    long, short = draw_plan(4, Options(minutes=1)), draw_plan(4, Options(minutes=0.25))
    assert short.faults == long.faults[: len(short.faults)]
    assert (short.configs, short.clients, short.layout) == (long.configs, long.clients, long.layout)


def test_a_plan_describes_its_faults() -> None:
    plan = draw_plan(9, Options(faults=["kill", "power"]))
    text = plan.describe()
    assert text.startswith("seed 9: controllers [")
    assert len(text.splitlines()) == 1 + len(plan.faults)


def test_docs_simulation_md_describes_every_fault() -> None:
    page = (Path(__file__).parents[4] / "docs" / "simulation.md").read_text()
    assert [kind for kind, what in FAULTS.items() if f"| `{kind}` | {what} |" not in page] == []
