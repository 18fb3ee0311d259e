"""Prints records for `consume`: by a format or as JSON, buffered into large writes."""

from __future__ import annotations

import argparse
import json
import select
import sys
from typing import TYPE_CHECKING, Any, Protocol

from strandline.cli.output import text_field
from strandline.cli.record_format import RecordFields, RecordFormat

if TYPE_CHECKING:
    from strandline.client.core.fetched_records import FetchedBatch, FetchedPartition
    from strandline.records.batch import Record

BUFFER_BYTES = 256 << 10


class Printer(Protocol):
    def show(self, fetched: FetchedPartition, batch: FetchedBatch, record: Record) -> None: ...
    def flush(self) -> None:
        """Raises BrokenPipeError if the reader has closed the pipe, even if there was nothing to write."""
        ...


def make_printer(arguments: argparse.Namespace) -> Printer:
    if arguments.json or arguments.format == "json":
        pretty = not arguments.json and sys.stdout.isatty()
        return _JsonPrinter(pretty=pretty, meta_only=arguments.meta_only)
    return _FormatPrinter(RecordFormat(arguments.format))


class _Output:
    def __init__(self) -> None:
        self._buffered: list[bytes] = []
        self._size = 0

    def write(self, data: bytes) -> None:
        self._buffered.append(data)
        self._size += len(data)
        if self._size >= BUFFER_BYTES:
            self.flush()

    def flush(self) -> None:
        if not self._buffered and _reader_has_closed():
            raise BrokenPipeError
        if self._buffered:
            data, self._buffered, self._size = b"".join(self._buffered), [], 0
            sys.stdout.buffer.write(data)
            sys.stdout.buffer.flush()


class _FormatPrinter(_Output):
    def __init__(self, format: RecordFormat) -> None:
        super().__init__()
        self._format = format
        self._count = 0

    def show(self, fetched: FetchedPartition, batch: FetchedBatch, record: Record) -> None:
        self._count += 1
        header = batch.header
        self.write(
            self._format.render(
                RecordFields(
                    fetched.partition.topic.encode(),
                    fetched.partition.partition,
                    record.offset,
                    record.timestamp,
                    record.key,
                    record.value,
                    [(name.encode(), value) for name, value in record.headers],
                    header.partition_leader_epoch,
                    header.attributes,
                    header.producer_id,
                    header.producer_epoch,
                    fetched.log_start_offset,
                    fetched.last_stable_offset,
                    fetched.high_watermark,
                    self._count,
                )
            )
        )


class _JsonPrinter(_Output):
    """One object per record; bytes that are not UTF-8 are printed in base64, as `key_base64` or `value_base64`."""

    def __init__(self, *, pretty: bool, meta_only: bool) -> None:
        super().__init__()
        self._pretty = pretty
        self._meta_only = meta_only

    def show(self, fetched: FetchedPartition, batch: FetchedBatch, record: Record) -> None:
        document: dict[str, Any] = {"topic": fetched.partition.topic, **text_field("key", record.key)}
        if self._meta_only:
            document["value_size"] = len(record.value or b"")
        else:
            document |= text_field("value", record.value)
        if record.headers:
            document["headers"] = [{"key": name, **text_field("value", value)} for name, value in record.headers]
        document |= {
            "timestamp": record.timestamp,
            "partition": fetched.partition.partition,
            "offset": record.offset,
        }
        if self._pretty:
            text = json.dumps(document, indent=2, ensure_ascii=False)
        else:
            text = json.dumps(document, ensure_ascii=False, separators=(",", ":"))
        self.write(text.encode() + b"\n")


def _reader_has_closed() -> bool:
    """`consume | head -1` should exit when head does, not with the next record."""
    try:
        watched = select.poll()
        watched.register(sys.stdout.fileno(), 0)
        return any(event & (select.POLLERR | select.POLLNVAL) for _, event in watched.poll(0))
    except (OSError, ValueError, AttributeError):
        return False
