"""`strandline group reset`: sets the committed offsets of a group without members. It only shows what it would do,
until --execute is given.
"""

from __future__ import annotations

import argparse
import time
from typing import TYPE_CHECKING, Any

from strandline.cli.errors import CommandFailed, UsageError
from strandline.cli.offset_range import InvalidOffsets, OffsetSpec, parse_offsets
from strandline.cli.options import add_client_options, add_json_option
from strandline.cli.output import hint, print_json, print_table
from strandline.cli.partition_arguments import PARTITIONS_METAVAR, named_topics
from strandline.cli.resolve_offsets import resolve_start
from strandline.cli.with_client import with_client
from strandline.model.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from strandline.client.client import Client
    from strandline.model.ids import TopicPartition

HELP = """\
offsets:  start, end, 47, +10 (after the start), -100 (before the end), @-1h, @2024-02-14, @1622505600000
Offsets before the first or after the last of a partition are moved to the nearest that exists.

examples:
  strandline group reset billing --to start                                shows the new offsets
  strandline group reset billing --to @-1h --topic orders:0,2 --execute    sets them
"""


def configure(parser: argparse.ArgumentParser) -> None:
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.epilog = HELP
    parser.add_argument("group", metavar="GROUP")
    parser.add_argument(
        "--topic",
        dest="words",
        metavar=PARTITIONS_METAVAR,
        action="append",
        default=[],
        help="only this topic, or some of its partitions; may be repeated (default: all with a committed offset)",
    )
    parser.add_argument("--to", metavar="OFFSET", required=True, help="the new offset of every partition")
    parser.add_argument("--execute", action="store_true", help="set the offsets (default: only show them)")
    add_client_options(parser)
    add_json_option(parser)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    try:
        offsets = parse_offsets(arguments.to, time.time_ns() // 1_000_000)
    except InvalidOffsets as error:
        raise UsageError(f"--to: {error}") from error
    if offsets.end is not None:
        raise UsageError(f"--to {arguments.to!r}: give one offset, not a range")
    rows = with_client(
        arguments, lambda client: _reset(client, arguments, offsets.start), f"resetting {arguments.group}"
    )
    if arguments.json:
        print_json({"group": arguments.group, "executed": arguments.execute, "partitions": rows})
    else:
        keys = ("topic", "partition", "before", "after")
        print_table(("TOPIC", "PARTITION", "BEFORE", "AFTER"), [[row[key] for key in keys] for row in rows])
        if not arguments.execute:
            hint("nothing was changed: add --execute to set these offsets")
    failed = [row for row in rows if row["error"]]
    if failed:
        raise CommandFailed(
            f"{len(failed)} of {len(rows)} offsets were not set, the first of "
            f"{failed[0]['topic']}-{failed[0]['partition']}: {failed[0]['error']}"
        )
    return 0


async def _reset(client: Client, arguments: argparse.Namespace, place: OffsetSpec) -> list[dict[str, Any]]:
    from strandline.client.admin.committed_offsets import CommittedOffset

    group_id = arguments.group
    await _check_inactive(client, group_id)
    before = await client.groups.offsets(group_id)
    partitions = await _chosen(client, arguments, sorted(before))
    after = await resolve_start(client, partitions, place)
    failed: dict[TopicPartition, KafkaError] = {}
    if arguments.execute:
        new = {each: CommittedOffset(offset) for each, offset in after.items()}
        failed = await client.groups.set_offsets(group_id, new)
        if any(error.code == ErrorCode.UNKNOWN_MEMBER_ID for error in failed.values()):
            raise CommandFailed(f"group {group_id!r} has members now: stop them first")
    return [
        {
            "topic": each.topic,
            "partition": each.partition,
            "before": before[each].offset if each in before else None,
            "after": after[each],
            "error": failed[each].code.name if each in failed else None,
        }
        for each in partitions
    ]


async def _check_inactive(client: Client, group_id: str) -> None:
    try:
        group = await client.groups.describe(group_id)
    except KafkaError as error:
        if error.code != ErrorCode.GROUP_ID_NOT_FOUND:
            raise
        return  # the first committed offset creates the group
    if group.is_active:
        raise CommandFailed(
            f"group {group_id!r} is {group.state.lower()} with {len(group.members)} members, which would overwrite the "
            "offsets: stop them first (`strandline group members` lists them)"
        )


async def _chosen(
    client: Client, arguments: argparse.Namespace, committed: list[TopicPartition]
) -> list[TopicPartition]:
    if arguments.words:
        return [each for _, named in await named_topics(client, arguments.words) for each in named]
    if not committed:
        raise CommandFailed(
            f"group {arguments.group!r} has no committed offsets: name the topics, for example "
            f"`strandline group reset {arguments.group} --to start --topic orders`"
        )
    return committed
