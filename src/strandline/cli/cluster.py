"""`strandline cluster`: describe (brokers, quorum, features) and health (also as the exit code)."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from strandline.cli.errors import UsageError
from strandline.cli.options import add_client_options, add_json_option
from strandline.cli.output import bold, print_facts, print_json, print_section, print_table, styled
from strandline.cli.quorum import member_rows, quorum_as_json
from strandline.cli.with_client import with_client
from strandline.model.errors import KafkaError

if TYPE_CHECKING:
    from strandline.client.client import Client
    from strandline.client.core.health import Health

WAIT_SECONDS = 60.0
# Shorter than for other commands: an unhealthy cluster should be reported soon.
HEALTH_TIMEOUT_MS = 5_000
HEALTH = """\
Exit code 0: an active controller, no fenced broker, every partition with a leader and all replicas in sync, every voter
fetching. Exit code 1: one of these is not the case, or no broker responds.

examples:
  strandline cluster health
  strandline cluster health --wait 30 && run-the-tests
"""


def configure(parser: argparse.ArgumentParser) -> None:
    verbs = parser.add_subparsers(metavar="VERB", required=True)
    describe = verbs.add_parser("describe", help="show brokers, quorum and features", allow_abbrev=False)
    describe.set_defaults(run=run_describe)

    health = verbs.add_parser(
        "health",
        help="check the health of the cluster (exit code 0 or 1)",
        epilog=HEALTH,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    health.add_argument(
        "--wait",
        metavar="SECONDS",
        type=float,
        nargs="?",
        const=WAIT_SECONDS,
        help=f"wait until the cluster is healthy (default: at most {WAIT_SECONDS:g} s)",
    )
    health.set_defaults(run=run_health)

    for verb in (describe, health):
        add_client_options(verb)
        add_json_option(verb)


def run_describe(arguments: argparse.Namespace) -> int:
    described = with_client(arguments, _described, "describing the cluster")
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
        print_table(("NODE", "ROLE", "LOG END", "LAG"), [row[:4] for row in member_rows(quorum)], kind="quorum")
    print_section("features")
    print_table(
        ("FEATURE", "LEVEL", "SUPPORTED"),
        [(each["name"], each["level"], "-".join(map(str, each["supported"]))) for each in described["features"]],
        kind="feature",
    )
    return 0


async def _described(client: Client) -> dict[str, Any]:
    cluster = await client.cluster.describe()
    features = await client.features.describe()
    try:
        quorum = quorum_as_json(await client.quorum.describe())
    except KafkaError:
        # The cluster does not serve DescribeQuorum.
        quorum = None
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
        "quorum": quorum,
        "features": [
            {"name": each.name, "level": each.finalized, "supported": list(each.supported or ())} for each in features
        ],
    }


def run_health(arguments: argparse.Namespace) -> int:
    seconds = arguments.wait or 0.0
    if seconds < 0:
        raise UsageError(f"--wait {seconds:g}: must not be negative")

    async def work(client: Client) -> Health:
        return await client.until_healthy(int(seconds * 1000))

    health = with_client(arguments, work, "waiting until the cluster is healthy", timeout_ms=HEALTH_TIMEOUT_MS)
    if arguments.json:
        print_json(
            {"healthy": health.is_healthy, "facts": health.facts, "problems": health.problems, "notes": health.notes}
        )
        return 0 if health.is_healthy else 1
    print(bold("healthy") if health.is_healthy else styled("not healthy", "1;31"))
    print_facts(health.facts.items())
    for kind, texts in (("problem", health.problems), ("note", health.notes)):
        for text in texts:
            print_facts([(kind, text)])
    return 0 if health.is_healthy else 1
