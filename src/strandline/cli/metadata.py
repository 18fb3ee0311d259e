"""`strandline metadata`: prints the metadata of a node, as a tree at any retained offset, or record by record.

Both commands read the files of a node, which may be running; see `cli/metadata_files`.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from typing import TYPE_CHECKING, Any

from strandline.cli.errors import CommandFailed, UsageError
from strandline.cli.options import DEFAULT_DATA, add_json_option, check_at_least_one
from strandline.cli.output import cell_text, faint, print_facts, print_json, print_json_line

if TYPE_CHECKING:
    from strandline.cli.metadata_files import MetadataFiles
    from strandline.cli.metadata_tree import Branch, Node
    from strandline.records.batch import BatchHeader

POLL_SECONDS = 0.2
WHERE = (
    f"a directory of `strandline up` (default: {DEFAULT_DATA}), a server.properties, a log directory, or a .log or "
    ".checkpoint file of __cluster_metadata-0"
)
SHOW = """\
The tree: /acls /brokers/ID /configs/KIND/NAME /controllers/ID /features /offset /producer-ids /quorum /quotas /scram
/tokens /topic-ids /topics/NAME/PARTITION. A path may contain the patterns * ? and […].

examples:
  strandline metadata show /
  strandline metadata show /topics/orders/0/isr
  strandline metadata show '/topics/*/*/leader'
  strandline metadata show --at 1234 /brokers/2/fenced     the state after record 1234
  strandline metadata show -r /configs --json
"""
LOG = """\
One line for each record: offset, epoch, type, fields. Records that are not known to be committed are left out.

examples:
  strandline metadata log
  strandline metadata log --from 1200 | grep PartitionChangeRecord
  strandline metadata log --follow
"""


def configure(parser: argparse.ArgumentParser) -> None:
    verbs = parser.add_subparsers(metavar="VERB", required=True)
    style = argparse.RawDescriptionHelpFormatter

    show = verbs.add_parser("show", help="print the metadata as a tree", epilog=SHOW, formatter_class=style)
    show.add_argument("path", metavar="PATH", nargs="?", default="/", help="a path in the tree (default: /)")
    show.add_argument(
        "--at", metavar="OFFSET", type=int, help="the state at this offset (default: the last committed one)"
    )
    show.add_argument("-r", "--recursive", action="store_true", help="everything below, one line for each leaf")
    show.set_defaults(run=run_show)

    log = verbs.add_parser(
        "log", help="print the metadata log, record by record", epilog=LOG, formatter_class=style, allow_abbrev=False
    )
    log.add_argument("--from", dest="start", metavar="OFFSET", type=int, default=0, help="start here (default: 0)")
    log.add_argument("-n", "--num", metavar="N", type=int, help="stop after N records")
    log.add_argument("--follow", action="store_true", help="continue as records are written, until Ctrl-C")
    log.set_defaults(run=run_log)

    for verb in (show, log):
        verb.add_argument("--data", metavar="DIR|FILE", default=DEFAULT_DATA, help=WHERE)
        verb.add_argument(
            "--node",
            metavar="ID",
            type=int,
            help="the node whose files to read (default: the one with the highest offset)",
        )
        add_json_option(verb)


def run_show(arguments: argparse.Namespace) -> int:
    from strandline.cli.metadata_files import find_metadata
    from strandline.cli.metadata_image import image_at
    from strandline.cli.metadata_tree import find, metadata_tree

    if arguments.at is not None and arguments.at < 0:
        raise UsageError(f"--at {arguments.at}: offsets start at 0")
    files = find_metadata(arguments.data, arguments.node)
    image, quorum = image_at(files, arguments.at)
    found = list(find(metadata_tree(image, quorum), arguments.path))
    if not found:
        raise CommandFailed(f"there is nothing at {arguments.path}: start with `strandline metadata show /`")
    if sys.stderr.isatty():
        print(faint(f"{files.directory} at offset {image.end_offset - 1}"), file=sys.stderr)
    _print_found(found, arguments)
    return 0


def _print_found(found: list[tuple[str, Node]], arguments: argparse.Namespace) -> None:
    from strandline.cli.metadata_tree import Branch, document, leaves

    single = len(found) == 1
    if arguments.json:
        print_json(document(found[0][1]) if single else {path: document(node) for path, node in found})
        return
    if arguments.recursive:
        for path, node in found:
            for each, value in leaves(node, path):
                print(f"{each}\t{cell_text(value)}")
        return
    if single and isinstance(found[0][1], Branch):
        _print_listing(found[0][1])
        return
    for path, node in found:
        text = "" if isinstance(node, Branch) else cell_text(node)
        print(text if single else f"{path}{'/' if isinstance(node, Branch) else ''}\t{text}".rstrip())


def _print_listing(branch: Branch) -> None:
    from strandline.cli.metadata_tree import Branch

    facts: list[tuple[str, object]] = []
    for name in branch.children:
        node = branch.child(name)
        facts.append((f"{name}/", "") if isinstance(node, Branch) else (name, cell_text(node)))
    print_facts(facts)


def run_log(arguments: argparse.Namespace) -> int:
    from strandline.cli.metadata_files import find_metadata

    check_at_least_one("-n", arguments.num)
    if arguments.start < 0:
        raise UsageError(f"--from {arguments.start}: offsets start at 0")
    files = find_metadata(arguments.data, arguments.node)
    printer = _LogPrinter(arguments)
    try:
        while printer.print_from(files) and arguments.follow:
            sys.stdout.flush()
            time.sleep(POLL_SECONDS)
    except KeyboardInterrupt:
        return 0
    return 0


class _LogPrinter:
    """Prints each record once, in order of offsets."""

    def __init__(self, arguments: argparse.Namespace) -> None:
        self._json = arguments.json
        self._next = arguments.start
        self._remaining = arguments.num

    def print_from(self, files: MetadataFiles) -> bool:
        """Prints new records; returns False once `--num` records are printed."""
        if files.snapshot_only is not None:
            raise UsageError(
                "this is a snapshot, not a log: `strandline metadata show` and `strandline log dump -r` read snapshots"
            )
        end = files.committed()
        return all(self._print_batch(header, batch, end) for header, batch in files.batches(self._next, end))

    def _print_batch(self, header: BatchHeader, batch: bytes, end: int | None) -> bool:
        from strandline.cli.log_dump import record_entries

        for entry in record_entries(header, batch, is_metadata=True):
            offset = entry["offset"]
            if offset < self._next or (end is not None and offset >= end):
                continue
            self._print(entry, header.partition_leader_epoch)
            self._next = offset + 1
            if self._remaining is not None:
                self._remaining -= 1
                if self._remaining == 0:
                    return False
        return True

    def _print(self, entry: dict[str, Any], epoch: int) -> None:
        kind = entry.get("record") or entry.get("control") or "damage"
        fields = entry.get("fields", {"why": entry.get("damage") or entry.get("why")})
        if self._json:
            print_json_line(
                {
                    "offset": entry["offset"],
                    "epoch": epoch,
                    "timestamp": entry.get("timestamp"),
                    "type": kind,
                    "version": entry.get("version"),
                    "fields": fields,
                }
            )
            return
        text = " ".join(f"{name}={_field(value)}" for name, value in _changed_fields(kind, fields).items())
        print(f"{entry['offset']} {epoch} {kind} {text}".rstrip())


def _changed_fields(kind: str, fields: dict[str, Any]) -> dict[str, Any]:
    """The fields to print: without nulls, and of a change record only the ids and what it changes."""
    from strandline.cli.log_dump import plain
    from strandline.protocol.messages import metadata_records

    schema = getattr(metadata_records, kind, None) if kind.endswith("ChangeRecord") else None
    unchanged = plain(schema()) if schema is not None else {}
    return {
        name: value
        for name, value in fields.items()
        if value is not None and (name.endswith("_id") or name not in unchanged or value != unchanged[name])
    }


def _field(value: Any) -> str:
    if isinstance(value, str) and value and not any(character.isspace() or character in '"=' for character in value):
        return value
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))
