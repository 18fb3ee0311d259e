"""`strandline down`: stops what `up` has started in a data directory."""

from __future__ import annotations

import argparse
import os

from strandline.cli.errors import CommandFailed
from strandline.cli.output import Progress, hint, print_json, print_table
from strandline.cli.preconditions import reject_windows
from strandline.cli.with_client import DEFAULT_DATA, add_json_option


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--data", metavar="DIR", default=DEFAULT_DATA, help=f"where it lives (default: {DEFAULT_DATA})")
    add_json_option(parser)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    reject_windows("down")
    from strandline.launch.cluster import Cluster
    from strandline.launch.cluster_state import StateUnreadable, read_state
    from strandline.launch.errors import LaunchError

    cluster = Cluster(arguments.data, say=hint)
    try:
        if read_state(cluster.directory) is None:
            raise CommandFailed(
                f"there is no cluster in {os.path.abspath(arguments.data)}: say where it is with --data DIR"
            )
        with Progress("waiting for the nodes to stop"):
            stopped = cluster.down()
    except (LaunchError, StateUnreadable) as error:
        raise CommandFailed(str(error)) from error
    ended = {node.id for node in stopped}
    if arguments.json:
        print_json([{"id": node.id, "stopped": node.id in ended} for node in cluster.nodes])
    else:
        rows = [(node.id, "stopped" if node.id in ended else "was not running") for node in cluster.nodes]
        print_table(("NODE", "STATUS"), rows)
    return 0
