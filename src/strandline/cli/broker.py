"""`strandline broker`: list them, empty one before it goes, forget one that is gone."""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from strandline.cli.errors import CommandFailed
from strandline.cli.output import hint, print_json, print_table
from strandline.cli.reassign import as_plan
from strandline.cli.reassignment_run import ReassignmentRun
from strandline.cli.with_client import add_client_options, add_json_option, with_client
from strandline.model.ids import TopicPartition

if TYPE_CHECKING:
    from strandline.client.admin.cluster import BrokerDescription, ClusterDescription
    from strandline.client.admin.topics import TopicDescription
    from strandline.client.client import Client
    from strandline.client.core.replica_placement import DrainPlan, Moves

CORDON = "cordoned.log.dirs"
DRAIN = """\
Moves every replica, and with it every leadership, from the broker to others: to other racks than those of the
partition's other replicas where there are any, then to whoever has the least. The broker serves until all has arrived,
and gets nothing new: its directories are cordoned (cordoned.log.dirs=*), before and after.
Interrupted, what was begun goes on; the same command continues.

examples:
  strandline broker drain 3 --dry-run
  strandline broker drain 3
"""
UNREGISTER = """\
Makes the cluster forget a broker that will not come back. It must be stopped, and hold nothing: see `broker drain`.
"""


def configure(parser: argparse.ArgumentParser) -> None:
    verbs = parser.add_subparsers(metavar="VERB", required=True)
    style = argparse.RawDescriptionHelpFormatter

    listing = verbs.add_parser("list", help="list brokers, their state and what they hold", allow_abbrev=False)
    listing.set_defaults(run=run_list)

    drain = verbs.add_parser(
        "drain", help="move everything away from a broker", epilog=DRAIN, formatter_class=style, allow_abbrev=False
    )
    drain.add_argument("--dry-run", action="store_true", help="print the plan (JSON as for `topic reassign --file`)")
    drain.add_argument("--no-wait", action="store_true", help="begin all moves and return")
    drain.set_defaults(run=run_drain)

    unregister = verbs.add_parser(
        "unregister", help="forget a broker that is gone for good", epilog=UNREGISTER, formatter_class=style
    )
    unregister.add_argument("--force", action="store_true", help="even if it runs or holds replicas")
    unregister.set_defaults(run=run_unregister)

    for verb in (drain, unregister):
        verb.add_argument("id", metavar="ID", type=int)
    for verb in (listing, drain, unregister):
        add_client_options(verb)
        add_json_option(verb)


def run_list(arguments: argparse.Namespace) -> int:
    async def work(client: Client) -> list[dict[str, Any]]:
        cluster = await client.cluster.describe()
        topics = await client.topics.list()
        return _listed(cluster, topics)

    brokers = with_client(arguments, work, "asking for the brokers")
    if arguments.json:
        print_json(brokers)
        return 0
    columns = ("id", "host", "port", "rack", "state", "leaders", "replicas", "in_sync")
    rows = [[each[column] for column in columns] for each in brokers]
    print_table(["BROKER", *(column.upper().replace("_", " ") for column in columns[1:])], rows)
    return 0


def _listed(cluster: ClusterDescription, topics: Sequence[TopicDescription]) -> list[dict[str, Any]]:
    partitions = [each for topic in topics for each in topic.partitions]
    leaders = Counter(each.leader for each in partitions)
    replicas = Counter(replica for each in partitions for replica in each.replicas)
    in_sync = Counter(replica for each in partitions for replica in each.isr)
    return [
        {
            "id": each.id,
            "host": each.endpoint.host,
            "port": each.endpoint.port,
            "rack": each.rack,
            "state": "fenced" if each.fenced else "active",
            "leaders": leaders[each.id],
            "replicas": replicas[each.id],
            "in_sync": in_sync[each.id],
        }
        for each in cluster.brokers
    ]


def run_drain(arguments: argparse.Namespace) -> int:
    moving: list[ReassignmentRun] = []

    async def work(client: Client) -> Moves:
        moves = await _planned(client, arguments.id)
        if arguments.dry_run:
            return moves
        await _cordon(client, arguments.id)
        # What was placed on it before everybody knew is found at the second look.
        more: Moves = moves or await _planned(client, arguments.id)
        while more:
            moving.append(ReassignmentRun(more))
            if arguments.no_wait:
                await moving[-1].start_all(client)
                break
            await moving[-1].run(client)
            moves, more = {**moves, **more}, await _planned(client, arguments.id)
        return moves

    def progress_text() -> str:
        return moving[-1].progress_text() if moving else f"looking at what broker {arguments.id} holds"

    try:
        moves = with_client(arguments, work, progress_text)
    except KeyboardInterrupt:
        raise CommandFailed(
            "interrupted: the moves that were begun go on (`strandline topic reassign --status`, --cancel); "
            "the same command continues"
        ) from None
    if arguments.dry_run:
        print_json(as_plan(moves))
        return 0
    status = "empty" if not arguments.no_wait or not moves else "being emptied"
    if arguments.json:
        print_json({"id": arguments.id, "status": status, "moved": as_plan(moves)["partitions"]})
        return 0
    print_table(("BROKER", "STATUS", "PARTITIONS MOVED"), [(arguments.id, status, len(moves))])
    if status == "empty":
        hint(
            f"nothing new is placed on it (until `strandline config unset broker {arguments.id} {CORDON}`): stop it, "
            f"then `strandline broker unregister {arguments.id}` (and `strandline quorum remove {arguments.id}` for a "
            "voter)"
        )
    return 0


async def _planned(client: Client, broker_id: int) -> Moves:
    cluster = await client.cluster.describe()
    _known(cluster, broker_id)
    active = [each for each in cluster.brokers if not each.fenced]
    return _drain_plan(broker_id, await _placement(client), active).moves


async def _cordon(client: Client, broker_id: int) -> None:
    """Nothing new for this broker. One that is down gets nothing as it is; an older cluster may not know how."""
    from strandline.client.admin.configs import Resource, ResourceType
    from strandline.model.errors import KafkaError

    try:
        await client.configs.alter(Resource(ResourceType.BROKER, str(broker_id)), set={CORDON: "*"})
    except KafkaError as error:
        hint(f"new topics may still be placed on broker {broker_id} until it is stopped: {error}")


async def _placement(client: Client) -> dict[TopicPartition, tuple[int, ...]]:
    """Where every partition lives, or is on its way to."""
    targets = {each.partition: each.target for each in await client.reassignments.under_way()}
    placement = {}
    for topic in await client.topics.list():
        for each in topic.partitions:
            partition = TopicPartition(topic.name, each.index)
            placement[partition] = targets.get(partition, each.replicas)
    return placement


def _drain_plan(
    broker_id: int, placement: Mapping[TopicPartition, Sequence[int]], active: list[BrokerDescription]
) -> DrainPlan:
    from strandline.client.core.replica_placement import plan_drain

    plan = plan_drain(placement, {broker_id}, active)
    if not plan.stuck:
        return plan
    first = plan.stuck[0]
    others = [each.id for each in active if each.id != broker_id]
    fewer = ",".join(str(each) for each in placement[first] if each != broker_id) or "…"
    raise CommandFailed(
        f"broker {broker_id} cannot be emptied: {len(plan.stuck)} partitions, such as {first}, have "
        f"{len(placement[first])} replicas, and without it only {len(others)} active brokers are left "
        f"({', '.join(map(str, others)) or 'none'}). Nothing was moved. Add a broker (`strandline up --nodes …`), or "
        f"let them have fewer replicas first (`strandline topic reassign {first.topic}:{first.partition} --to {fewer}`)"
    )


def _known(cluster: ClusterDescription, broker_id: int) -> BrokerDescription:
    for broker in cluster.brokers:
        if broker.id == broker_id:
            return broker
    known = ", ".join(str(each.id) for each in cluster.brokers)
    raise CommandFailed(f"there is no broker {broker_id}: the brokers are {known}")


def run_unregister(arguments: argparse.Namespace) -> int:
    async def work(client: Client) -> None:
        broker = _known(await client.cluster.describe(), arguments.id)
        if not arguments.force:
            await _reject_if_in_use(client, broker)
        await client.cluster.unregister(arguments.id)

    with_client(arguments, work, f"unregistering broker {arguments.id}")
    if arguments.json:
        print_json({"id": arguments.id, "unregistered": True})
    else:
        print_table(("BROKER", "STATUS"), [(arguments.id, "unregistered")])
    return 0


async def _reject_if_in_use(client: Client, broker: BrokerDescription) -> None:
    if not broker.fenced:
        raise CommandFailed(
            f"broker {broker.id} is active: stop it first, or it registers again (--force unregisters it all the same)"
        )
    held = [each for each, replicas in (await _placement(client)).items() if broker.id in replicas]
    if held:
        raise CommandFailed(
            f"broker {broker.id} holds replicas of {len(held)} partitions, such as {held[0]}: move them first with "
            f"`strandline broker drain {broker.id}` (--force leaves them without that replica)"
        )
