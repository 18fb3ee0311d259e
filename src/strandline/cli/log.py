"""`strandline log dump FILE`: prints the files of a log, without a server."""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Iterator
from typing import Any

from strandline.cli.errors import CommandFailed, UsageError
from strandline.cli.options import add_json_option, check_at_least_one
from strandline.cli.output import bold, faint, print_json_line, styled


def configure(parser: argparse.ArgumentParser) -> None:
    verbs = parser.add_subparsers(metavar="VERB", required=True)
    dump = verbs.add_parser("dump", help="print batches, records, index entries, snapshots, checkpoints")
    dump.add_argument("files", metavar="FILE", nargs="+", help="a file of a log, or a partition directory")
    dump.add_argument("-r", "--records", action="store_true", help="also the records in each batch")
    dump.add_argument("-n", "--num", metavar="N", type=int, help="stop after N entries of each file")
    add_json_option(dump)
    dump.set_defaults(run=run_dump)


def run_dump(arguments: argparse.Namespace) -> int:
    from strandline.cli.log_dump import NotALogFile, dump

    check_at_least_one("-n", arguments.num)
    files = [file for path in arguments.files for file in _files(path)]
    damaged = 0
    for file in files:
        if len(files) > 1 and not arguments.json:
            print(bold(file))
        try:
            for number, entry in enumerate(dump(file, records=arguments.records)):
                if number == arguments.num:
                    break
                damaged += entry["type"] == "damage" or entry.get("valid") is False or "damage" in entry
                _print(entry, file if len(files) > 1 else None, as_json=arguments.json)
        except NotALogFile as error:
            raise UsageError(str(error)) from error
        except BrokenPipeError:
            raise
        except OSError as error:
            raise CommandFailed(f"{file}: {error.strerror}") from error
    if damaged:
        raise CommandFailed(f"{damaged} damaged entries")
    return 0


def _files(path: str) -> Iterator[str]:
    """The file itself, or the segments and metadata snapshots in a partition directory."""
    if not os.path.exists(path):
        raise CommandFailed(f"{path}: no such file or directory")
    if not os.path.isdir(path):
        yield path
        return
    names = [name for name in sorted(os.listdir(path)) if name.endswith((".log", ".checkpoint"))]
    if not names:
        raise CommandFailed(f"{path} holds no *.log: is it a partition directory, such as DIR/orders-0?")
    for name in names:
        yield os.path.join(path, name)


def _print(entry: dict[str, Any], file: str | None, *, as_json: bool) -> None:
    if as_json:
        print_json_line(entry if file is None else {"file": file, **entry})
        return
    entry = dict(entry)
    kind = entry.pop("type")
    if kind == "line":
        print(entry["text"])
        return
    if kind == "damage":
        kind = styled(kind, "31")
    indent = "  " if kind == "record" else ""
    print(indent + faint(kind) + " " + " ".join(f"{name}={_shown(value)}" for name, value in entry.items()))


def _shown(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, str) and sys.stdout.isatty():
        return value
    if isinstance(value, (dict, list, str)) or value is None:
        return json.dumps(value, ensure_ascii=False)
    return str(value)
