"""`strandline cluster describe`: brokers, quorum, features."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from strandline.cli.output import print_facts, print_json, print_section, print_table
from strandline.cli.session import add_client_options, add_json_option, with_client
from strandline.model.errors import KafkaError

if TYPE_CHECKING:
    from strandline.client.client import Client


def configure(parser: argparse.ArgumentParser) -> None:
    verbs = parser.add_subparsers(metavar="VERB", required=True)
    describe = verbs.add_parser("describe", help="show brokers, quorum and features", allow_abbrev=False)
    describe.set_defaults(run=run_describe)
    add_client_options(describe)
    add_json_option(describe)


def run_describe(arguments: argparse.Namespace) -> int:
    described = with_client(arguments, _described, "asking the cluster about itself")
    if arguments.json:
        print_json(described)
        return 0
    print_facts([("cluster id", described["cluster_id"]), ("controller", described["controller_id"])])
    print_section("brokers")
    print_table(
        ("BROKER", "HOST", "PORT", "RACK", "STATE"),
        [
            (each["id"], each["host"], each["port"], each["rack"], "fenced" if each["fenced"] else "alive")
            for each in described["brokers"]
        ],
        kind="broker",
    )
    quorum = described["quorum"]
    if quorum is not None:
        print_section(f"quorum (leader {quorum['leader_id']}, epoch {quorum['leader_epoch']})")
        print_table(
            ("NODE", "ROLE", "LOG END"),
            [
                *((each["id"], "voter", each["log_end_offset"]) for each in quorum["voters"]),
                *((each["id"], "observer", each["log_end_offset"]) for each in quorum["observers"]),
            ],
            kind="quorum",
        )
    print_section("features")
    print_table(
        ("FEATURE", "LEVEL", "SUPPORTED"),
        [(each["name"], each["level"], "-".join(map(str, each["supported"]))) for each in described["features"]],
        kind="feature",
    )
    return 0


async def _described(client: Client) -> dict[str, Any]:
    cluster = await client.cluster.describe()
    features = await client.cluster.features()
    return {
        "cluster_id": cluster.cluster_id,
        "controller_id": cluster.controller_id,
        "brokers": [
            {
                "id": each.id,
                "host": each.endpoint.host,
                "port": each.endpoint.port,
                "rack": each.rack,
                "fenced": each.fenced,
            }
            for each in cluster.brokers
        ],
        "quorum": await _quorum(client),
        "features": [
            {"name": each.name, "level": each.finalized, "supported": list(each.supported or ())} for each in features
        ],
    }


async def _quorum(client: Client) -> dict[str, Any] | None:
    """None from a cluster that does not tell clients about its quorum."""
    try:
        quorum = await client.cluster.quorum()
    except KafkaError:
        return None
    return {
        "leader_id": quorum.leader_id,
        "leader_epoch": quorum.leader_epoch,
        "high_watermark": quorum.high_watermark,
        "voters": [{"id": each.id, "log_end_offset": each.log_end_offset} for each in quorum.voters],
        "observers": [{"id": each.id, "log_end_offset": each.log_end_offset} for each in quorum.observers],
    }
