"""`strandline produce TOPIC`: writes every line of the input as a record."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import sys
from collections import deque
from collections.abc import AsyncIterator, Iterator
from typing import TYPE_CHECKING

from strandline.cli.errors import CommandFailed, UsageError
from strandline.cli.options import add_client_options, add_json_option
from strandline.cli.output import hint, print_json_line
from strandline.cli.with_client import with_client
from strandline.model.errors import ErrorCode, KafkaError
from strandline.runtime.tasks import yield_to_loop

if TYPE_CHECKING:
    from strandline.client.client import Client
    from strandline.client.producer import Delivered, Delivery, Producer
    from strandline.client.settings import ProducerSettings

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
CHUNK_BYTES = 256 << 10
# Records not yet acknowledged and printed; reading pauses at this number, which bounds the memory.
MAX_UNREPORTED = 20_000
# The broker limits the size of records; this is only what fits into a request at the default request limit.
MAX_RECORD_BYTES = (100 << 20) - (64 << 10)


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("topic", metavar="TOPIC")
    parser.add_argument("-k", "--key", help="the key of every record (default: none)")
    parser.add_argument(
        "-H", "--header", metavar="KEY=VALUE", action="append", default=[], help="a header of every record"
    )
    parser.add_argument("--file", metavar="FILE", help="read lines from FILE instead of standard input")
    parser.add_argument(
        "-p", "--partition", type=int, help="the partition (default: by key, or the one that fills batches)"
    )
    parser.add_argument("-z", "--compression", choices=CODECS, default="none", help="the compression of batches")
    parser.add_argument(
        "--acks", choices=("all", "-1", "1", "0"), default="all", help="the replicas to wait for (default: all)"
    )
    parser.add_argument(
        "-Z", "--tombstone", action="store_true", help="an empty line is a null value, not an empty one"
    )
    parser.add_argument("-q", "--quiet", action="store_true", help="do not print partition and offset of each record")
    add_client_options(parser)
    add_json_option(parser)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    headers = [_header(pair) for pair in arguments.header]
    if arguments.partition is not None and arguments.partition < 0:
        raise UsageError(f"-p {arguments.partition}: partitions are numbered from 0")
    with _opened(arguments.file) as source:
        typed = arguments.file in (None, "-") and sys.stdin.isatty()
        if typed:
            hint("one record per line; Ctrl-D ends")
        producing = _ProduceRun(arguments, headers, source)
        try:
            # No progress is printed where each record is printed, or where the user types the records.
            is_visible = typed or (sys.stdout.isatty() and not arguments.quiet)
            doing = None if is_visible else producing.progress
            with_client(arguments, producing.run, doing)
        except KeyboardInterrupt:
            hint(f"interrupted after {producing.delivered} records")
            return 1
    return 0


def _header(pair: str) -> tuple[str, bytes]:
    key, equals, value = pair.partition("=")
    if not equals:
        raise UsageError(f"-H {pair!r} is not key=value")
    return key, os.fsencode(value)


@contextlib.contextmanager
def _opened(path: str | None) -> Iterator[int]:
    if path is None or path == "-":
        if sys.stdin is None:
            raise UsageError("standard input is closed: give --file FILE")
        yield sys.stdin.fileno()
        return
    if os.path.isdir(path):
        raise UsageError(f"--file {path} is a directory: name a file")
    try:
        descriptor = os.open(path, os.O_RDONLY)
    except OSError as error:
        raise CommandFailed(f"{path}: {error.strerror}") from error
    try:
        yield descriptor
    finally:
        os.close(descriptor)


class _ProduceRun:
    def __init__(self, arguments: argparse.Namespace, headers: list[tuple[str, bytes]], source: int) -> None:
        self._arguments = arguments
        self._headers = headers
        self._source = source
        self._unreported: deque[Delivery] = deque()
        self._producer: Producer | None = None
        self.delivered = 0

    def progress(self) -> str:
        last_error = self._producer.last_error if self._producer is not None else None
        why = f" (retrying: {last_error})" if last_error is not None else ""
        return f"{self.delivered} records written to {self._arguments.topic}{why}"

    async def run(self, client: Client) -> None:
        arguments = self._arguments
        key = None if arguments.key is None else os.fsencode(arguments.key)
        async with client.producer(_settings(arguments)) as producer:
            self._producer = producer
            async for lines in _lines(self._source):
                for line in lines:
                    value = None if arguments.tombstone and not line else line
                    try:
                        delivery = await producer.send(
                            arguments.topic, value, key=key, headers=self._headers, partition=arguments.partition
                        )
                    except KafkaError as error:
                        raise _explain_error(error, arguments.topic) from error
                    self._unreported.append(delivery)
                    if len(self._unreported) >= MAX_UNREPORTED:
                        await self._unreported[0]
                        self._report_delivered()
                self._report_delivered()
                if len(lines) < 10:
                    # The input is interactive, or a program that waits for the output: report before reading on.
                    await self._report_all()
            await self._report_all()

    async def _report_all(self) -> None:
        while self._unreported:
            await asyncio.gather(self._unreported[-1], return_exceptions=True)
            self._report_delivered()
            if self._unreported:
                await asyncio.gather(self._unreported[0], return_exceptions=True)

    def _report_delivered(self) -> None:
        """Prints the delivered records, in the order of the input."""
        while self._unreported and self._unreported[0].done():
            self._print(self._unreported.popleft().result())
            self.delivered += 1
        sys.stdout.flush()

    def _print(self, delivered: Delivered) -> None:
        if self._arguments.quiet:
            return
        if self._arguments.json:
            print_json_line(
                {
                    "topic": delivered.topic,
                    "partition": delivered.partition,
                    "offset": delivered.offset,
                    "timestamp": delivered.timestamp_ms,
                }
            )
        else:
            where = f"partition {delivered.partition}" + (
                f" at offset {delivered.offset}" if delivered.offset >= 0 else ""
            )
            print(f"Produced to {delivered.topic}, {where} with timestamp {delivered.timestamp_ms}.")


def _settings(arguments: argparse.Namespace) -> ProducerSettings:
    from strandline.client.settings import ProducerSettings
    from strandline.records.compression import Codec

    acks = -1 if arguments.acks == "all" else int(arguments.acks)
    return ProducerSettings(
        acks=acks,
        idempotent=acks == -1,
        codec=Codec[arguments.compression.upper()],
        batch_bytes=256 << 10,
        max_record_bytes=MAX_RECORD_BYTES,
        max_block_ms=10_000,
        delivery_timeout_ms=30_000,
    )


def _explain_error(error: KafkaError, topic: str) -> Exception:
    from strandline.client.errors import RecordTooLarge

    if isinstance(error, RecordTooLarge):
        return CommandFailed(f"{error.why}: brokers accept no larger requests, so split it into several records")
    if error.code != ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
        return error
    if "has partitions" in error.why:
        return CommandFailed(f"{error.why}: give -p one of them")
    return CommandFailed(
        f"topic {topic!r} does not exist: `strandline topic create {topic}` creates it, `strandline topic list` lists "
        "the topics"
    )


async def _lines(source: int) -> AsyncIterator[list[bytes]]:
    """Lines without their newlines, in chunks as they arrive; the last line needs no newline."""
    rest: list[bytes] = []
    while chunk := await _read(source):
        first, *lines = chunk.split(b"\n")
        rest.append(first)
        if lines:
            whole = [b"".join(rest), *lines[:-1]]
            rest = [lines[-1]]
            yield [line.removesuffix(b"\r") for line in whole]
    if last := b"".join(rest):
        yield [last.removesuffix(b"\r")]


async def _read(source: int) -> bytes:
    """Waits until the input is readable without blocking the event loop; regular files are always readable."""
    loop = asyncio.get_running_loop()
    readable = asyncio.Event()
    try:
        loop.add_reader(source, readable.set)
    except PermissionError:
        await yield_to_loop()
    else:
        try:
            await readable.wait()
        finally:
            loop.remove_reader(source)
    try:
        return os.read(source, CHUNK_BYTES)
    except OSError as error:
        raise CommandFailed(f"the input cannot be read: {error.strerror}") from error
