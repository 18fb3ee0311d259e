"""`strandline consume TOPIC`: reads a range of offsets (`cli/offset_range`) and prints it (`cli/record_format`)."""

from __future__ import annotations

import argparse
import time
from typing import TYPE_CHECKING

import msgspec

from strandline.cli.errors import CommandFailed, UsageError
from strandline.cli.offset_range import EXAMPLES, AfterStart, BeforeEnd, InvalidOffsets, OffsetRange, parse_offsets
from strandline.cli.options import add_client_options, add_json_option, check_at_least_one
from strandline.cli.output import Progress, hint
from strandline.cli.partition_arguments import describe_topic
from strandline.cli.record_format import InvalidFormat
from strandline.cli.record_printer import Printer, make_printer
from strandline.cli.resolve_offsets import list_bounds, resolve_offset
from strandline.cli.with_client import with_client
from strandline.model.errors import ErrorCode, KafkaError
from strandline.model.ids import TopicPartition

if TYPE_CHECKING:
    from strandline.client.client import Client
    from strandline.client.core.fetched_records import FetchedPartition
    from strandline.client.fetcher import Fetcher

POLL_MS = 500
REPORT_AFTER_SECONDS = 2.0


def configure(parser: argparse.ArgumentParser) -> None:
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.epilog = HELP
    parser.add_argument("topic", metavar="TOPIC")
    parser.add_argument(
        "-o", "--offset", metavar="OFFSETS", default="start", help="where to start and end (default: start)"
    )
    parser.add_argument(
        "-g",
        "--group",
        metavar="GROUP",
        help="read as a member of this group: partitions are shared with its other members, and offsets committed",
    )
    parser.add_argument("-n", "--num", metavar="N", type=int, help="stop after N records")
    parser.add_argument(
        "-f", "--format", metavar="FORMAT", default="json", help="how to print a record (default: json)"
    )
    parser.add_argument("-p", "--partition", metavar="P", help="only these partitions, separated by commas")
    parser.add_argument(
        "--read-committed", action="store_true", help="skip records of transactions that are not committed"
    )
    parser.add_argument("--print-control-records", action="store_true", help="also print transaction markers")
    parser.add_argument("--meta-only", action="store_true", help="with json: the sizes of values instead of values")
    add_client_options(parser)
    add_json_option(parser)
    parser.set_defaults(run=run)


HELP = f"""\
offsets:  {EXAMPLES}
  start and end are the current first and next offset of the partition; N:M stops before M; @T is a time: milliseconds,
  seconds, YYYY-MM-DD, YYYY-MM-DDTHH:MM:SSZ, or a duration from now (-1h) or, after a colon, from the first time

  with -g: start or end, for partitions without a committed offset

formats:  json, or text with verbs: %t topic  %p partition  %o offset  %k key  %v value  %d timestamp  %e leader epoch
  %T %K %V lengths  %H number of headers  %h{{ %k=%v }} each header  %x %y producer id and epoch  %i count  %%
  %a{{compression}} attributes  %[ %| %] log start, last stable offset, high watermark; \\n \\t \\r \\\\ \\xNN
  modifiers: %v{{hex}} %v{{base64}} %v{{unpack[>I]}} %o{{big64}} %d{{strftime[%F %T]}} %d{{go[2006-01-02 15:04:05]}}
"""


class PartitionRange(msgspec.Struct, frozen=True):
    """What to read of one partition: from `start`, printed from `floor` on, until `end` (exclusive) if there is one."""

    start: int
    floor: int
    end: int | None

    @property
    def is_empty(self) -> bool:
        return self.end is not None and max(self.start, self.floor) >= self.end


def run(arguments: argparse.Namespace) -> int:
    try:
        offsets = parse_offsets(arguments.offset, time.time_ns() // 1_000_000)
        printer = make_printer(arguments)
    except (InvalidOffsets, InvalidFormat) as error:
        raise UsageError(str(error)) from error
    check_at_least_one("-n", arguments.num)
    if arguments.group is not None:
        return _run_in_group(arguments, offsets, printer)
    consuming = _ConsumeRun(arguments, offsets, _partitions(arguments.partition), printer)
    try:
        with_client(arguments, consuming.run, None)
    except KeyboardInterrupt:
        printer.flush()
    return 0


def _run_in_group(arguments: argparse.Namespace, offsets: OffsetRange, printer: Printer) -> int:
    from strandline.cli.consume_group import GroupRun

    resets: dict[object, str] = {AfterStart(): "earliest", BeforeEnd(): "latest"}
    reset = resets.get(offsets.start)
    if reset is None or offsets.end is not None:
        raise UsageError(
            f"-o {arguments.offset!r} with -g: give start or end, where to begin in partitions without a committed "
            "offset; `strandline group reset` changes committed offsets"
        )
    if arguments.partition is not None:
        raise UsageError("-p with -g: the group decides which partitions its members read")
    if not arguments.group:
        raise UsageError("-g: give the id of a group")
    try:
        with_client(arguments, GroupRun(arguments, reset, printer).run, None)
    except KeyboardInterrupt:
        printer.flush()
    return 0


def _partitions(text: str | None) -> list[int] | None:
    if text is None:
        return None
    numbers = text.split(",")
    if not all(number.strip().isdigit() for number in numbers):
        raise UsageError(f"-p {text!r}: give one or more partition numbers separated by commas")
    return sorted({int(number) for number in numbers})


class _ConsumeRun:
    def __init__(
        self, arguments: argparse.Namespace, offsets: OffsetRange, partitions: list[int] | None, printer: Printer
    ) -> None:
        self._arguments = arguments
        self._offsets = offsets
        self._partitions = partitions
        self._printer = printer
        self._remaining = arguments.num

    async def run(self, client: Client) -> None:
        from strandline.client.settings import FetcherSettings

        with Progress("describing the topic"):
            spans = await self._spans(client)
        settings = FetcherSettings(
            read_committed=self._arguments.read_committed,
            keep_control_batches=self._arguments.print_control_records,
            out_of_range="earliest",
        )
        async with client.fetcher(settings) as fetcher:
            for partition, span in list(spans.items()):
                if span.is_empty:
                    del spans[partition]
                else:
                    fetcher.assign(partition, span.start)
            try:
                await self._read(fetcher, spans)
            except KafkaError as error:
                if error.code not in (ErrorCode.CORRUPT_MESSAGE, ErrorCode.KAFKA_STORAGE_ERROR):
                    raise
                raise CommandFailed(
                    f"{error.why} ({error.code.name}): see the log of the broker; -o with a later offset skips these "
                    "records"
                ) from error

    async def _spans(self, client: Client) -> dict[TopicPartition, PartitionRange]:
        name = self._arguments.topic
        topic = await describe_topic(client, name)
        numbers = [each.index for each in topic.partitions]
        unknown = [number for number in self._partitions or [] if number not in numbers]
        if unknown:
            raise CommandFailed(f"topic {name!r} has partitions 0 to {len(numbers) - 1}, not {unknown[0]}")
        chosen = [TopicPartition(name, number) for number in self._partitions or numbers]
        return await _resolved(client, chosen, self._offsets, read_committed=self._arguments.read_committed)

    async def _read(self, fetcher: Fetcher, spans: dict[TopicPartition, PartitionRange]) -> None:
        last_error = FetchErrorReporter()
        while spans:
            for fetched in await fetcher.poll(POLL_MS):
                self._show(fetched, spans)
                if self._remaining == 0:
                    break
            self._printer.flush()
            if self._remaining == 0:
                return
            for partition, span in list(spans.items()):
                if span.end is not None and fetcher.position(partition).offset >= span.end:
                    fetcher.unassign(partition)
                    del spans[partition]
            last_error.report(fetcher.last_error)

    def _show(self, fetched: FetchedPartition, spans: dict[TopicPartition, PartitionRange]) -> None:
        span = spans.get(fetched.partition)
        if span is None:
            return
        for batch in fetched.batches:
            for record in batch.records:
                if record.offset < span.floor or (span.end is not None and record.offset >= span.end):
                    continue
                self._printer.show(fetched, batch, record)
                if self._remaining is not None:
                    self._remaining -= 1
                    if self._remaining == 0:
                        return


class FetchErrorReporter:
    """Prints a hint if no broker can be fetched from, which otherwise looks like a topic without new records."""

    def __init__(self) -> None:
        self._since: float | None = None
        self._reported = False

    def report(self, last_error: KafkaError | None) -> None:
        if last_error is None:
            if self._reported:
                hint("the broker responds again")
            self._since, self._reported = None, False
            return
        self._since = self._since or time.monotonic()
        if not self._reported and time.monotonic() - self._since > REPORT_AFTER_SECONDS:
            self._reported = True
            hint(f"waiting: {last_error.why or last_error.code.name}")


async def _resolved(
    client: Client, partitions: list[TopicPartition], offsets: OffsetRange, *, read_committed: bool
) -> dict[TopicPartition, PartitionRange]:
    starts, ends = await list_bounds(client, partitions, read_committed=read_committed)
    first = await resolve_offset(client, partitions, offsets.start, starts, ends, read_committed=read_committed)
    stop = first
    if offsets.end is not None:
        stop = await resolve_offset(client, partitions, offsets.end, starts, ends, read_committed=read_committed)
    return {
        each: PartitionRange(
            start=min(max(first[each], starts[each]), ends[each]),
            floor=first[each],
            end=None if offsets.end is None else min(stop[each], ends[each]),
        )
        for each in partitions
    }
