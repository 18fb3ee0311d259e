"""Commands that talk to a cluster: their options, the client they get, and what its errors mean to a person."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, TypeVar

from strandline.cli.errors import CommandFailed, UsageError
from strandline.cli.output import Progress
from strandline.model.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    import argparse

    from strandline.client.client import Client

T = TypeVar("T")
DEFAULT_BOOTSTRAP = "127.0.0.1:9092"
DEFAULT_DATA = "./strandline-data"


def add_client_options(parser: argparse.ArgumentParser, *, controllers: bool = False) -> None:
    """`controllers`: the command can also be sent to a controller's listener."""
    parser.add_argument(
        "-b",
        "--bootstrap",
        metavar="HOST:PORT",
        default=os.environ.get("STRANDLINE_BOOTSTRAP") or _nearest_cluster(),
        help=f"brokers{', or controllers,' if controllers else ''} to begin with, separated by commas "
        "(default: $STRANDLINE_BOOTSTRAP or 127.0.0.1:9092)",
    )


def _nearest_cluster() -> str:
    """Port 9092 here; if that is a node of the cluster in the default directory, the others too: it may be down."""
    from strandline.launch.cluster_state import StateUnreadable, read_state

    try:
        state = read_state(DEFAULT_DATA)
    except (OSError, StateUnreadable):
        state = None
    known = [] if state is None else state.bootstrap.split(",")
    return ",".join(known) if DEFAULT_BOOTSTRAP in known else DEFAULT_BOOTSTRAP


def add_json_option(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="print JSON")


def with_client(
    arguments: argparse.Namespace,
    work: Callable[[Client], Awaitable[T]],
    doing: str | Callable[[], str] | None,
    *,
    timeout_ms: int = 30_000,
) -> T:
    """Runs `work` with a client; `doing` is what to say when it takes long (None: it is meant to).

    `timeout_ms` is for one call of the client, however often it has to be tried."""
    import asyncio

    from strandline.client.client import Client
    from strandline.client.settings import ClientSettings
    from strandline.runtime.world import system_world

    settings = ClientSettings(
        client_id="strandline-cli", connect_timeout_ms=5_000, api_timeout_ms=timeout_ms, bootstrap_timeout_ms=0
    )

    async def run() -> T:
        async with Client(system_world(threads=1), arguments.bootstrap, settings) as client:
            return await work(client)

    try:
        with contextlib.nullcontext() if doing is None else Progress(doing):
            return asyncio.run(run())
    except KafkaError as error:
        raise explain_error(error, arguments.bootstrap) from error
    except ValueError as error:
        if "is not an address" in str(error):
            raise UsageError(f"--bootstrap: {error}") from error
        raise


def explain_error(error: KafkaError, bootstrap: str) -> CommandFailed:
    from strandline.client.errors import BrokerUnreachable, NotABroker, ProtocolViolation, UnsupportedVersion

    if isinstance(error, BrokerUnreachable):
        if not any(address in error.why for address in bootstrap.split(",")):
            return CommandFailed(
                f"{bootstrap} knows the cluster, but the node that is needed does not answer ({error.why}): too few of "
                "its nodes may run; `strandline up` starts those that are missing"
            )
        return CommandFailed(
            f"nobody answers at {bootstrap} ({error.why}): start a cluster with `strandline up`, or say where one is "
            "with -b HOST:PORT"
        )
    if isinstance(error, NotABroker) or error.code == ErrorCode.MISMATCHED_ENDPOINT_TYPE:
        return CommandFailed(
            f"{bootstrap} is a controller's listener, and this command needs a broker's: -b takes the address in "
            "advertised.listeners, or `bootstrap` of cluster.json"
        )
    if isinstance(error, ProtocolViolation):
        return CommandFailed(f"{error.why}: is this really a Kafka port?")
    if isinstance(error, UnsupportedVersion):
        return CommandFailed(f"{error.why}: this cluster is too old, or too different, for this command")
    advice = _ADVICE.get(error.code)
    return CommandFailed(f"{_sentence(error)}{f': {advice}' if advice else ''}")


def _sentence(error: KafkaError) -> str:
    return f"{error.why.rstrip('.')} ({error.code.name})" if error.why else error.code.name


_ADVICE = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: "`strandline topic list` shows what there is",
    ErrorCode.TOPIC_ALREADY_EXISTS: "choose another name, or delete it first with `strandline topic delete`",
    ErrorCode.INVALID_REPLICATION_FACTOR: "-r may not exceed the number of brokers (`strandline cluster describe`)",
    ErrorCode.NOT_CONTROLLER: "the controllers are electing a leader, or too few of them run; try again, or look with "
    "`strandline quorum describe`",
    ErrorCode.INVALID_PARTITIONS: "a topic can only grow: give -p a larger number than it has",
    ErrorCode.MESSAGE_TOO_LARGE: "raise max.message.bytes of the topic with `strandline config set`",
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED: "ask an administrator for the permission",
    ErrorCode.TOPIC_AUTHORIZATION_FAILED: "ask an administrator for the permission",
}


def parse_pairs(pairs: list[str], option: str) -> dict[str, str]:
    """`key=value` words; the order is kept and the last one of a key counts."""
    found: dict[str, str] = {}
    for pair in pairs:
        key, equals, value = pair.partition("=")
        if not equals or not key:
            raise UsageError(f"{option} {pair!r} is not key=value")
        found[key] = value
    return found


def check_file(path: str) -> None:
    """A configuration that is not there is told apart from one with problems in it."""
    if os.path.isdir(path):
        raise CommandFailed(f"{path} is a directory: name the server.properties in it")
    if not os.path.exists(path):
        raise CommandFailed(f"{path}: no such file; write a server.properties, or start a cluster with `strandline up`")
