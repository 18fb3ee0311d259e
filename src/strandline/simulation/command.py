"""`strandline sim run` and `strandline sim replay`: runs seeds and reports violated invariants.

    strandline sim run --seeds 1..200 --jobs 2
    strandline sim replay 17 --trace

Also `python -m strandline.simulation …`. The exit code is 1 when a seed violates an invariant.
"""

from __future__ import annotations

import argparse
import json
import math
import multiprocessing
import os
import shlex
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from typing import Any

from strandline.node.config import InvalidConfig
from strandline.simulation.cluster.plan import FAULTS, Layout, Options, draw_plan
from strandline.simulation.cluster.run import Outcome, run_plan
from strandline.simulation.cluster.shrink import shrink
from strandline.simulation.nodes import node_config

RERUN_EVERY = 100
"""One seed in so many runs again in another process, which must give the same trace."""


def configure(parser: argparse.ArgumentParser) -> None:
    """Called by `cli` for `strandline sim`."""
    commands = parser.add_subparsers(metavar="COMMAND", required=True)
    run = commands.add_parser("run", help="run a cluster from each of many seeds and check its invariants")
    run.add_argument("--seeds", type=_seeds, default=range(1, 51), metavar="A..B", help="seeds to run (default: 1..50)")
    run.add_argument("--jobs", type=_number, default=os.cpu_count() or 1, help="processes (default: one per core)")
    run.add_argument(
        "--shrink-seconds",
        type=float,
        default=60,
        help="stop shrinking a failure after this time (default: %(default)s)",
    )
    run.add_argument("--no-shrink", action="store_true", help="report a failure as it happened, without shrinking it")
    run.add_argument("--keep-going", action="store_true", help="do not stop at the first seed that fails")
    run.add_argument("--json", action="store_true", help="print one JSON object with totals and failures")
    _add_options(run)
    run.set_defaults(run=_run, refuse=run.error)
    replay = commands.add_parser("replay", help="run one seed again and print its events")
    replay.add_argument("seed", type=int)
    replay.add_argument("--trace", action="store_true", help="also print the log lines of the nodes")
    replay.add_argument("--digest", action="store_true", help="print only the trace hash")
    _add_options(replay)
    replay.set_defaults(run=_replay, refuse=replay.error)


def _add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--minutes", type=_minutes, default=0.5, help="simulated time with faults, before healing (default: 0.5)"
    )
    parser.add_argument("--nodes", type=_number, help="number of combined controller-brokers (default: by seed)")
    parser.add_argument("--controllers", type=_number, help="number of controllers, together with --brokers")
    parser.add_argument("--brokers", type=_number, help="number of brokers, together with --controllers")
    parser.add_argument(
        "--producers", type=int, help="number of producers, each with a topic and a consumer (default: by seed)"
    )
    parser.add_argument(
        "--set", type=_config, action="append", default=[], metavar="KEY=VALUE", help="config of every node"
    )
    parser.add_argument(
        "--faults", type=_faults, metavar="A,B,…", help=f"any of {', '.join(FAULTS)} (default: by seed)"
    )


def _run(arguments: argparse.Namespace) -> int:
    options = _options(arguments)
    began = time.monotonic()  # noqa: TID251  (the real duration, for the report)
    totals = Totals()
    for outcome in _outcomes(arguments.seeds, options, arguments.jobs):
        totals.add(outcome)
        if outcome.plan.seed % RERUN_EVERY == 0 and (why := _rerun_difference(outcome, arguments)) is not None:
            totals.failures.append({"seed": outcome.plan.seed, "invariant": "determinism", "why": why})
            if not arguments.json:
                print(why, flush=True)
        if outcome.violation is not None:
            if not arguments.no_shrink:
                print(f"seed {outcome.plan.seed} violates an invariant; shrinking the run", file=sys.stderr)
            shown = outcome if arguments.no_shrink else _shrunk(outcome, arguments.shrink_seconds)
            totals.failures.append(_failure(shown))
            if not arguments.json:
                report(shown, arguments)
            if not arguments.keep_going:
                break
    took_s = time.monotonic() - began  # noqa: TID251
    if arguments.json:
        print(json.dumps(totals.as_json(took_s), indent=2))
    else:
        totals.report(took_s)
    return 1 if totals.failures else 0


def _shrunk(outcome: Outcome, seconds: float) -> Outcome:
    end = time.monotonic() + seconds  # noqa: TID251
    return shrink(outcome, is_time_over=lambda: time.monotonic() > end)  # noqa: TID251


def _failure(outcome: Outcome) -> dict[str, object]:
    violation = outcome.violation
    assert violation is not None
    return {
        "seed": outcome.plan.seed,
        "invariant": violation.invariant,
        "why": str(violation),
        "plan": outcome.plan.describe().splitlines(),
        "story": outcome.story,
        "details": outcome.details,
    }


def _replay(arguments: argparse.Namespace) -> int:
    outcome = run_plan(draw_plan(arguments.seed, _options(arguments)), print if arguments.trace else None)
    if arguments.digest:
        print(outcome.digest)
        return 0
    report(outcome, arguments)
    return 0 if outcome.violation is None else 1


def report(outcome: Outcome, arguments: argparse.Namespace) -> None:
    violation = outcome.violation
    print(
        f"\nseed {outcome.plan.seed}: "
        + ("nothing is broken" if violation is None else f"breaks {violation.invariant}")
    )
    print(outcome.plan.describe())
    print(f"{outcome.steps:,} events in {outcome.virtual_s:.1f} s, {outcome.acknowledged} operations acknowledged")
    print("what happened:")
    print("\n".join(outcome.story))
    if violation is not None:
        if outcome.details:
            print(outcome.details)
        again = shlex.join(["strandline", "sim", "replay", str(outcome.plan.seed), *_as_arguments(arguments)])
        print(f"{violation}\nagain: {again}", flush=True)


class Totals:
    def __init__(self) -> None:
        self.seeds = self.steps = self.acknowledged = self.unknown = self.committed = self.delivered = 0
        self.virtual_s = 0.0
        self.faults: Counter[str] = Counter()
        self.broken: Counter[str] = Counter()
        self.failures: list[dict[str, object]] = []

    def add(self, outcome: Outcome) -> None:
        self.seeds += 1
        self.steps += outcome.steps
        self.virtual_s += outcome.virtual_s
        self.acknowledged += outcome.acknowledged
        self.unknown += outcome.unknown
        self.committed += outcome.committed
        self.delivered += outcome.delivered
        self.faults += outcome.faults
        if outcome.violation is not None:
            self.broken[outcome.violation.invariant] += 1

    def as_json(self, took_s: float) -> dict[str, object]:
        return {
            "seeds": self.seeds,
            "took_s": round(took_s, 1),
            "simulated_hours": round(self.virtual_s / 3600, 4),
            "events": self.steps,
            "metadata_records_committed": self.committed,
            "operations_acknowledged": self.acknowledged,
            "operations_unknown": self.unknown,
            "records_delivered": self.delivered,
            "faults": dict(sorted(self.faults.items())),
            "broken": dict(sorted(self.broken.items())),
            "failures": self.failures,
        }

    def report(self, took_s: float) -> None:
        rate = self.seeds / took_s if took_s else 0.0
        print(f"\n{self.seeds} seeds in {took_s:.0f} s ({rate:.2f} per second)")
        print(
            f"{self.virtual_s / 3600:.2f} simulated hours, {self.steps:,} events, {self.committed:,} records committed"
        )
        print(
            f"{self.acknowledged:,} operations acknowledged, {self.unknown:,} of unknown outcome; "
            f"{self.delivered:,} records delivered"
        )
        print("faults: " + (", ".join(f"{kind} {count}" for kind, count in sorted(self.faults.items())) or "none"))
        broken = ", ".join(f"{name} {count}" for name, count in sorted(self.broken.items()))
        print(f"broken: {broken or 'nothing'}", flush=True)


def _outcomes(seeds: Sequence[int], options: Options, jobs: int) -> Iterator[Outcome]:
    run = partial(run_seed, options=options)
    if jobs <= 1 or len(seeds) == 1:
        yield from map(run, seeds)
        return
    with multiprocessing.get_context("fork").Pool(jobs) as pool:
        yield from pool.imap_unordered(run, seeds)


def run_seed(seed: int, options: Options) -> Outcome:
    outcome = run_plan(draw_plan(seed, options))
    if outcome.violation is not None:
        outcome.violation = outcome.violation.bare()
    return outcome


def _rerun_difference(outcome: Outcome, arguments: argparse.Namespace) -> str | None:
    """Reruns the seed in another process with another hash seed. Returns what differs, or None."""
    seed = str(outcome.plan.seed)
    command = [sys.executable, "-m", "strandline.simulation", "replay", seed, "--digest", *_as_arguments(arguments)]
    environment = {**os.environ, "PYTHONHASHSEED": seed}
    digest = subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout.strip()
    if digest == outcome.digest:
        return None
    return f"seed {seed} has different traces in two processes: {digest}, {outcome.digest}"


def _as_arguments(arguments: argparse.Namespace) -> Iterable[str]:
    for name in ("minutes", "nodes", "controllers", "brokers", "producers"):
        value = getattr(arguments, name)
        if value is not None:
            yield from (f"--{name}", str(value))
    for key, value in arguments.set:
        yield from ("--set", f"{key}={value}")
    if arguments.faults is not None:
        yield from ("--faults", ",".join(arguments.faults))


def _options(arguments: argparse.Namespace) -> Options:
    layout = None
    if arguments.nodes is not None and (arguments.controllers is not None or arguments.brokers is not None):
        arguments.refuse("use either --nodes (combined controller-brokers), or --controllers and --brokers")
    try:
        node_config("any", overrides=dict(arguments.set))
    except InvalidConfig as refused:
        arguments.refuse(f"--set: {'; '.join(refused.problems)}")
    if arguments.nodes is not None:
        nodes = tuple(range(1, arguments.nodes + 1))
        layout = Layout(nodes, nodes, spare_controllers=(97, 98), spare_brokers=(99,))
    elif arguments.controllers is not None or arguments.brokers is not None:
        controllers = tuple(range(1, (arguments.controllers or 1) + 1))
        brokers = tuple(range(11, 11 + (arguments.brokers or 1)))
        layout = Layout(controllers, brokers, spare_controllers=(97, 98), spare_brokers=(99,))
    return Options(arguments.minutes, layout, arguments.faults, dict(arguments.set), arguments.producers)


def _seeds(text: str) -> Sequence[int]:
    first, dots, last = text.partition("..")
    try:
        seeds = range(int(first), int(last) + 1) if dots else [int(each) for each in text.split(",")]
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is neither A..B nor A,B,…") from None
    if not seeds:
        raise argparse.ArgumentTypeError(f"{text} is empty: the first seed must not be greater than the last")
    return seeds


def _number(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text} is not a positive integer")
    return int(text)


def _minutes(text: str) -> float:
    try:
        minutes = float(text)
    except ValueError:
        minutes = 0.0
    if not 0 < minutes < math.inf:
        raise argparse.ArgumentTypeError(f"{text} is not a positive number of minutes")
    return minutes


def _config(text: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    if not equals:
        raise argparse.ArgumentTypeError(f"{text!r} is not KEY=VALUE")
    return key, value


def _faults(text: str) -> list[str]:
    kinds = [each.strip() for each in text.split(",") if each.strip()]
    for kind in kinds:
        if kind not in FAULTS:
            raise argparse.ArgumentTypeError(f"{kind!r} is not one of {', '.join(FAULTS)}")
    return kinds


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="strandline sim", description="Clusters on virtual time, from seeds.")
    configure(parser)
    arguments: Any = parser.parse_args(argv)
    code: int = arguments.run(arguments)
    return code
