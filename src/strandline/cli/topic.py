"""`strandline topic`: create, list, describe, alter, delete; `cli/reassign` is its subcommand `reassign`."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from strandline.cli import reassign
from strandline.cli.errors import CommandFailed, UsageError
from strandline.cli.options import add_client_options, add_json_option, check_at_least_one, parse_pairs
from strandline.cli.output import print_facts, print_json, print_section, print_table
from strandline.cli.with_client import explain_error, with_client
from strandline.model.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from strandline.client.admin.configs import ConfigEntry
    from strandline.client.client import Client
    from strandline.client.core.descriptions import TopicDescription


def configure(parser: argparse.ArgumentParser) -> None:
    verbs = parser.add_subparsers(metavar="VERB", required=True)

    create = verbs.add_parser("create", help="create topics", allow_abbrev=False)
    create.add_argument("names", metavar="NAME", nargs="+")
    create.add_argument(
        "-p", "--partitions", type=int, default=-1, help="number of partitions (default: num.partitions)"
    )
    create.add_argument(
        "-r", "--replicas", type=int, default=-1, help="replication factor (default: default.replication.factor)"
    )
    create.add_argument("-c", "--config", metavar="KEY=VALUE", action="append", default=[], help="a topic config")
    create.add_argument("--if-not-exists", action="store_true", help="do not fail if the topic exists")
    create.add_argument("--dry-run", action="store_true", help="only check whether the topic would be accepted")
    create.set_defaults(run=run_create)

    listing = verbs.add_parser("list", help="list topics", allow_abbrev=False)
    listing.add_argument("-i", "--internal", action="store_true", help="also internal topics")
    listing.set_defaults(run=run_list)

    describe = verbs.add_parser("describe", help="show partitions, offsets and configs of topics", allow_abbrev=False)
    describe.add_argument("names", metavar="NAME", nargs="+")
    describe.set_defaults(run=run_describe)

    alter = verbs.add_parser("alter", help="add partitions, change configs", allow_abbrev=False)
    alter.add_argument("name", metavar="NAME")
    alter.add_argument("-p", "--partitions", type=int, help="the new number of partitions")
    alter.add_argument("-c", "--config", metavar="KEY=VALUE", action="append", default=[], help="set a topic config")
    alter.add_argument("--unset", metavar="KEY", action="append", default=[], help="reset a config to its default")
    alter.set_defaults(run=run_alter)

    delete = verbs.add_parser("delete", help="delete topics and all their records", allow_abbrev=False)
    delete.add_argument("names", metavar="NAME", nargs="+")
    delete.add_argument("--if-exists", action="store_true", help="do not fail if the topic does not exist")
    delete.set_defaults(run=run_delete)

    reassign.configure(verbs.add_parser("reassign", help="move replicas to other brokers", allow_abbrev=False))

    for verb in (create, listing, describe, alter, delete):
        add_client_options(verb)
        add_json_option(verb)


def run_create(arguments: argparse.Namespace) -> int:
    for option, number in (("-p", arguments.partitions), ("-r", arguments.replicas)):
        check_at_least_one(option, None if number == -1 else number)
    configs: dict[str, str | None] = {**parse_pairs(arguments.config, "-c")}

    async def work(client: Client) -> list[dict[str, Any]]:
        results = []
        for name in arguments.names:
            try:
                created = await client.topics.create(
                    name,
                    partitions=arguments.partitions,
                    replication_factor=arguments.replicas,
                    configs=configs,
                    validate_only=arguments.dry_run,
                )
            except KafkaError as error:
                if error.code == ErrorCode.TOPIC_ALREADY_EXISTS and arguments.if_not_exists:
                    results.append({"name": name, "created": False})
                    continue
                raise
            if not arguments.dry_run:
                await _until_led(client, name)
            results.append(
                {
                    "name": name,
                    "created": not arguments.dry_run,
                    "id": str(created.id),
                    "partitions": created.partitions,
                    "replicas": created.replication_factor,
                }
            )
        return results

    results = with_client(arguments, work, f"creating {', '.join(arguments.names)}")
    if arguments.json:
        print_json(results)
    else:
        print_table(
            ("TOPIC", "STATUS", "PARTITIONS", "REPLICAS"),
            [(each["name"], _status(each), each.get("partitions"), each.get("replicas")) for each in results],
        )
    return 0


def _status(result: dict[str, Any]) -> str:
    if result["created"]:
        return "created"
    return "would be created" if "id" in result else "exists"


async def _until_led(client: Client, name: str) -> None:
    """Waits until every partition has a leader, because the next command may produce to the topic."""
    topic = await client.router.topic(name)
    if any(partition.leader < 0 for partition in topic.partitions.values()):
        client.router.metadata.on_wrong_leader(name)
        await client.router.sleep(50)
        await client.router.topic(name)


def run_list(arguments: argparse.Namespace) -> int:
    async def work(client: Client) -> list[TopicDescription]:
        return await client.topics.list()

    topics = [
        each for each in with_client(arguments, work, "listing topics") if arguments.internal or not each.internal
    ]
    if arguments.json:
        print_json(
            [
                {
                    "name": each.name,
                    "id": str(each.id),
                    "partitions": len(each.partitions),
                    "replicas": each.replication_factor,
                    "internal": each.internal,
                }
                for each in topics
            ]
        )
    else:
        rows = [(each.name, len(each.partitions), each.replication_factor) for each in topics]
        print_table(("TOPIC", "PARTITIONS", "REPLICAS"), rows)
    return 0


def run_describe(arguments: argparse.Namespace) -> int:
    async def work(client: Client) -> list[dict[str, Any]]:
        return [await _described(client, name) for name in arguments.names]

    described = with_client(arguments, work, f"describing {', '.join(arguments.names)}")
    if arguments.json:
        print_json(described[0] if len(described) == 1 else described)
        return 0
    for index, topic in enumerate(described):
        if index:
            print()
        _print_described(topic)
    return 0


async def _described(client: Client, name: str) -> dict[str, Any]:
    from strandline.client.admin.configs import Resource, ResourceType
    from strandline.model.ids import TopicPartition
    from strandline.protocol.messages.list_offsets import EARLIEST, LATEST

    topic = await client.topics.describe(name)
    entries = await client.configs.describe(Resource(ResourceType.TOPIC, name))
    led = [TopicPartition(name, each.index) for each in topic.partitions if each.leader >= 0]
    starts = await client.list_offsets(dict.fromkeys(led, EARLIEST))
    ends = await client.list_offsets(dict.fromkeys(led, LATEST))
    partitions = []
    for each in topic.partitions:
        key = TopicPartition(name, each.index)
        partitions.append(
            {
                "partition": each.index,
                "leader": each.leader,
                "leader_epoch": each.leader_epoch,
                "replicas": list(each.replicas),
                "isr": list(each.isr),
                "offline": list(each.offline),
                "log_start_offset": getattr(starts.get(key), "offset", None),
                "high_watermark": getattr(ends.get(key), "offset", None),
            }
        )
    return {
        "name": topic.name,
        "id": str(topic.id),
        "internal": topic.internal,
        "partition_count": len(topic.partitions),
        "replication_factor": topic.replication_factor,
        "configs": {entry.name: entry.value for entry in entries if _is_own(entry)},
        "partitions": partitions,
    }


def _is_own(entry: ConfigEntry) -> bool:
    from strandline.client.admin.configs import ConfigSource

    return entry.source == ConfigSource.TOPIC


def _print_described(topic: dict[str, Any]) -> None:
    print_facts(
        [
            ("topic", topic["name"]),
            ("id", topic["id"]),
            ("partitions", topic["partition_count"]),
            ("replicas", topic["replication_factor"]),
            *((f"config {key}", value) for key, value in topic["configs"].items()),
        ]
    )
    print_section("partitions")
    print_table(
        ("PARTITION", "LEADER", "EPOCH", "REPLICAS", "ISR", "START", "END"),
        [
            (
                each["partition"],
                each["leader"] if each["leader"] >= 0 else "none",
                each["leader_epoch"],
                each["replicas"],
                each["isr"],
                each["log_start_offset"],
                each["high_watermark"],
            )
            for each in topic["partitions"]
        ],
        kind="partition",
    )


def run_alter(arguments: argparse.Namespace) -> int:
    configs = parse_pairs(arguments.config, "-c")
    if arguments.partitions is None and not configs and not arguments.unset:
        raise UsageError("nothing to change: give -p N, -c key=value or --unset key")

    async def work(client: Client) -> None:
        from strandline.client.admin.configs import Resource, ResourceType

        await client.topics.describe(arguments.name)
        if configs or arguments.unset:
            resource = Resource(ResourceType.TOPIC, arguments.name)
            await client.configs.alter(resource, set=configs, unset=arguments.unset)
        if arguments.partitions is not None:
            await client.topics.grow(arguments.name, arguments.partitions)

    with_client(arguments, work, f"altering {arguments.name}")
    if arguments.json:
        print_json(
            {"name": arguments.name, "partitions": arguments.partitions, "set": configs, "unset": arguments.unset}
        )
    else:
        print_table(("TOPIC", "STATUS"), [(arguments.name, "altered")])
    return 0


def run_delete(arguments: argparse.Namespace) -> int:
    async def work(client: Client) -> list[dict[str, Any]]:
        results: list[dict[str, Any]] = []
        for name in arguments.names:
            try:
                await client.topics.delete(name)
                results.append({"name": name, "deleted": True})
            except KafkaError as error:
                missing = error.code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                if not (missing and arguments.if_exists):
                    why = f"there is no topic {name!r}" if missing else str(explain_error(error, arguments.bootstrap))
                    results.append({"name": name, "deleted": False, "error": error.code.name, "why": why})
                else:
                    results.append({"name": name, "deleted": False})
        return results

    results = with_client(arguments, work, f"deleting {', '.join(arguments.names)}")
    if arguments.json:
        print_json(results)
    else:
        rows = [(each["name"], "deleted" if each["deleted"] else each.get("why", "does not exist")) for each in results]
        print_table(("TOPIC", "STATUS"), rows)
    failed = [each for each in results if "error" in each]
    if failed:
        raise CommandFailed("; ".join(each["why"] for each in failed) + ": `strandline topic list` lists the topics")
    return 0
