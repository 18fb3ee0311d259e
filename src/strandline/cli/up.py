"""`strandline up`: a cluster of node processes on this machine, new or brought back."""

from __future__ import annotations

import argparse
import signal
import sys
import time
from typing import TYPE_CHECKING

from strandline.cli.errors import Failed, Misused
from strandline.cli.output import bold, hint, print_facts, print_json
from strandline.cli.platform import refuse_windows
from strandline.cli.session import DEFAULT_BOOTSTRAP, add_json_option, parse_pairs

if TYPE_CHECKING:
    from strandline.launch.cluster import Cluster
    from strandline.launch.state import ClusterState, NodeState

DEFAULT_DATA = "./strandline-data"
DEFAULT_PORT = 9092


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--nodes", metavar="N", type=int, default=1, help="how many nodes (default: 1)")
    parser.add_argument("--port", type=int, help=f"new nodes take the free ports from here (default: {DEFAULT_PORT})")
    parser.add_argument("--data", metavar="DIR", default=DEFAULT_DATA, help=f"where it lives (default: {DEFAULT_DATA})")
    parser.add_argument("--detach", action="store_true", help="return when it is ready; `strandline down` stops it")
    parser.add_argument("--set", metavar="KEY=VALUE", action="append", default=[], help="a setting for every node")
    add_json_option(parser)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    if arguments.nodes < 1:
        raise Misused(f"--nodes {arguments.nodes}: a cluster has at least one node")
    if arguments.nodes > 1:
        raise Misused(
            f"--nodes {arguments.nodes}: clusters of several nodes come with the next release; this one runs one node"
        )
    port = DEFAULT_PORT if arguments.port is None else arguments.port
    if not 1 <= port <= 65_535:
        raise Misused(f"--port {arguments.port}: ports go from 1 to 65535")
    settings = parse_pairs(arguments.set, "--set")
    refuse_windows("up")
    from strandline.launch.cluster import Cluster
    from strandline.launch.errors import LaunchError, SettingRefused
    from strandline.launch.ports import NoPortFree
    from strandline.launch.state import StateUnreadable, read_state

    cluster = Cluster(arguments.data, say=hint)
    began = time.monotonic()
    with _signals_interrupt():
        try:
            before = read_state(cluster.directory)
            started = cluster.up(arguments.nodes, port=port, settings=settings)
            if arguments.port is not None and before is not None:
                _tell_of_kept_ports(before, arguments.port)
            _announce(cluster, started, time.monotonic() - began, arguments)
            if started and not arguments.detach:
                _stay(cluster, started)
        except SettingRefused as error:
            raise Misused(str(error)) from error
        except (LaunchError, NoPortFree, StateUnreadable) as error:
            raise Failed(str(error)) from error
        except KeyboardInterrupt:
            if arguments.detach:
                raise
            _stop(cluster)
    return 0


def _tell_of_kept_ports(before: ClusterState, asked: int) -> None:
    """Clients and other nodes know a node by its port, so it keeps the one it was made with."""
    if before.nodes and asked not in [node.port for node in before.nodes]:
        kept = ", ".join(f"node {node.id} on {node.port}" for node in before.nodes)
        hint(f"--port {asked} is ignored: nodes keep the ports that cluster.json lists ({kept})")


def _announce(cluster: Cluster, started: list[NodeState], seconds: float, arguments: argparse.Namespace) -> None:
    state = cluster.state
    if arguments.json:
        print_json(state.as_json())
        sys.stdout.flush()
        return
    if started:
        number = f"{len(started)} node{'s' if len(started) > 1 else ''}"
        print(bold(f"Strandline is ready: {number} started in {seconds:.2f} s"))
    else:
        print(bold("Strandline is running already"))
    print_facts([("bootstrap", state.bootstrap), ("data", cluster.directory), ("log", state.nodes[0].log)])
    where = "" if state.bootstrap == DEFAULT_BOOTSTRAP else f" -b {state.bootstrap}"
    data = "" if arguments.data == DEFAULT_DATA else f" --data {arguments.data}"
    print(
        f"\ntry:\n  strandline topic create orders -p 3{where}\n  echo hello | strandline produce orders{where}\n"
        f"  strandline consume orders -o start{where}"
    )
    stays = bool(started) and not arguments.detach
    print("\nCtrl-C stops it." if stays else f"\n`strandline down{data}` stops it.")
    sys.stdout.flush()


def _stay(cluster: Cluster, started: list[NodeState]) -> None:
    """Until Ctrl-C, or until `down` elsewhere has stopped what we started, or a node dies."""
    while True:
        time.sleep(0.2)
        died = cluster.died()
        if died is not None:
            if died.asked:
                hint(f"node {died.node_id} was stopped")
                return
            _stop(cluster)
            raise died
        if not any(node.pid is not None for node in cluster.nodes):
            return


def _stop(cluster: Cluster) -> None:
    hint("stopping …")
    try:
        cluster.stop_started()
    except KeyboardInterrupt:
        hint("once more: killing")
        cluster.stop_started(timeout_seconds=0)
    hint("stopped")


class _signals_interrupt:
    """A terminal that is closed and a polite kill end `up` as Ctrl-C does."""

    def __enter__(self) -> None:
        self._before = {number: signal.signal(number, self._raise) for number in (signal.SIGTERM, signal.SIGHUP)}

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    @staticmethod
    def _raise(_number: int, _frame: object) -> None:
        raise KeyboardInterrupt
