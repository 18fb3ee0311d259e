"""Options that several commands share: --bootstrap, --json, the default data directory, and KEY=VALUE arguments."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from strandline.cli.errors import UsageError

if TYPE_CHECKING:
    import argparse

DEFAULT_BOOTSTRAP = "127.0.0.1:9092"
DEFAULT_DATA = "./strandline-data"


def add_client_options(parser: argparse.ArgumentParser, *, controllers: bool = False) -> None:
    """`controllers`: the command also works on a controller listener."""
    parser.add_argument(
        "-b",
        "--bootstrap",
        metavar="HOST:PORT",
        default=os.environ.get("STRANDLINE_BOOTSTRAP") or _nearest_cluster(),
        help=f"brokers{', or controllers,' if controllers else ''} to connect to first, separated by commas "
        "(default: $STRANDLINE_BOOTSTRAP or 127.0.0.1:9092)",
    )


def _nearest_cluster() -> str:
    """127.0.0.1:9092, or all nodes of the cluster in the default directory if one of them has that address."""
    from strandline.launch.cluster_state import StateUnreadable, read_state

    try:
        state = read_state(DEFAULT_DATA)
    except (OSError, StateUnreadable):
        state = None
    known = [] if state is None else state.bootstrap.split(",")
    return ",".join(known) if DEFAULT_BOOTSTRAP in known else DEFAULT_BOOTSTRAP


def add_json_option(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="print JSON")


def parse_pairs(pairs: list[str], option: str) -> dict[str, str]:
    """Parses `key=value` arguments in order; the last value of a key wins."""
    found: dict[str, str] = {}
    for pair in pairs:
        key, equals, value = pair.partition("=")
        if not equals or not key:
            raise UsageError(f"{option} {pair!r} is not key=value")
        found[key] = value
    return found


def check_at_least_one(option: str, number: int | None) -> None:
    if number is not None and number < 1:
        raise UsageError(f"{option} {number}: must be at least 1")
