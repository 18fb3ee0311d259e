"""`strandline up`: starts or restarts a cluster of node processes on this machine."""

from __future__ import annotations

import argparse
import os
import signal
import sys
import time
from typing import TYPE_CHECKING

from strandline.cli.errors import CommandFailed, UsageError
from strandline.cli.options import DEFAULT_BOOTSTRAP, DEFAULT_DATA, add_json_option, parse_pairs
from strandline.cli.output import bold, hint, print_facts, print_json
from strandline.cli.preconditions import reject_windows

if TYPE_CHECKING:
    from strandline.launch.cluster import Cluster
    from strandline.launch.cluster_state import ClusterState, NodeState
    from strandline.launch.errors import NodeExited

DEFAULT_PORT = 9092
EXAMPLES = """\
examples:
  strandline up                              one node, until Ctrl-C
  strandline up --nodes 3 --detach           three nodes, each a broker and a controller (of more than five nodes
                                             only the first five are controllers)
  strandline up --controllers 3 --brokers 4  seven nodes with one role each
  strandline up --nodes 5                    in the directory of the three: adds two nodes

The same command in the same directory restarts the same cluster, after `strandline down` as after kill -9; nodes that
are running are not touched. DIR/cluster.json lists the nodes with their addresses and process ids.
"""


def configure(parser: argparse.ArgumentParser) -> None:
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.epilog = EXAMPLES
    parser.add_argument("--nodes", metavar="N", type=int, help="nodes that are brokers and controllers (default: 1)")
    parser.add_argument("--controllers", metavar="C", type=int, help="with --brokers: nodes that are only controllers")
    parser.add_argument("--brokers", metavar="B", type=int, help="with --controllers: nodes that are only brokers")
    parser.add_argument(
        "--port", type=int, help=f"new nodes take free ports from this one on (default: {DEFAULT_PORT})"
    )
    parser.add_argument(
        "--data", metavar="DIR", default=DEFAULT_DATA, help=f"the data directory (default: {DEFAULT_DATA})"
    )
    parser.add_argument(
        "--detach", action="store_true", help="return when the cluster is ready; `strandline down` stops it"
    )
    parser.add_argument("--set", metavar="KEY=VALUE", action="append", default=[], help="a config for every node")
    parser.add_argument(
        "--replace",
        metavar="ID",
        type=int,
        action="append",
        default=[],
        help="format the disk of this node again, which was lost; the node joins without a vote",
    )
    add_json_option(parser)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    port = DEFAULT_PORT if arguments.port is None else arguments.port
    if not 1 <= port <= 65_535:
        raise UsageError(f"--port {arguments.port}: a port is between 1 and 65535")
    settings = parse_pairs(arguments.set, "--set")
    reject_windows("up")
    from strandline.launch.cluster import Cluster
    from strandline.launch.cluster_state import StateUnreadable, read_state
    from strandline.launch.errors import ConfigOverrideRejected, InvalidTopology, LaunchError
    from strandline.launch.ports import NoPortFree

    cluster = Cluster(arguments.data, say=hint)
    began = time.monotonic()
    with _signals_interrupt():
        try:
            before = read_state(cluster.directory)
            started = cluster.up(
                arguments.nodes,
                controllers=arguments.controllers,
                brokers=arguments.brokers,
                port=port,
                settings=settings,
                replaced=arguments.replace,
            )
            if arguments.port is not None and before is not None:
                _warn_of_kept_ports(before, arguments.port)
            _announce(cluster, started, time.monotonic() - began, arguments)
            if started and not arguments.detach:
                _run_in_foreground(cluster)
        except (ConfigOverrideRejected, InvalidTopology) as error:
            raise UsageError(str(error)) from error
        except (LaunchError, NoPortFree, StateUnreadable) as error:
            if not arguments.detach and cluster.has_started:
                _stop(cluster)
            raise CommandFailed(str(error)) from error
        except KeyboardInterrupt:
            if arguments.detach:
                raise
            _stop(cluster)
    return 0


def _warn_of_kept_ports(before: ClusterState, requested: int) -> None:
    """A node keeps its ports, because clients and other nodes know it by them."""
    if before.nodes and requested not in [port for node in before.nodes for port in node.ports]:
        kept = ", ".join(f"node {node.id} on {node.ports[0]}" for node in before.nodes)
        hint(f"--port {requested} is ignored: nodes keep the ports that cluster.json lists ({kept})")


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
        print(bold("Strandline is already running"))
    log = state.nodes[0].log if len(state.nodes) == 1 else os.path.join(cluster.directory, "node-*.log")
    print_facts([("bootstrap", state.bootstrap or None), *_nodes(state), ("data", cluster.directory), ("log", log)])
    first = state.bootstrap.partition(",")[0]
    where = "" if first == DEFAULT_BOOTSTRAP else f" -b {first}"
    data = "" if arguments.data == DEFAULT_DATA else f" --data {arguments.data}"
    if state.bootstrap:
        print(
            f"\ntry:\n  strandline topic create orders -p 3{where}\n"
            f"  echo hello | strandline produce orders{where}\n  strandline consume orders -o start{where}"
        )
        if len(state.nodes) > 1:
            print(f"  strandline cluster health{where}")
    in_foreground = bool(started) and not arguments.detach
    print("\nCtrl-C stops it." if in_foreground else f"\n`strandline down{data}` stops it.")
    sys.stdout.flush()


def _nodes(state: ClusterState) -> list[tuple[str, object]]:
    if len(state.nodes) == 1:
        return []
    brokers = sum(node.is_broker for node in state.nodes)
    controllers = sum(node.is_controller for node in state.nodes)
    return [("nodes", f"{len(state.nodes)}: {brokers} brokers, {controllers} controllers")]


def _run_in_foreground(cluster: Cluster) -> None:
    """Waits until Ctrl-C, or until all nodes started here have exited; a failed node does not stop the others."""
    last: NodeExited | None = None
    while cluster.has_started:
        time.sleep(0.2)
        for exited in cluster.exited_nodes():
            if exited.expected:
                hint(f"node {exited.node_id} was stopped")
                continue
            last = exited
            if cluster.has_started:
                hint(f"{exited}\nThe other nodes keep running; `strandline up` in another terminal restarts this one.")
    if last is not None:
        raise last


def _stop(cluster: Cluster) -> None:
    hint("stopping …")
    try:
        cluster.stop_started()
    except KeyboardInterrupt:
        hint("interrupted again: killing the nodes")
        cluster.stop_started(timeout_seconds=0)
    hint("stopped")


class _signals_interrupt:
    """SIGTERM and SIGHUP (the terminal was closed) stop `up` as Ctrl-C does."""

    def __enter__(self) -> None:
        self._before = {number: signal.signal(number, self._raise) for number in (signal.SIGTERM, signal.SIGHUP)}

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    @staticmethod
    def _raise(_number: int, _frame: object) -> None:
        raise KeyboardInterrupt
