"""`strandline broker`: lists brokers, drains one before its removal, unregisters a removed one."""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from strandline.cli.errors import CommandFailed
from strandline.cli.options import add_client_options, add_json_option
from strandline.cli.output import hint, print_json, print_table
from strandline.cli.reassign import as_plan
from strandline.cli.reassignment_run import ReassignmentRun
from strandline.cli.with_client import with_client
from strandline.model.ids import TopicPartition

if TYPE_CHECKING:
    from strandline.client.client import Client
    from strandline.client.core.descriptions import BrokerDescription, ClusterDescription, TopicDescription
    from strandline.client.core.replica_placement import DrainPlan, Moves

CORDON = "cordoned.log.dirs"
DRAIN = """\
Moves every replica of the broker to other brokers: if possible to racks without a replica of the partition, then to the
brokers with the fewest replicas. The broker serves until all moves have completed, and gets no new replicas: its log
directories are cordoned (cordoned.log.dirs=*), and stay so.
Moves that were started continue if the command is interrupted; run it again to continue with the others.

examples:
  strandline broker drain 3 --dry-run
  strandline broker drain 3
"""
UNREGISTER = """\
Removes the registration of a broker that will not return. It must be stopped and hold no replicas: see `broker drain`.
"""


def configure(parser: argparse.ArgumentParser) -> None:
    verbs = parser.add_subparsers(metavar="VERB", required=True)
    style = argparse.RawDescriptionHelpFormatter

    listing = verbs.add_parser("list", help="list brokers with their state and replicas", allow_abbrev=False)
    listing.set_defaults(run=run_list)

    drain = verbs.add_parser(
        "drain", help="move all replicas away from a broker", epilog=DRAIN, formatter_class=style, allow_abbrev=False
    )
    drain.add_argument("--dry-run", action="store_true", help="print the plan (JSON as for `topic reassign --file`)")
    drain.add_argument("--no-wait", action="store_true", help="start all moves and return")
    drain.set_defaults(run=run_drain)

    unregister = verbs.add_parser(
        "unregister", help="remove the registration of a broker", epilog=UNREGISTER, formatter_class=style
    )
    unregister.add_argument("--force", action="store_true", help="even if the broker is active or holds replicas")
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

    brokers = with_client(arguments, work, "listing the brokers")
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
        # Replicas may have been placed on the broker before it was cordoned: plan again after each round.
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
        return moving[-1].progress_text() if moving else f"listing the replicas of broker {arguments.id}"

    try:
        moves = with_client(arguments, work, progress_text)
    except KeyboardInterrupt:
        raise CommandFailed(
            "interrupted: moves that were started continue (`strandline topic reassign --status`, --cancel); "
            "run the same command again for the others"
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
            f"the broker gets no new replicas (until `strandline config unset broker {arguments.id} {CORDON}`): stop "
            f"it, then `strandline broker unregister {arguments.id}` (and `strandline quorum remove {arguments.id}` if "
            "it is a voter)"
        )
    return 0


async def _planned(client: Client, broker_id: int) -> Moves:
    cluster = await client.cluster.describe()
    _known(cluster, broker_id)
    active = [each for each in cluster.brokers if not each.fenced]
    return _drain_plan(broker_id, await _placement(client), active).moves


async def _cordon(client: Client, broker_id: int) -> None:
    """Keeps new replicas away. A stopped broker gets none anyway; an older cluster may not support the config."""
    from strandline.client.admin.configs import Resource, ResourceType
    from strandline.model.errors import KafkaError

    try:
        await client.configs.alter(Resource(ResourceType.BROKER, str(broker_id)), set={CORDON: "*"})
    except KafkaError as error:
        hint(f"new topics may still be placed on broker {broker_id} until it is stopped: {error}")


async def _placement(client: Client) -> dict[TopicPartition, tuple[int, ...]]:
    """The replicas of every partition, or the target of its reassignment."""
    targets = {each.partition: each.target for each in await client.reassignments.ongoing()}
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
        f"broker {broker_id} cannot be drained: {len(plan.stuck)} partitions, such as {first}, have "
        f"{len(placement[first])} replicas, and without it only {len(others)} active brokers remain "
        f"({', '.join(map(str, others)) or 'none'}). Nothing was moved. Add a broker (`strandline up --nodes …`), or "
        f"reduce their replicas first (`strandline topic reassign {first.topic}:{first.partition} --to {fewer}`)"
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
            f"broker {broker.id} is active: stop it first, or it registers again (--force unregisters it anyway)"
        )
    held = [each for each, replicas in (await _placement(client)).items() if broker.id in replicas]
    if held:
        raise CommandFailed(
            f"broker {broker.id} holds replicas of {len(held)} partitions, such as {held[0]}: move them first with "
            f"`strandline broker drain {broker.id}` (--force leaves them without that replica)"
        )
