"""`strandline txn`: list and describe transactions, find hanging ones, and abort those."""

from __future__ import annotations

import argparse
import time
from typing import TYPE_CHECKING, Any

from strandline.cli.errors import CommandFailed, UsageError
from strandline.cli.options import add_client_options, add_json_option
from strandline.cli.output import hint, print_facts, print_json, print_table
from strandline.cli.partition_arguments import PARTITIONS_METAVAR, named_topics
from strandline.cli.with_client import with_client
from strandline.model.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from strandline.client.admin.transactions import TransactionListing
    from strandline.client.client import Client
    from strandline.client.core.hanging_transactions import OpenTransaction, TransactionDescription
    from strandline.model.ids import TopicPartition

DEFAULT_MINUTES = 15.0
"""transaction.max.timeout.ms: coordinators abort older transactions."""
HELP = """\
A transaction hangs if it is open on a partition, but no coordinator is going to end it: readers of committed records
wait for it without end. `abort` ends it on that partition, unless its coordinator knows it as ongoing.

examples:
  strandline txn list --state Ongoing --min-seconds 60
  strandline txn find-hanging orders
  strandline txn abort orders:0 --start-offset 4711
"""


def configure(parser: argparse.ArgumentParser) -> None:
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.epilog = HELP
    verbs = parser.add_subparsers(metavar="VERB", required=True)

    listing = verbs.add_parser("list", help="list transactional ids", allow_abbrev=False)
    listing.add_argument("--state", action="append", default=[], help="only in this state: Ongoing, PrepareCommit, …")
    listing.add_argument("--producer-id", type=int, action="append", default=[], help="only with this producer id")
    listing.add_argument("--min-seconds", type=float, help="only transactions that are open for longer")
    listing.set_defaults(run=run_list)

    describe = verbs.add_parser("describe", help="show the state and partitions of transactions", allow_abbrev=False)
    describe.add_argument("ids", metavar="ID", nargs="+")
    describe.set_defaults(run=run_describe)

    hanging = verbs.add_parser(
        "find-hanging", help="find transactions that no coordinator will end", allow_abbrev=False
    )
    hanging.add_argument("words", metavar=PARTITIONS_METAVAR, nargs="*", help="default: every topic")
    hanging.add_argument(
        "--min-minutes",
        type=float,
        default=DEFAULT_MINUTES,
        help=f"only without records for longer (default: {DEFAULT_MINUTES:g}, as transaction.max.timeout.ms)",
    )
    hanging.set_defaults(run=run_find_hanging)

    abort = verbs.add_parser("abort", help="abort a hanging transaction on a partition", allow_abbrev=False)
    abort.add_argument("partition", metavar="TOPIC:P")
    abort.add_argument("--start-offset", type=int, required=True, help="the first offset of the transaction")
    abort.set_defaults(run=run_abort)

    for verb in (listing, describe, hanging, abort):
        add_client_options(verb)
        add_json_option(verb)


def run_list(arguments: argparse.Namespace) -> int:
    from strandline.client.core.hanging_transactions import ONGOING

    min_ms = -1 if arguments.min_seconds is None else round(arguments.min_seconds * 1000)
    # Ids without an open transaction have no start, and Kafka's duration filter includes them.
    states = arguments.state or ([] if min_ms < 0 else sorted(ONGOING))

    async def work(client: Client) -> Sequence[TransactionListing]:
        return await client.transactions.list(states=states, producer_ids=arguments.producer_id, min_duration_ms=min_ms)

    found = with_client(arguments, work, "listing transactions")
    rows = [(each.transactional_id, each.state, each.producer_id, each.coordinator) for each in found]
    if arguments.json:
        keys = ("transactional_id", "state", "producer_id", "coordinator")
        print_json([dict(zip(keys, row, strict=True)) for row in rows])
    else:
        print_table(("ID", "STATE", "PRODUCER", "COORDINATOR"), rows)
    return 0


def run_describe(arguments: argparse.Namespace) -> int:
    async def work(client: Client) -> list[dict[str, Any]]:
        return [_document(await _describe(client, each)) for each in arguments.ids]

    found = with_client(arguments, work, f"describing {', '.join(arguments.ids)}")
    if arguments.json:
        print_json(found[0] if len(found) == 1 else found)
        return 0
    for index, document in enumerate(found):
        if index:
            print()
        print_facts([(key.replace("_", " "), value) for key, value in document.items()])
    return 0


async def _describe(client: Client, transactional_id: str) -> TransactionDescription:
    try:
        return await client.transactions.describe(transactional_id)
    except KafkaError as error:
        if error.code != ErrorCode.TRANSACTIONAL_ID_NOT_FOUND:
            raise
        raise CommandFailed(
            f"there is no transactional id {transactional_id!r}: `strandline txn list` lists them"
        ) from error


def _document(found: TransactionDescription) -> dict[str, Any]:
    is_open = found.start_ms >= 0
    return {
        "transactional_id": found.transactional_id,
        "state": found.state,
        "coordinator": found.coordinator,
        "producer_id": found.producer_id,
        "producer_epoch": found.producer_epoch,
        "timeout_seconds": found.timeout_ms / 1000,
        "open_seconds": max(0.0, round(time.time() - found.start_ms / 1000, 3)) if is_open else None,
        "partitions": [str(each) for each in found.partitions],
    }


def run_find_hanging(arguments: argparse.Namespace) -> int:
    from strandline.client.core.hanging_transactions import older_than

    async def work(client: Client) -> list[OpenTransaction]:
        topics = await named_topics(client, arguments.words)
        partitions = [each for _, named in topics for each in named]
        candidates = older_than(
            await _open_on(client, partitions), round(arguments.min_minutes * 60_000), time.time_ns() // 1_000_000
        )
        return await _hanging(client, candidates)

    found = with_client(arguments, work, "asking for open transactions")
    wall_ms = time.time_ns() // 1_000_000
    rows = [
        {
            "topic": each.partition.topic,
            "partition": each.partition.partition,
            "start_offset": each.start_offset,
            "producer_id": each.producer_id,
            "producer_epoch": each.producer_epoch,
            "idle_seconds": max(0, wall_ms - each.last_timestamp_ms) / 1000,
        }
        for each in found
    ]
    if arguments.json:
        print_json(rows)
    elif rows:
        columns = ("TOPIC", "PARTITION", "START OFFSET", "PRODUCER", "EPOCH", "IDLE SECONDS")
        print_table(columns, [list(row.values()) for row in rows])
    else:
        hint("no transaction hangs")
    return 0


async def _open_on(client: Client, partitions: list[TopicPartition]) -> list[OpenTransaction]:
    found: list[OpenTransaction] = []
    for result in (await client.transactions.open_on(partitions)).values():
        if isinstance(result, KafkaError):
            raise result
        found += result
    return found


async def _hanging(client: Client, candidates: list[OpenTransaction]) -> list[OpenTransaction]:
    """Compares what partitions and coordinators know."""
    from strandline.client.core.hanging_transactions import find_hanging

    if not candidates:
        return []
    described = {}
    for listed in await client.transactions.list(producer_ids={each.producer_id for each in candidates}):
        try:
            described[listed.producer_id] = await client.transactions.describe(listed.transactional_id)
        except KafkaError as error:
            if error.code != ErrorCode.TRANSACTIONAL_ID_NOT_FOUND:
                raise
    return find_hanging(candidates, described)


def run_abort(arguments: argparse.Namespace) -> int:
    topic, colon, number = arguments.partition.rpartition(":")
    if not (topic and colon and number.isdigit()):
        raise UsageError(f"{arguments.partition!r} is not TOPIC:P, for example orders:0")

    async def work(client: Client) -> OpenTransaction:
        topics = await named_topics(client, [arguments.partition])
        partitions = [each for _, named in topics for each in named]
        at = [each for each in await _open_on(client, partitions) if each.start_offset == arguments.start_offset]
        if not at:
            raise CommandFailed(
                f"no transaction that begins at offset {arguments.start_offset} is open on {arguments.partition}: "
                "`strandline txn find-hanging` lists those that hang"
            )
        if not await _hanging(client, at):
            raise CommandFailed(
                f"the transaction of producer id {at[0].producer_id} is ongoing at its coordinator, which ends it: see "
                f"`strandline txn list --producer-id {at[0].producer_id}`"
            )
        await client.transactions.abort(at[0])
        return at[0]

    aborted = with_client(arguments, work, f"aborting on {arguments.partition}")
    if arguments.json:
        print_json({"topic": topic, "partition": int(number), "producer_id": aborted.producer_id, "aborted": True})
    else:
        print_table(("TOPIC", "PARTITION", "PRODUCER", "STATUS"), [(topic, number, aborted.producer_id, "aborted")])
    return 0
