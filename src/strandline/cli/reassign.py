"""`strandline topic reassign`: moves replicas of partitions to other brokers."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from strandline.cli.errors import CommandFailed, UsageError
from strandline.cli.options import add_client_options, add_json_option, check_at_least_one
from strandline.cli.output import hint, print_json, print_table
from strandline.cli.partition_arguments import PARTITIONS_METAVAR, named_topics, parse_brokers
from strandline.cli.reassignment_run import ReassignmentRun
from strandline.cli.with_client import with_client
from strandline.model.ids import TopicPartition

if TYPE_CHECKING:
    from strandline.client.client import Client
    from strandline.client.core.descriptions import Reassignment
    from strandline.client.core.replica_placement import Moves

HELP = """\
A plan is JSON in the format of Kafka's tools:
  {"version": 1, "partitions": [{"topic": "orders", "partition": 0, "replicas": [1, 2, 3]}]}
The first replica is the preferred leader. Moves continue after the command returns; --wait waits for them.

examples:
  strandline topic reassign orders:0 --to 2,3,4        partition 0 to these brokers, preferred leader 2
  strandline topic reassign orders --to 2,3,4 --wait   all partitions, preferred leaders in turn
  strandline topic reassign --status                   the moves in progress
  strandline topic reassign orders --cancel            back to the original replicas
  strandline topic reassign --generate --to 1,2,3,4 > plan.json
  strandline topic reassign --file plan.json --wait
"""


def configure(parser: argparse.ArgumentParser) -> None:
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.epilog = HELP
    parser.add_argument("words", metavar=PARTITIONS_METAVAR, nargs="*", help="topics, or some of their partitions")
    parser.add_argument("--to", metavar="ID,…", help="the brokers, one replica on each")
    action = parser.add_mutually_exclusive_group()
    action.add_argument("--file", metavar="PLAN", help="carry out this plan (- for standard input)")
    action.add_argument("--status", action="store_true", help="show the moves in progress")
    action.add_argument("--cancel", action="store_true", help="cancel moves in progress (--all: all of them)")
    action.add_argument("--generate", action="store_true", help="print a plan that spreads topics evenly over --to")
    parser.add_argument("-r", "--replicas", type=int, help="with --generate: the replication factor (default: as now)")
    parser.add_argument("--all", action="store_true", help="with --cancel: all moves in progress")
    parser.add_argument("--wait", action="store_true", help="wait until all moves have completed")
    add_client_options(parser)
    add_json_option(parser)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    if arguments.status:
        return _run_status(arguments)
    if arguments.cancel:
        return _run_cancel(arguments)
    if arguments.generate:
        return _run_generate(arguments)
    if arguments.file is not None:
        if arguments.words or arguments.to:
            raise UsageError("--file cannot be combined with topics or --to")
        return _run_moves(arguments, parse_plan(_read(arguments.file), arguments.file))
    if not arguments.words or not arguments.to:
        raise UsageError(f"give {PARTITIONS_METAVAR} and --to ID,…, or --file, --status, --cancel, --generate")
    return _run_moves(arguments, None)


def _read(path: str) -> str:
    try:
        if path == "-":
            return sys.stdin.read()
        with open(path, encoding="utf-8") as file:
            return file.read()
    except OSError as error:
        raise CommandFailed(f"{path}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise UsageError(f"{path} is not a plan: it is not text") from error


def parse_plan(text: str, where: str) -> Moves:
    try:
        entries = json.loads(text)["partitions"]
        moves = {
            TopicPartition(str(entry["topic"]), int(entry["partition"])): [int(each) for each in entry["replicas"]]
            for entry in entries
        }
    except (ValueError, KeyError, TypeError) as error:
        missing = f"an entry has no {error.args[0]}" if isinstance(error, KeyError) else "it is not JSON of this format"
        raise UsageError(f"{where} is not a plan ({missing}); `strandline topic reassign --help` shows one") from error
    if not moves:
        raise UsageError(f"{where} moves nothing")
    if len(moves) < len(entries):
        raise UsageError(f"{where} names a partition twice")
    return moves


def as_plan(moves: Mapping[TopicPartition, Sequence[int]]) -> dict[str, Any]:
    return {
        "version": 1,
        "partitions": [
            {"topic": each.topic, "partition": each.partition, "replicas": list(replicas)}
            for each, replicas in sorted(moves.items())
        ],
    }


def _run_moves(arguments: argparse.Namespace, planned: Moves | None) -> int:
    from strandline.client.core.replica_placement import plan_everywhere

    brokers = parse_brokers(arguments.to, "--to") if planned is None else []
    moving: list[ReassignmentRun] = []

    async def work(client: Client) -> tuple[Moves, dict[TopicPartition, list[int]]]:
        words = arguments.words if planned is None else sorted({each.topic for each in planned})
        topics = await named_topics(client, words)
        before = {
            TopicPartition(topic.name, each.index): list(each.replicas)
            for topic, _ in topics
            for each in topic.partitions
        }
        moves = planned or plan_everywhere([each for _, partitions in topics for each in partitions], brokers)
        moving.append(ReassignmentRun(moves))
        if arguments.wait:
            await moving[0].run(client)
        else:
            await moving[0].start_all(client)
        return moves, before

    def progress_text() -> str:
        return moving[0].progress_text() if moving else "describing the topics"

    moves, before = with_client(arguments, work, progress_text)
    status = "moved" if arguments.wait else "begun"
    if arguments.json:
        print_json(
            [
                {"topic": each.topic, "partition": each.partition, "from": before.get(each), "to": to, "status": status}
                for each, to in sorted(moves.items())
            ]
        )
        return 0
    rows = [(each.topic, each.partition, before.get(each), to, status) for each, to in sorted(moves.items())]
    print_table(("TOPIC", "PARTITION", "FROM", "TO", "STATUS"), rows)
    if not arguments.wait:
        hint("`strandline topic reassign --status` shows the moves in progress, --cancel cancels them")
    return 0


def _run_status(arguments: argparse.Namespace) -> int:
    async def work(client: Client) -> list[Reassignment]:
        if not arguments.words:
            return await client.reassignments.ongoing()
        topics = await named_topics(client, arguments.words)
        return await client.reassignments.ongoing([each for _, partitions in topics for each in partitions])

    under_way = with_client(arguments, work, "listing the moves in progress")
    if arguments.json:
        print_json(
            [
                {
                    "topic": each.partition.topic,
                    "partition": each.partition.partition,
                    "replicas": list(each.replicas),
                    "adding": list(each.adding),
                    "removing": list(each.removing),
                }
                for each in under_way
            ]
        )
        return 0
    if not under_way:
        hint("no moves are in progress")
        return 0
    rows = [(*each.partition, each.replicas, each.adding, each.removing) for each in under_way]
    print_table(("TOPIC", "PARTITION", "REPLICAS", "ADDING", "REMOVING"), rows)
    return 0


def _run_cancel(arguments: argparse.Namespace) -> int:
    if not arguments.words and not arguments.all:
        raise UsageError(f"give {PARTITIONS_METAVAR}, or --all")

    async def work(client: Client) -> list[TopicPartition]:
        named = None
        if arguments.words:
            topics = await named_topics(client, arguments.words)
            named = [each for _, partitions in topics for each in partitions]
        under_way = [each.partition for each in await client.reassignments.ongoing(named)]
        rejected = await client.reassignments.cancel(under_way) if under_way else {}
        if rejected:
            reasons = "; ".join(f"{partition}: {error}" for partition, error in list(rejected.items())[:5])
            raise CommandFailed(f"{len(rejected)} moves could not be cancelled: {reasons}")
        return under_way

    cancelled = with_client(arguments, work, "cancelling")
    if arguments.json:
        print_json([{"topic": each.topic, "partition": each.partition, "status": "cancelled"} for each in cancelled])
        return 0
    if not cancelled:
        hint("no moves are in progress")
        return 0
    print_table(("TOPIC", "PARTITION", "STATUS"), [(*each, "cancelled") for each in cancelled])
    return 0


def _run_generate(arguments: argparse.Namespace) -> int:
    from strandline.client.core.replica_placement import plan_spread

    allowed = None if arguments.to is None else parse_brokers(arguments.to, "--to")
    check_at_least_one("-r", arguments.replicas)

    async def work(client: Client) -> Moves:
        brokers = (await client.cluster.describe()).brokers
        known = {broker.id for broker in brokers}
        unknown = [each for each in allowed or () if each not in known]
        if unknown:
            raise CommandFailed(f"there is no broker {unknown[0]}: `strandline broker list` lists the brokers")
        topics = await named_topics(client, arguments.words)
        placement = {
            TopicPartition(topic.name, each.index): each.replicas
            for topic, partitions in topics
            for each in topic.partitions
            if TopicPartition(topic.name, each.index) in partitions
        }
        chosen = [each for each in brokers if (each.id in allowed if allowed is not None else not each.fenced)]
        try:
            return plan_spread(placement, chosen, arguments.replicas)
        except ValueError as error:
            raise CommandFailed(str(error)) from error

    # The plan is the input of the next command, so it is always JSON.
    print_json(as_plan(with_client(arguments, work, "planning")))
    return 0
