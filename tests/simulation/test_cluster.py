"""Whole clusters on virtual time: a few seeds with all faults, the command line, and the example of docs/simulation.md.

More seeds: `strandline sim run --seeds 1..1000`.
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
def test_a_cluster_violates_no_invariant_and_recovers(seed: int) -> None:
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
            "a candidate was killed while it wrote its vote, and after its restart read that unsynced vote",
        ),
        (
            15,
            "io,kill,power,full,brokers",
            "a disk failed in the middle of a commit, which resigning would have reverted",
        ),
        (
            2,
            "clock,power,partition,voters,kill",
            "a controller became unreachable while a broker waited to be unfenced, and the broker stopped",
        ),
        (10, "full", "a controller resigned while a handler waited for its future without a task"),
        (2, "late", "a registration of a killed broker arrived after that of its new process, which then stopped"),
    ],
)
def test_seeds_that_once_violated_an_invariant(seed: int, faults: str, why: str) -> None:
    outcome = run_plan(draw_plan(seed, replace(SHORT, faults=faults.split(","))))
    assert outcome.violation is None, "\n".join([why, *outcome.story])


def digest_in_process(hash_seed: str, *arguments: str) -> str:
    source = str(Path(__file__).parents[2] / "src")
    environment = {**os.environ, "PYTHONPATH": source, "PYTHONHASHSEED": hash_seed}
    command = [sys.executable, "-m", "strandline.simulation", "replay", *arguments, "--digest"]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout.strip()


def test_a_seed_is_the_same_run_in_two_processes_with_different_hash_seeds() -> None:
    arguments = ("7", "--minutes", "0.15", "--faults", ",".join(FAULTS))
    first, second = digest_in_process("1", *arguments), digest_in_process("2", *arguments)
    assert first == second
    assert len(first) == 32


def test_one_seed_in_a_hundred_runs_twice_and_the_totals_are_printed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", "--seeds", "100", "--minutes", "0.1", "--faults", "kill,pause", "--nodes", "3"]) == 0
    output = capsys.readouterr().out
    assert "1 seeds in" in output
    assert "simulated hours" in output
    assert "faults: kill" in output
    assert "broken: nothing" in output


def test_totals_and_failures_are_printed_as_json(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    arguments = ["run", "--seeds", "3..4", "--jobs", "1", "--minutes", "0.05", "--faults", "kill", "--nodes", "1"]
    assert main([*arguments, "--json"]) == 0
    output = json.loads(capsys.readouterr().out)
    assert (output["seeds"], output["failures"], output["broken"]) == (2, [], {})
    assert output["events"] > 1_000
    monkeypatch.setattr("strandline.simulation.cluster.run._MAX_STEPS", 500)
    assert main([*arguments, "--json", "--no-shrink"]) == 1
    (failure,) = json.loads(capsys.readouterr().out)["failures"]
    assert (failure["seed"], failure["invariant"]) == (3, "liveness")
    assert failure["story"]


def test_different_traces_in_two_processes_fail_the_run(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("strandline.simulation.trace.Trace.digest", lambda self: "another")
    assert main(["run", "--seeds", "100", "--minutes", "0.05", "--faults", "kill", "--nodes", "1"]) == 1
    assert "has different traces in two processes" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (["--seeds", "9..3"], "must not be greater than the last"),
        (["--nodes", "0"], "not a positive integer"),
        (["--minutes", "-1"], "not a positive number of minutes"),
        (["--nodes", "2", "--controllers", "3"], "or --controllers and --brokers"),
        (["--set", "broker.session.timeout.ms=x"], "broker.session.timeout.ms"),
        (["--faults", "kill,gremlins"], "'gremlins' is not one of"),
    ],
)
def test_invalid_arguments_are_rejected_with_the_reason(
    arguments: list[str], why: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as caught:
        main(["run", *arguments])
    assert caught.value.code == 2
    assert why in capsys.readouterr().err


def test_the_example_of_docs_simulation_md() -> None:
    """Three nodes: after the leader was killed, another node leads within a second."""
    layout = Layout((1, 2, 3), (1, 2, 3))
    plan = draw_plan(1, Options(layout=layout, faults=[]))

    async def scenario(cluster: Cluster) -> None:
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
        simulation.run(scenario(cluster), max_virtual_s=60)


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
