"""`strandline quorum`: describes the metadata quorum, adds and removes voters."""

from __future__ import annotations

import argparse
import re
from typing import TYPE_CHECKING, Any

import msgspec

from strandline.cli.errors import CommandFailed, UsageError
from strandline.cli.options import add_client_options, add_json_option
from strandline.cli.output import print_facts, print_json, print_section, print_table
from strandline.cli.with_client import with_client

if TYPE_CHECKING:
    from strandline.client.client import Client
    from strandline.client.core.descriptions import QuorumDescription, QuorumMember
    from strandline.model.ids import Endpoint, Uuid

_NEW_VOTER = re.compile(r"(\d+)(?:@(.+):(\d{1,5}):([A-Za-z0-9_-]{22}))?")
_VOTER = re.compile(r"(\d+)(?::([A-Za-z0-9_-]{22}))?")
ADD = """\
The controller must run as an observer of the quorum: one that `strandline up` has started, or a `strandline server`
whose directory was formatted with --no-initial-controllers. Its id is enough unless the cluster does not know its
address and directory; then give them as ID@HOST:PORT:DIRECTORY (directory.id in meta.properties).

examples:
  strandline quorum add 4
  strandline quorum add 4@10.0.0.4:9093:JEXY6aqzQY-32P5TStzaFg
"""
REMOVE = """\
Removes the vote, not the node: if it runs, it becomes an observer. A voter whose disk is lost must be removed before a
new node replaces it; otherwise it counts as a voter that never responds.

examples:
  strandline quorum remove 2
  strandline quorum remove 2:JEXY6aqzQY-32P5TStzaFg
"""


class VoterArgument(msgspec.Struct, frozen=True):
    """A voter as the user names it; the endpoint and the directory may be missing."""

    id: int
    endpoint: Endpoint | None
    directory_id: Uuid | None


def configure(parser: argparse.ArgumentParser) -> None:
    verbs = parser.add_subparsers(metavar="VERB", required=True)
    style = argparse.RawDescriptionHelpFormatter

    describe = verbs.add_parser("describe", help="show leader, voters, observers and their lag", allow_abbrev=False)
    describe.set_defaults(run=run_describe)

    add = verbs.add_parser(
        "add", help="make a controller a voter", epilog=ADD, formatter_class=style, allow_abbrev=False
    )
    add.add_argument("voter", metavar="ID[@HOST:PORT:DIRECTORY]")
    add.set_defaults(run=run_add)

    remove = verbs.add_parser("remove", help="remove a voter", epilog=REMOVE, formatter_class=style, allow_abbrev=False)
    remove.add_argument("voter", metavar="ID[:DIRECTORY]")
    remove.set_defaults(run=run_remove)

    for verb in (describe, add, remove):
        add_client_options(verb, controllers=True)
        add_json_option(verb)


def run_describe(arguments: argparse.Namespace) -> int:
    async def work(client: Client) -> QuorumDescription:
        return await client.quorum.describe()

    quorum = quorum_as_json(with_client(arguments, work, "describing the quorum"))
    if arguments.json:
        print_json(quorum)
        return 0
    print_facts(
        [
            ("leader", quorum["leader_id"] if quorum["leader_id"] >= 0 else "none"),
            ("epoch", quorum["leader_epoch"]),
            ("high watermark", quorum["high_watermark"]),
        ]
    )
    print_section("members")
    columns = ("NODE", "ROLE", "LOG END", "LAG", "LAST FETCH", "CAUGHT UP", "DIRECTORY", "ENDPOINTS")
    print_table(columns, member_rows(quorum), kind="member")
    return 0


def quorum_as_json(quorum: QuorumDescription) -> dict[str, Any]:
    leader = quorum.voter(quorum.leader_id)
    now_ms = leader.last_fetch_ms if leader is not None else -1

    def member(each: QuorumMember) -> dict[str, Any]:
        listeners = quorum.listeners.get(each.id, [])
        return {
            "id": each.id,
            "directory_id": str(each.directory_id),
            "log_end_offset": each.log_end_offset,
            "lag": quorum.lag(each),
            "last_fetch_ms_ago": _ago(each.last_fetch_ms, now_ms),
            "last_caught_up_ms_ago": _ago(each.last_caught_up_ms, now_ms),
            "endpoints": [{"name": name, "host": at.host, "port": at.port} for name, at in listeners],
        }

    return {
        "leader_id": quorum.leader_id,
        "leader_epoch": quorum.leader_epoch,
        "high_watermark": quorum.high_watermark,
        "voters": [member(each) for each in quorum.voters],
        "observers": [member(each) for each in quorum.observers],
    }


def _ago(then_ms: int, now_ms: int) -> int | None:
    """Both times are from the leader's clock."""
    return None if then_ms < 0 or now_ms < 0 else max(0, now_ms - then_ms)


def member_rows(quorum: dict[str, Any]) -> list[tuple[object, ...]]:
    rows: list[tuple[object, ...]] = []
    for role, members in (("voter", quorum["voters"]), ("observer", quorum["observers"])):
        for each in members:
            is_leader = each["id"] == quorum["leader_id"]
            rows.append(
                (
                    each["id"],
                    "leader" if is_leader else role,
                    each["log_end_offset"] if each["log_end_offset"] >= 0 else None,
                    each["lag"],
                    _milliseconds(each["last_fetch_ms_ago"]),
                    _milliseconds(each["last_caught_up_ms_ago"]),
                    each["directory_id"],
                    [f"{at['name']}://{at['host']}:{at['port']}" for at in each["endpoints"]],
                )
            )
    return rows


def _milliseconds(length_ms: int | None) -> str | None:
    return None if length_ms is None else f"{length_ms} ms ago"


def parse_new_voter(text: str) -> VoterArgument:
    from strandline.model.ids import Endpoint, Uuid

    found = _NEW_VOTER.fullmatch(text)
    if found is None:
        raise UsageError(
            f"{text!r} is not ID or ID@HOST:PORT:DIRECTORY, for example 4 or 4@host:9093:JEXY6aqzQY-32P5TStzaFg"
        )
    voter_id, host, port, directory_id = found.groups()
    if host is None:
        return VoterArgument(int(voter_id), None, None)
    return VoterArgument(int(voter_id), Endpoint(host.strip("[]"), int(port)), Uuid.parse(directory_id))


def run_add(arguments: argparse.Namespace) -> int:
    new = parse_new_voter(arguments.voter)

    async def work(client: Client) -> dict[str, Any]:
        quorum = await client.quorum.describe()
        voter = quorum.voter(new.id)
        if voter is not None and new.directory_id in (None, voter.directory_id):
            return {"id": new.id, "directory_id": str(voter.directory_id), "added": False}
        directory_id = new.directory_id or _observed_directory(quorum, new.id)
        endpoint = new.endpoint or await _registered_endpoint(client, new.id)
        await client.quorum.add(new.id, directory_id, [(_listener_name(quorum), endpoint)])
        return {"id": new.id, "directory_id": str(directory_id), "added": True}

    added = with_client(arguments, work, f"adding voter {new.id}")
    if arguments.json:
        print_json(added)
    else:
        status = "is a voter now" if added["added"] else "was a voter already"
        print_table(("NODE", "STATUS", "DIRECTORY"), [(new.id, status, added["directory_id"])])
    return 0


def _observed_directory(quorum: QuorumDescription, node_id: int) -> Uuid:
    from strandline.model.ids import ZERO_UUID

    observer = quorum.observer(node_id)
    if observer is None or observer.directory_id == ZERO_UUID:
        seen = ", ".join(str(each.id) for each in quorum.observers) or "none"
        raise CommandFailed(
            f"node {node_id} is not an observer of the quorum (observers: {seen}): start it first, or give its address "
            f"and directory with {node_id}@HOST:PORT:DIRECTORY"
        )
    return observer.directory_id


async def _registered_endpoint(client: Client, node_id: int) -> Endpoint:
    endpoint = (await client.quorum.controllers()).get(node_id)
    if endpoint is None:
        raise CommandFailed(
            f"node {node_id} is not registered as a controller: it needs controller in process.roles; if it has that, "
            f"give its address with {node_id}@HOST:PORT:DIRECTORY"
        )
    return endpoint


def _listener_name(quorum: QuorumDescription) -> str:
    """All controllers use the same listener name."""
    listeners = quorum.listeners.get(quorum.leader_id)
    return listeners[0][0] if listeners else "CONTROLLER"


def run_remove(arguments: argparse.Namespace) -> int:
    from strandline.model.ids import ZERO_UUID, Uuid

    found = _VOTER.fullmatch(arguments.voter)
    if found is None:
        raise UsageError(f"{arguments.voter!r} is not ID or ID:DIRECTORY, for example 2 or 2:JEXY6aqzQY-32P5TStzaFg")
    voter_id = int(found[1])
    directory = Uuid.parse(found[2]) if found[2] else None

    async def work(client: Client) -> Uuid:
        quorum = await client.quorum.describe()
        voter = quorum.voter(voter_id)
        if voter is None or directory not in (None, voter.directory_id):
            voters = ", ".join(f"{each.id}:{each.directory_id}" for each in quorum.voters)
            raise CommandFailed(f"{arguments.voter} is not a voter: the voters are {voters}")
        if voter.directory_id == ZERO_UUID:
            raise CommandFailed(
                "the voters of this cluster are static (controller.quorum.voters): `strandline feature upgrade "
                "kraft.version=1` makes them dynamic, so that they can be changed"
            )
        await client.quorum.remove(voter_id, voter.directory_id)
        return voter.directory_id

    directory_id = with_client(arguments, work, f"removing voter {voter_id}")
    if arguments.json:
        print_json({"id": voter_id, "directory_id": str(directory_id), "removed": True})
    else:
        print_table(("NODE", "STATUS", "DIRECTORY"), [(voter_id, "is no longer a voter", str(directory_id))])
    return 0
