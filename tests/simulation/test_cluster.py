"""Whole clusters on virtual time: a few seeds with everything that may happen, and scenes of one's own.

More: `strandline sim run --seeds 1..1000`.
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from msgspec.structs import replace

from strandline.simulation.cluster.chronicle import Chronicle
from strandline.simulation.cluster.cluster import Cluster
from strandline.simulation.cluster.plan import FAULTS, Layout, Options, draw_plan
from strandline.simulation.cluster.run import run_plan
from strandline.simulation.command import main
from strandline.simulation.world import Simulation

SHORT = Options(minutes=0.25)


@pytest.mark.parametrize("seed", range(101, 107))
def test_a_cluster_keeps_its_promises_and_recovers(seed: int) -> None:
    outcome = run_plan(draw_plan(seed, SHORT))
    assert outcome.violation is None, "\n".join([outcome.plan.describe(), *outcome.story])
    assert outcome.committed > 20
    assert outcome.acknowledged > 0


@pytest.mark.parametrize(
    ("seed", "faults", "why"),
    [
        (
            25,
            "lag,partition,brokers",
            "a candidate was killed while it wrote its vote, and its successor stood for the epoch from the cache",
        ),
        (
            15,
            "io,kill,power,full,brokers",
            "a disk failed in the middle of a commit, and stepping down would have undone it",
        ),
        (
            2,
            "clock,power,partition,voters,kill",
            "a controller fell silent while a broker waited to be unfenced, and the broker gave up",
        ),
        (10, "full", "a controller stepped down while a handler without a task observed it"),
        (2, "late", "a registration that a killed broker had sent arrived after its successor's, which then gave up"),
    ],
)
def test_where_it_once_broke(seed: int, faults: str, why: str) -> None:
    outcome = run_plan(draw_plan(seed, replace(SHORT, faults=faults.split(","))))
    assert outcome.violation is None, "\n".join([why, *outcome.story])


def elsewhere(hash_seed: str, *arguments: str) -> str:
    source = str(Path(__file__).parents[2] / "src")
    environment = {**os.environ, "PYTHONPATH": source, "PYTHONHASHSEED": hash_seed}
    command = [sys.executable, "-m", "strandline.simulation", "replay", *arguments, "--digest"]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout.strip()


def test_a_seed_is_the_same_run_in_two_processes_with_different_hash_seeds() -> None:
    arguments = ("7", "--minutes", "0.15", "--faults", ",".join(FAULTS))
    first, second = elsewhere("1", *arguments), elsewhere("2", *arguments)
    assert first == second
    assert len(first) == 32


def test_one_seed_in_a_hundred_is_run_twice_and_the_totals_are_told(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", "--seeds", "100", "--minutes", "0.1", "--faults", "kill,pause", "--nodes", "3"]) == 0
    told = capsys.readouterr().out
    assert "1 seeds in" in told
    assert "simulated hours" in told
    assert "faults: kill" in told
    assert "broken: nothing" in told


def test_the_totals_can_be_had_as_json(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    arguments = ["run", "--seeds", "3..4", "--jobs", "1", "--minutes", "0.05", "--faults", "kill", "--nodes", "1"]
    assert main([*arguments, "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["seeds"], told["failures"], told["broken"]) == (2, [], {})
    assert told["events"] > 1_000
    monkeypatch.setattr("strandline.simulation.cluster.run._MAX_STEPS", 500)
    assert main([*arguments, "--json", "--no-shrink"]) == 1
    (failure,) = json.loads(capsys.readouterr().out)["failures"]
    assert (failure["seed"], failure["invariant"]) == (3, "liveness")
    assert failure["story"]


def test_a_run_that_is_not_the_same_elsewhere_fails(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("strandline.simulation.trace.Trace.digest", lambda self: "another")
    assert main(["run", "--seeds", "100", "--minutes", "0.05", "--faults", "kill", "--nodes", "1"]) == 1
    assert "has different traces in two processes" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("observed", "why"),
    [
        (["--seeds", "9..3"], "must not be greater than the last"),
        (["--nodes", "0"], "not a positive integer"),
        (["--minutes", "-1"], "not a positive number of minutes"),
        (["--nodes", "2", "--controllers", "3"], "or --controllers and --brokers"),
        (["--set", "broker.session.timeout.ms=x"], "broker.session.timeout.ms"),
        (["--faults", "kill,gremlins"], "'gremlins' is not one of"),
    ],
)
def test_what_cannot_be_run_is_refused_with_the_reason(
    observed: list[str], why: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as left:
        main(["run", *observed])
    assert left.value.code == 2
    assert why in capsys.readouterr().err


def test_a_scene_of_ones_own() -> None:
    """As docs/simulation.md shows it: three nodes, the leader is killed, another leads within a second."""
    layout = Layout((1, 2, 3), (1, 2, 3))
    plan = draw_plan(1, Options(layout=layout, faults=[]))

    async def scene(cluster: Cluster) -> None:
        cluster.start()
        await asyncio.sleep(10)
        first = cluster.leader()
        assert first is not None
        first.kill()
        await asyncio.sleep(1)
        second = cluster.leader()
        assert second is not None and second is not first

    with Simulation(plan.seed, plan.weather) as simulation:
        cluster = Cluster(simulation, plan, Chronicle(simulation.loop))
        simulation.run(scene(cluster), max_virtual_s=60)


@pytest.mark.slow
@pytest.mark.parametrize("kind", FAULTS)
def test_every_fault_by_itself(kind: str) -> None:
    happened = 0
    for seed in range(300, 303):
        outcome = run_plan(
            draw_plan(seed, Options(minutes=0.2, faults=[kind], layout=Layout((1, 2, 3), (1, 2, 11), (7,), (21,))))
        )
        assert outcome.violation is None, "\n".join([outcome.plan.describe(), *outcome.story])
        happened += sum(outcome.faults.values()) + outcome.plan.drift
    assert happened > 0
