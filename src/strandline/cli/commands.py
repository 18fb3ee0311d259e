"""The table of commands, and the parser of the command line.

Only the module of the chosen command is imported, and it imports large modules only when it runs, so that `--help` is
fast.
"""

from __future__ import annotations

import argparse
from importlib import import_module
from typing import Any

from strandline import __version__

COMMANDS = {
    "up": ("strandline.cli.up", "start a cluster on this machine, or restart one"),
    "down": ("strandline.cli.down", "stop the cluster in a data directory"),
    "server": ("strandline.cli.server", "run one node in the foreground from a server.properties"),
    "storage": ("strandline.cli.storage", "format the directories of a node, or show their state"),
    "topic": ("strandline.cli.topic", "create, list, describe, alter, reassign and delete topics"),
    "produce": ("strandline.cli.produce", "write lines as records"),
    "consume": ("strandline.cli.consume", "read records"),
    "group": ("strandline.cli.group", "list, describe, reset and delete groups, show their members and lag"),
    "txn": ("strandline.cli.txn", "list and describe transactions, find and abort hanging ones"),
    "config": ("strandline.cli.config", "describe, set and unset configs of topics and brokers"),
    "cluster": ("strandline.cli.cluster", "describe the cluster, or check its health"),
    "broker": ("strandline.cli.broker", "list, drain and unregister brokers"),
    "leader": ("strandline.cli.leader", "elect partition leaders"),
    "quorum": ("strandline.cli.quorum", "describe the metadata quorum, add and remove voters"),
    "feature": ("strandline.cli.feature", "describe, upgrade and downgrade features"),
    "metadata": ("strandline.cli.metadata", "show the metadata of a node: as a tree, or record by record"),
    "log": ("strandline.cli.log", "print the contents of log files without a server"),
    "sim": ("strandline.simulation.command", "simulate whole clusters with faults, on virtual time, from seeds"),
}
EXAMPLES = """\
try:
  strandline up                        a one-node cluster in ./strandline-data, until Ctrl-C
  strandline topic create orders -p 3
  echo hello | strandline produce orders
  strandline consume orders -o start
"""


class _Parser(argparse.ArgumentParser):
    """The parser of the command line, and the class of the subparsers."""

    def _get_values(self, action: argparse.Action, arg_strings: list[str]) -> Any:
        # argparse drops `--` even where it is the value of an option, and returns an empty list instead.
        if arg_strings == ["--"] and action.option_strings and action.nargs is None:
            value = self._get_value(action, "--")
            self._check_value(action, value)
            return value
        return super()._get_values(action, arg_strings)


def parse(argv: list[str]) -> argparse.Namespace | None:
    """The parsed arguments, with the command as `run`; None without arguments, after printing the help."""
    parser = _Parser(
        prog="strandline",
        description="A Kafka-compatible cluster in Python.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("--version", action="version", version=f"strandline {__version__}")
    commands = parser.add_subparsers(metavar="COMMAND", required=True)
    chosen = next((word for word in argv if not word.startswith("-")), None)
    # Building parsers is slow, and those of the other commands are needed only for the list of commands.
    offered = {chosen: COMMANDS[chosen]} if argv and chosen == argv[0] and chosen in COMMANDS else COMMANDS
    for name, (module, summary) in offered.items():
        command = commands.add_parser(
            name, help=summary, description=summary[0].upper() + summary[1:] + ".", allow_abbrev=False
        )
        if name == chosen:
            import_module(module).configure(command)
    if not argv:
        parser.print_help()
        return None
    return parser.parse_args(_values_joined(argv))


# Options whose value may start with a dash, as in `-o -100:end`; argparse would take such a value for an option.
_DASH_VALUES = {"-o": "-o", "--offset": "--offset=", "-k": "-k", "--key": "--key=", "-f": "-f", "--format": "--format="}


def _values_joined(argv: list[str]) -> list[str]:
    if argv[0] not in ("consume", "produce"):
        return argv
    joined: list[str] = []
    words = iter(argv)
    for word in words:
        if word == "--":
            joined.append(word)
            joined.extend(words)
        elif word in _DASH_VALUES and (value := next(words, None)) is not None:
            joined.append(_DASH_VALUES[word] + value if value else word)
            if not value:
                joined.append(value)
        else:
            joined.append(word)
    return joined
