"""`strandline config`: describes, sets and unsets configs of a topic, a broker, or all brokers."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from strandline.cli.errors import CommandFailed, UsageError
from strandline.cli.options import add_client_options, add_json_option, parse_pairs
from strandline.cli.output import faint, print_json, print_table
from strandline.cli.with_client import with_client

if TYPE_CHECKING:
    from strandline.client.admin.configs import ConfigEntry, Resource
    from strandline.client.client import Client

RESOURCES = """\
RESOURCE: topic NAME, broker ID, brokers (the cluster-wide defaults), group NAME, client-metrics NAME;
TYPE/NAME is accepted too, and a NAME alone is a topic
"""
_TYPES = ("topic", "broker", "brokers", "cluster", "broker-logger", "group", "client-metrics")
_NAMELESS = ("brokers", "cluster")


def configure(parser: argparse.ArgumentParser) -> None:
    verbs = parser.add_subparsers(metavar="VERB", required=True)
    style = argparse.RawDescriptionHelpFormatter

    describe = verbs.add_parser(
        "describe", help="show configs and their sources", epilog=RESOURCES, formatter_class=style
    )
    describe.add_argument(
        "words", metavar="RESOURCE", nargs="+", help="the resource, then the keys to show (default: all)"
    )
    describe.add_argument("-a", "--all", action="store_true", help="also configs with their default value")
    describe.add_argument("-v", "--verbose", action="store_true", help="also the documentation of each config")
    describe.set_defaults(run=run_describe)

    change = verbs.add_parser("set", help="set configs", epilog=RESOURCES, formatter_class=style)
    change.add_argument("words", metavar="RESOURCE KEY=VALUE", nargs="+")
    change.set_defaults(run=run_set)

    unset = verbs.add_parser("unset", help="reset configs to their defaults", epilog=RESOURCES, formatter_class=style)
    unset.add_argument("words", metavar="RESOURCE KEY", nargs="+")
    unset.set_defaults(run=run_unset)

    for verb in (change, unset):
        verb.add_argument("--dry-run", action="store_true", help="only check whether the change would be accepted")
    for verb in (describe, change, unset):
        add_client_options(verb)
        add_json_option(verb)


def parse_resource(words: list[str]) -> tuple[Resource, list[str]]:
    """The resource named by the first arguments, and the remaining arguments."""
    from strandline.client.admin.configs import Resource, ResourceType

    kind, slash, name = words[0].partition("/")
    rest = words[1:]
    if kind not in _TYPES:
        return Resource(ResourceType.TOPIC, words[0]), rest
    if kind in _NAMELESS:
        return Resource(ResourceType.BROKER, ""), rest
    if not slash:
        if not rest:
            raise UsageError(f"which {kind}? Write `{kind} NAME`")
        name, rest = rest[0], rest[1:]
    if kind.startswith("broker") and not name.isdigit():
        raise UsageError(f"{name!r} is not a broker id: `strandline cluster describe` lists them; `brokers` means all")
    return Resource(ResourceType[kind.upper().replace("-", "_")], name), rest


def run_describe(arguments: argparse.Namespace) -> int:
    resource, keys = parse_resource(arguments.words)

    async def work(client: Client) -> list[ConfigEntry]:
        await _check_broker(client, resource)
        return await client.configs.describe(resource, keys or None, synonyms=True, documentation=arguments.verbose)

    entries = with_client(arguments, work, f"describing {resource}")
    missing = [key for key in keys if key not in {entry.name for entry in entries}]
    if missing:
        raise UsageError(f"{resource} has no config {', '.join(missing)}")
    if arguments.json:
        print_json([_as_json(entry) for entry in entries])
        return 0
    shown = [entry for entry in entries if arguments.all or keys or not _is_default(entry)]
    rows = [(entry.name, _shown(entry), _origin(entry)) for entry in shown]
    if arguments.verbose:
        for row, entry in zip(rows, shown, strict=True):
            print("\t".join(row))
            print(faint(f"    {entry.documentation or ''}"))
    else:
        print_table(("KEY", "VALUE", "FROM"), rows)
    return 0


async def _check_broker(client: Client, resource: Resource) -> None:
    """Requests for a broker's configs go to that broker: fail at once if there is none, instead of waiting for it."""
    if resource.broker_id is None:
        return
    brokers = [broker.id for broker in (await client.cluster.describe()).brokers]
    if resource.broker_id not in brokers:
        raise CommandFailed(f"there is no broker {resource.broker_id}: the brokers are {', '.join(map(str, brokers))}")


def _is_default(entry: ConfigEntry) -> bool:
    from strandline.client.admin.configs import ConfigSource

    return entry.source == ConfigSource.DEFAULT


def _shown(entry: ConfigEntry) -> str:
    if entry.value is None:
        return "(hidden)" if entry.sensitive else "-"
    return entry.value


def _origin(entry: ConfigEntry) -> str:
    return entry.source.name.lower().replace("_", "-") + (" (read-only)" if entry.read_only else "")


def _as_json(entry: ConfigEntry) -> dict[str, Any]:
    return {
        "name": entry.name,
        "value": entry.value,
        "source": entry.source.name.lower(),
        "read_only": entry.read_only,
        "sensitive": entry.sensitive,
        "synonyms": [
            {"name": name, "value": value, "source": source.name.lower()} for name, value, source in entry.synonyms
        ],
        **({"documentation": entry.documentation} if entry.documentation else {}),
    }


def run_set(arguments: argparse.Namespace) -> int:
    resource, pairs = parse_resource(arguments.words)
    if not pairs:
        raise UsageError("nothing to set: give key=value")
    return _alter(arguments, resource, parse_pairs(pairs, "config"), [])


def run_unset(arguments: argparse.Namespace) -> int:
    resource, keys = parse_resource(arguments.words)
    if not keys:
        raise UsageError("nothing to unset: give the keys")
    return _alter(arguments, resource, {}, keys)


def _alter(arguments: argparse.Namespace, resource: Resource, values: dict[str, str], unset: list[str]) -> int:
    async def work(client: Client) -> None:
        await _check_broker(client, resource)
        await client.configs.alter(resource, set=values, unset=unset, validate_only=arguments.dry_run)

    with_client(arguments, work, f"changing {resource}")
    if arguments.json:
        print_json({"resource": str(resource), "set": values, "unset": unset, "applied": not arguments.dry_run})
    else:
        done = "would be accepted" if arguments.dry_run else "ok"
        rows = [*((key, value, done) for key, value in values.items()), *((key, "(default)", done) for key in unset)]
        print_table(("KEY", "VALUE", "STATUS"), rows)
    return 0
