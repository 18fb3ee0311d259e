"""`strandline down`: stops the nodes that `up` has started in a data directory."""

from __future__ import annotations

import argparse
import os

from strandline.cli.errors import CommandFailed
from strandline.cli.options import DEFAULT_DATA, add_json_option
from strandline.cli.output import Progress, hint, print_json, print_table
from strandline.cli.preconditions import reject_windows


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--data", metavar="DIR", default=DEFAULT_DATA, help=f"the data directory (default: {DEFAULT_DATA})"
    )
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
                f"there is no cluster in {os.path.abspath(arguments.data)}: give its directory with --data DIR"
            )
        with Progress("waiting for the nodes to stop"):
            stopped = cluster.down()
    except (LaunchError, StateUnreadable) as error:
        raise CommandFailed(str(error)) from error
    stopped_ids = {node.id for node in stopped}
    if arguments.json:
        print_json([{"id": node.id, "stopped": node.id in stopped_ids} for node in cluster.nodes])
    else:
        rows = [(node.id, "stopped" if node.id in stopped_ids else "was not running") for node in cluster.nodes]
        print_table(("NODE", "STATUS"), rows)
    return 0
