"""Command line of the power loss tests. The exit code is 1 when a promise was broken.

    PYTHONPATH=src:tests python -m simulation.power_loss --all

The package tries a power loss at every disk operation of one partition log by itself, and of a whole node with its
clients. Each of the two has a *workload*, which runs once with its disk operations recorded and notes what was promised
when, and a *check*, which opens what a power loss at one of the operations leaves and compares it with the promises.
"""

from __future__ import annotations

import argparse
import logging
import sys
import traceback
from random import Random
from time import perf_counter

from simulation.power_loss.log_check import LogRecording
from simulation.power_loss.node_check import NodeRecording
from simulation.power_loss.search import Recording, chosen_operations, draw, search
from strandline.simulation.volume import Volume

MODES = ("flush", "replicated")
LAYERS = ("log", "node")


def main() -> int:
    arguments = _arguments()
    if not arguments.verbose:
        logging.disable(logging.CRITICAL)
    seeds = range(arguments.seed, arguments.seed + arguments.seeds)
    broken = 0
    for layer in arguments.layer or LAYERS:
        for mode in arguments.mode or MODES:
            for seed in seeds:
                try:
                    recording = record(layer, seed, mode, arguments.operations)
                except Exception as error:
                    print(f"{layer} seed {seed} {mode}: failed before any power loss: {error!r}")
                    if arguments.verbose:
                        traceback.print_exc()
                    broken += 1
                    continue
                broken += _one(recording, arguments.at) if arguments.at is not None else _many(recording, arguments)
    return 1 if broken else 0


def record(layer: str, seed: int, mode: str, operations: int) -> Recording:
    return LogRecording(seed, mode, operations) if layer == "log" else NodeRecording(seed, mode, operations)


def _many(recording: Recording, arguments: argparse.Namespace) -> int:
    began = perf_counter()
    sample = None if arguments.all else arguments.sample
    operations = chosen_operations(recording, sample, Random(recording.name))
    tried = broken = 0
    for finding in search(recording, operations, arguments.variants):
        tried += 1
        if finding is not None:
            broken += 1
            print(finding, flush=True)
            if arguments.verbose:
                print(finding.details)
    total = len(recording.journal.operations)
    print(
        f"{recording.name}: {total} disk operations, {tried} power losses, {broken} broken promises, "
        f"{perf_counter() - began:.1f} s",
        flush=True,
    )
    return broken


def _one(recording: Recording, at: int) -> int:
    """Repeats one power loss; prints the operations before it and raises the error as it is."""
    volume = Volume()
    for operation in recording.journal.replay(volume):
        if operation == at:
            break
    for number, before in enumerate(recording.journal.operations[max(0, at - 40) : at], max(0, at - 40)):
        print(f"{number:6} {before.describe()}")
    print(f"{at:6} power lost")
    for variant in range(100):
        random = draw(recording, at, variant)
        recording.check(volume.after_power_loss(random), at, random)
    print(f"{recording.name}: a power loss here breaks no promise")
    return 0


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m simulation.power_loss", description="Tries power losses at the disk operations of a run."
    )
    parser.add_argument("--layer", action="append", choices=LAYERS, help="what to run (default: both)")
    parser.add_argument("--mode", action="append", choices=MODES, help="when records are flushed (default: both)")
    parser.add_argument("--seed", type=int, default=1, help="the first seed")
    parser.add_argument("--seeds", type=int, default=1, help="how many seeds")
    parser.add_argument("--operations", type=int, default=1000, help="operations of the workload")
    parser.add_argument("--sample", type=int, default=100, help="number of disk operations to lose power at")
    parser.add_argument("--all", action="store_true", help="lose power at every disk operation")
    parser.add_argument("--variants", type=int, default=2, help="number of outcomes to draw at each")
    parser.add_argument("--at", type=int, help="repeat the power loss at one disk operation, with those before it")
    parser.add_argument("--verbose", action="store_true", help="print log lines of the node and stack traces")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
