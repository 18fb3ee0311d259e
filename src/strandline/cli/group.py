"""`strandline group`: list, describe, members, lag, delete, delete-offsets; `cli/group_reset` is its subcommand
`reset`."""

from __future__ import annotations

import argparse
import time
from typing import TYPE_CHECKING, Any

from strandline.cli import group_reset
from strandline.cli.errors import CommandFailed, UsageError
from strandline.cli.options import add_client_options, add_json_option
from strandline.cli.output import hint, print_facts, print_json, print_json_line, print_section, print_table
from strandline.cli.partition_arguments import PARTITIONS_METAVAR, named_topics
from strandline.cli.with_client import explain_error, with_client
from strandline.model.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from strandline.client.client import Client
    from strandline.client.core.group_descriptions import GroupDescription, GroupListing
    from strandline.client.core.unread import Lag
    from strandline.model.ids import TopicPartition

WATCH_SECONDS = 2.0


def configure(parser: argparse.ArgumentParser) -> None:
    verbs = parser.add_subparsers(metavar="VERB", required=True)

    listing = verbs.add_parser("list", help="list groups", allow_abbrev=False)
    listing.add_argument("--state", action="append", default=[], help="only in this state: stable, empty, …")
    listing.add_argument("--type", action="append", default=[], help="only of this type: classic, consumer")
    listing.set_defaults(run=run_list)

    describe = verbs.add_parser("describe", help="show state, committed offsets and lag of groups", allow_abbrev=False)
    describe.add_argument("groups", metavar="GROUP", nargs="+")
    describe.set_defaults(run=run_describe)

    members = verbs.add_parser("members", help="show the members of groups and their partitions", allow_abbrev=False)
    members.add_argument("groups", metavar="GROUP", nargs="+")
    members.set_defaults(run=run_members)

    lag = verbs.add_parser("lag", help="show how far groups are behind, in records and seconds", allow_abbrev=False)
    lag.add_argument("groups", metavar="GROUP", nargs="*", help="default: every group")
    lag.add_argument(
        "--watch",
        metavar="SECONDS",
        type=float,
        nargs="?",
        const=WATCH_SECONDS,
        help=f"print it again after so many seconds (default: {WATCH_SECONDS:g}), until Ctrl-C",
    )
    lag.set_defaults(run=run_lag)

    group_reset.configure(verbs.add_parser("reset", help="set the committed offsets of a group", allow_abbrev=False))

    delete = verbs.add_parser("delete", help="delete groups without members, and their offsets", allow_abbrev=False)
    delete.add_argument("groups", metavar="GROUP", nargs="+")
    delete.add_argument("--if-exists", action="store_true", help="do not fail if the group does not exist")
    delete.set_defaults(run=run_delete)

    offsets = verbs.add_parser("delete-offsets", help="delete committed offsets of a group", allow_abbrev=False)
    offsets.add_argument("group", metavar="GROUP")
    offsets.add_argument("words", metavar=PARTITIONS_METAVAR, nargs="+", help="topics, or some of their partitions")
    offsets.set_defaults(run=run_delete_offsets)

    for verb in (listing, describe, members, lag, delete, offsets):
        add_client_options(verb)
        add_json_option(verb)


def run_list(arguments: argparse.Namespace) -> int:
    async def work(client: Client) -> list[GroupListing]:
        return await client.groups.list(arguments.state, arguments.type)

    groups = with_client(arguments, work, "listing groups")
    if arguments.json:
        print_json(
            [
                {
                    "group": each.group_id,
                    "type": each.type,
                    "state": each.state,
                    "protocol_type": each.protocol_type,
                    "coordinator": each.coordinator,
                }
                for each in groups
            ]
        )
    else:
        rows = [(each.group_id, each.type, each.state, each.protocol_type or None, each.coordinator) for each in groups]
        print_table(("GROUP", "TYPE", "STATE", "PROTOCOL", "COORDINATOR"), rows)
    return 0


def run_describe(arguments: argparse.Namespace) -> int:
    async def work(client: Client) -> list[dict[str, Any]]:
        return [await _described(client, group_id) for group_id in arguments.groups]

    described = with_client(arguments, work, f"describing {', '.join(arguments.groups)}")
    if arguments.json:
        print_json(described[0] if len(described) == 1 else described)
        return 0
    for index, group in enumerate(described):
        if index:
            print()
        print_facts([(key.replace("_", " "), value) for key, value in group.items() if key != "partitions"])
        print_section("partitions")
        columns = ("TOPIC", "PARTITION", "COMMITTED", "END", "LAG", "LAG SECONDS", "CLIENT", "MEMBER")
        keys = ("topic", "partition", "committed", "end", "lag", "lag_seconds", "client_id", "member")
        print_table(columns, [[each[key] for key in keys] for each in group["partitions"]], kind="partition")
        _print_errors(group["partitions"])
    return 0


async def describe_group(client: Client, group_id: str) -> GroupDescription:
    try:
        return await client.groups.describe(group_id)
    except KafkaError as error:
        if error.code != ErrorCode.GROUP_ID_NOT_FOUND:
            raise
        raise CommandFailed(f"there is no group {group_id!r}: `strandline group list` lists the groups") from error


async def _described(client: Client, group_id: str) -> dict[str, Any]:
    group = await describe_group(client, group_id)
    partitions = _rows(await client.group_lag(group_id), client)
    known = {(each["topic"], each["partition"]) for each in partitions}
    owners = {partition: member for member in group.members for partition in member.assigned}
    for partition in sorted(each for each in owners if each not in known):
        partitions.append(_row(partition, None, 0))
    for row in partitions:
        owner = next((member for each, member in owners.items() if each == (row["topic"], row["partition"])), None)
        row["member"] = None if owner is None else owner.member_id
        row["client_id"] = None if owner is None else owner.client_id
        row["host"] = None if owner is None else owner.host
    return {
        "group": group.group_id,
        "type": group.type,
        "state": group.state,
        "assignor": group.assignor or None,
        "coordinator": group.coordinator,
        "members": len(group.members),
        "lag": sum(each["lag"] or 0 for each in partitions),
        "lag_seconds": max((each["lag_seconds"] or 0 for each in partitions), default=0),
        "partitions": sorted(partitions, key=lambda each: (each["topic"], each["partition"])),
    }


def _rows(lags: dict[TopicPartition, Lag], client: Client) -> list[dict[str, Any]]:
    wall_ms = client.router.world.clock.wall_ms()
    return [_row(partition, lag, wall_ms) for partition, lag in sorted(lags.items())]


def _row(partition: TopicPartition, lag: Lag | None, wall_ms: int) -> dict[str, Any]:
    """Without a lag: nothing is committed. With an error: the leader did not say where the partition ends."""
    row: dict[str, Any] = {"topic": partition.topic, "partition": partition.partition}
    if lag is None:
        return {**row, "committed": None, "end": None, "lag": None, "lag_seconds": None, "error": None}
    return {
        **row,
        "committed": lag.committed,
        "end": None if lag.error else lag.log_end,
        "lag": None if lag.error else lag.records,
        "lag_seconds": None if lag.error else lag.age_ms(wall_ms) / 1000,
        "error": lag.error,
    }


def _print_errors(rows: list[dict[str, Any]]) -> None:
    for row in rows:
        if row["error"]:
            hint(f"{row['topic']}-{row['partition']}: {row['error']}")


def run_members(arguments: argparse.Namespace) -> int:
    async def work(client: Client) -> list[GroupDescription]:
        return [await describe_group(client, group_id) for group_id in arguments.groups]

    groups = with_client(arguments, work, f"describing {', '.join(arguments.groups)}")
    members = [
        {
            "group": group.group_id,
            "member": each.member_id,
            "instance_id": each.instance_id,
            "client_id": each.client_id,
            "host": each.host,
            "epoch": each.epoch,
            "topics": list(each.topics),
            "partitions": [str(partition) for partition in sorted(each.assigned)],
        }
        for group in groups
        for each in group.members
    ]
    if arguments.json:
        print_json(members)
    else:
        columns = ("GROUP", "CLIENT", "HOST", "PARTITIONS", "INSTANCE", "MEMBER")
        keys = ("group", "client_id", "host", "partitions", "instance_id", "member")
        print_table(columns, [[each[key] for key in keys] for each in members])
    return 0


def run_lag(arguments: argparse.Namespace) -> int:
    if arguments.watch is not None and arguments.watch <= 0:
        raise UsageError(f"--watch {arguments.watch:g}: must be more than 0 seconds")

    async def work(client: Client) -> None:
        while True:
            rows = await _lags(client, arguments.groups)
            _print_lags(arguments, rows)
            if arguments.watch is None:
                return
            await client.router.sleep(round(arguments.watch * 1000))

    try:
        with_client(arguments, work, "asking for the lag" if arguments.watch is None else None)
    except KeyboardInterrupt:
        return 0
    return 0


async def _lags(client: Client, groups: list[str]) -> list[dict[str, Any]]:
    rows = []
    for group_id in groups or [each.group_id for each in await client.groups.list()]:
        lags = await client.group_lag(group_id)
        if not lags and groups:
            await describe_group(client, group_id)
        rows += [{"group": group_id, **row} for row in _rows(lags, client)]
    return rows


def _print_lags(arguments: argparse.Namespace, rows: list[dict[str, Any]]) -> None:
    if arguments.json and arguments.watch is not None:
        print_json_line({"time": round(time.time(), 3), "partitions": rows})
    elif arguments.json:
        print_json(rows)
    else:
        columns = ("GROUP", "TOPIC", "PARTITION", "COMMITTED", "END", "LAG", "LAG SECONDS")
        keys = ("group", "topic", "partition", "committed", "end", "lag", "lag_seconds")
        if arguments.watch is not None:
            print_section(time.strftime("%H:%M:%S"))
        print_table(columns, [[row[key] for key in keys] for row in rows])
        _print_errors(rows)


def run_delete(arguments: argparse.Namespace) -> int:
    async def work(client: Client) -> list[dict[str, Any]]:
        results: list[dict[str, Any]] = []
        for group_id in arguments.groups:
            try:
                await client.groups.delete(group_id)
                results.append({"group": group_id, "deleted": True})
            except KafkaError as error:
                missing = error.code == ErrorCode.GROUP_ID_NOT_FOUND
                if missing and arguments.if_exists:
                    results.append({"group": group_id, "deleted": False})
                    continue
                why = f"there is no group {group_id!r}" if missing else str(explain_error(error, arguments.bootstrap))
                results.append({"group": group_id, "deleted": False, "error": error.code.name, "why": why})
        return results

    results = with_client(arguments, work, f"deleting {', '.join(arguments.groups)}")
    if arguments.json:
        print_json(results)
    else:
        rows = [
            (each["group"], "deleted" if each["deleted"] else each.get("why", "does not exist")) for each in results
        ]
        print_table(("GROUP", "STATUS"), rows)
    failed = [each["why"] for each in results if "error" in each]
    if failed:
        raise CommandFailed("; ".join(failed))
    return 0


def run_delete_offsets(arguments: argparse.Namespace) -> int:
    async def work(client: Client) -> list[dict[str, Any]]:
        topics = await named_topics(client, arguments.words)
        partitions = [each for _, named in topics for each in named]
        try:
            failed = await client.groups.delete_offsets(arguments.group, partitions)
        except KafkaError as error:
            if error.code != ErrorCode.GROUP_ID_NOT_FOUND:
                raise
            raise CommandFailed(f"there is no group {arguments.group!r}") from error
        return [
            {
                "topic": each.topic,
                "partition": each.partition,
                "deleted": each not in failed,
                "error": failed[each].code.name if each in failed else None,
            }
            for each in partitions
        ]

    results = with_client(arguments, work, f"deleting offsets of {arguments.group}")
    if arguments.json:
        print_json(results)
    else:
        rows = [(each["topic"], each["partition"], each["error"] or "deleted") for each in results]
        print_table(("TOPIC", "PARTITION", "STATUS"), rows)
    if any(not each["deleted"] for each in results):
        raise CommandFailed(
            "some offsets were not deleted: a group that is subscribed to a topic keeps its offsets of that topic"
        )
    return 0
