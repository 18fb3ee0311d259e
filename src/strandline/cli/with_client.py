"""Runs the work of a command with a client, and turns the client's errors into messages with advice."""

from __future__ import annotations

import contextlib
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, TypeVar

from strandline.cli.errors import CommandFailed, UsageError
from strandline.cli.output import Progress
from strandline.model.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    import argparse

    from strandline.client.client import Client

T = TypeVar("T")


def with_client(
    arguments: argparse.Namespace,
    work: Callable[[Client], Awaitable[T]],
    doing: str | Callable[[], str] | None,
    *,
    timeout_ms: int = 30_000,
) -> T:
    """Runs `work` with a client; `doing` is printed when it takes long (None: nothing is printed).

    `timeout_ms` limits one call of the client, including its retries."""
    import asyncio

    from strandline.client.bootstrap import parse_bootstrap
    from strandline.client.client import Client
    from strandline.client.settings import ClientSettings
    from strandline.runtime.world import system_world

    try:
        parse_bootstrap(arguments.bootstrap)
    except ValueError as error:
        raise UsageError(f"--bootstrap: {error}") from error
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


def explain_error(error: KafkaError, bootstrap: str) -> CommandFailed:
    from strandline.client.errors import BrokerUnreachable, NotABroker, ProtocolViolation, UnsupportedVersion

    if isinstance(error, BrokerUnreachable):
        if not any(address in error.why for address in bootstrap.split(",")):
            return CommandFailed(
                f"{bootstrap} responds, but another node of the cluster does not ({error.why}): too few nodes may be "
                "running; `strandline up` starts those that are missing"
            )
        return CommandFailed(
            f"no broker responds at {bootstrap} ({error.why}): start a cluster with `strandline up`, or give the "
            "address of one with -b HOST:PORT"
        )
    if isinstance(error, NotABroker) or error.code == ErrorCode.MISMATCHED_ENDPOINT_TYPE:
        return CommandFailed(
            f"{bootstrap} is a controller listener, and this command needs a broker: give -b an address from "
            "advertised.listeners, or `bootstrap` of cluster.json"
        )
    if isinstance(error, ProtocolViolation):
        return CommandFailed(f"{error.why}: is this the port of a Kafka broker?")
    if isinstance(error, UnsupportedVersion):
        return CommandFailed(f"{error.why}: the cluster does not support this command")
    advice = _ADVICE.get(error.code)
    return CommandFailed(f"{_sentence(error)}{f': {advice}' if advice else ''}")


def _sentence(error: KafkaError) -> str:
    return f"{error.why.rstrip('.')} ({error.code.name})" if error.why else error.code.name


_ADVICE = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: "`strandline topic list` lists the topics",
    ErrorCode.TOPIC_ALREADY_EXISTS: "choose another name, or delete it first with `strandline topic delete`",
    ErrorCode.INVALID_REPLICATION_FACTOR: "-r may not exceed the number of brokers (`strandline cluster describe`)",
    ErrorCode.NOT_CONTROLLER: "the controllers are electing a leader, or too few of them run; try again, or see "
    "`strandline quorum describe`",
    ErrorCode.INVALID_PARTITIONS: "partitions can only be added: give -p a larger number",
    ErrorCode.MESSAGE_TOO_LARGE: "raise max.message.bytes of the topic with `strandline config set`",
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED: "ask an administrator for the permission",
    ErrorCode.TOPIC_AUTHORIZATION_FAILED: "ask an administrator for the permission",
}
