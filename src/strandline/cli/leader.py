"""`strandline leader elect`: elects preferred leaders, or, as a last resort, unclean ones."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from strandline.cli.errors import CommandFailed, UsageError
from strandline.cli.options import add_client_options, add_json_option
from strandline.cli.output import hint, print_json, print_table
from strandline.cli.partition_arguments import PARTITIONS_METAVAR, named_topics
from strandline.cli.with_client import with_client
from strandline.model.errors import ErrorCode

if TYPE_CHECKING:
    from strandline.client.client import Client
    from strandline.model.errors import KafkaError
    from strandline.model.ids import TopicPartition

HELP = """\
The preferred leader of a partition is the first of its replicas. An unclean election may choose a replica without some
acknowledged records, which are then lost; so it is only held for partitions without a leader.

examples:
  strandline leader elect --all
  strandline leader elect orders payments:0,2
  strandline leader elect --unclean orders:1
"""


def configure(parser: argparse.ArgumentParser) -> None:
    verbs = parser.add_subparsers(metavar="VERB", required=True)
    elect = verbs.add_parser(
        "elect",
        help="elect leaders now",
        epilog=HELP,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    elect.add_argument("words", metavar=PARTITIONS_METAVAR, nargs="*", help="topics, or some of their partitions")
    elect.add_argument("--all", action="store_true", help="every partition of the cluster")
    kind = elect.add_mutually_exclusive_group()
    kind.add_argument("--preferred", action="store_true", help="the preferred replica, if it is in sync (default)")
    kind.add_argument(
        "--unclean", action="store_true", help="any live replica of partitions without a leader: records may be lost"
    )
    add_client_options(elect)
    add_json_option(elect)
    elect.set_defaults(run=run_elect)


def run_elect(arguments: argparse.Namespace) -> int:
    from strandline.client.admin.elections import Election

    if bool(arguments.words) == arguments.all:
        raise UsageError(f"give {PARTITIONS_METAVAR}, or --all")
    election = Election.UNCLEAN if arguments.unclean else Election.PREFERRED

    async def work(client: Client) -> dict[TopicPartition, KafkaError | None]:
        if arguments.all:
            return await client.elect_leaders(election, None)
        topics = await named_topics(client, arguments.words)
        return await client.elect_leaders(election, [each for _, partitions in topics for each in partitions])

    results = dict(sorted(with_client(arguments, work, "electing leaders").items()))
    if arguments.json:
        print_json(
            [
                {"topic": each.topic, "partition": each.partition, "status": _status(error), "error": _code(error)}
                for each, error in results.items()
            ]
        )
    elif not results:
        hint("no election was needed")
    else:
        rows = [(each.topic, each.partition, _status(error)) for each, error in results.items()]
        print_table(("TOPIC", "PARTITION", "STATUS"), rows)
    failed = [each for each, error in results.items() if error is not None and not _is_fine(error)]
    if failed:
        raise CommandFailed(f"{len(failed)} elections failed, the first for {failed[0]}: {results[failed[0]]}")
    return 0


def _is_fine(error: KafkaError) -> bool:
    return error.code == ErrorCode.ELECTION_NOT_NEEDED


def _status(error: KafkaError | None) -> str:
    if error is None:
        return "elected"
    return "not needed" if _is_fine(error) else f"failed: {error}"


def _code(error: KafkaError | None) -> str | None:
    return None if error is None else error.code.name
