"""Record batches of the metadata log: encoding and decoding of records.

Used for the metadata log and its snapshots. A batch is either data (metadata records, which the image replays) or
control (records of the quorum itself: leader, voters, header and footer of a snapshot).

A large batch takes many milliseconds, so both directions have a variant in slices, between which the caller yields to
the event loop. Metadata that cannot be decoded stops the node: skipping it would silently diverge from the cluster.
"""

from __future__ import annotations

import struct
from collections.abc import Generator, Iterable, Iterator, Sequence
from typing import Final, cast

import msgspec

from strandline.metadata.record_versions import record_version
from strandline.model.errors import NodeFault
from strandline.protocol.codec import MalformedMessage, decode, encode_bytes
from strandline.protocol.messages.control_records import (
    KRaftVersionRecord,
    LeaderChangeMessage,
    SnapshotFooterRecord,
    SnapshotHeaderRecord,
    VotersRecord,
)
from strandline.protocol.metadata_codec import decode_record, encode_record
from strandline.protocol.types import Message
from strandline.raft.machine.values import ControlRecord
from strandline.records.batch import (
    HEADER_SIZE,
    LAST_OFFSET_DELTA_AT,
    LENGTH_AT,
    LOG_OVERHEAD,
    RECORD_COUNT_AT,
    BatchHeader,
    ControlType,
    CorruptBatch,
    Record,
    batches,
    control_record_type,
    crc_ok,
    decode_batch,
    encode_batch,
    records_of,
    write_crc,
)
from strandline.records.record_spans import read_span
from strandline.runtime.disk import Buffer

# About two milliseconds of encoding.
RECORDS_PER_SLICE: Final = 300
_KEY: Final = struct.Struct(">hh")
_CONTROL_MESSAGES: Final[dict[int, type[Message]]] = {
    ControlType.LEADER_CHANGE: LeaderChangeMessage,
    ControlType.SNAPSHOT_HEADER: SnapshotHeaderRecord,
    ControlType.SNAPSHOT_FOOTER: SnapshotFooterRecord,
    ControlType.KRAFT_VERSION: KRaftVersionRecord,
    ControlType.KRAFT_VOTERS: VotersRecord,
}
_CONTROL_TYPES: Final = {message: type_ for type_, message in _CONTROL_MESSAGES.items()}


class MetadataBatch(msgspec.Struct, frozen=True):
    base_offset: int
    next_offset: int
    epoch: int
    timestamp: int
    size_bytes: int
    is_control: bool
    records: tuple[Message, ...]
    """Metadata records, or control records of the known types (others are skipped)."""


def encode_data_batch(
    records: Iterable[Message], *, base_offset: int, epoch: int, timestamp: int, metadata_version: int
) -> bytearray:
    return encode_batch(
        (
            Record(-1, timestamp, None, encode_record(record, record_version(record, metadata_version)))
            for record in records
        ),
        base_offset=base_offset,
        leader_epoch=epoch,
    )


def encode_in_slices(
    records: Sequence[Message], *, base_offset: int, epoch: int, timestamp: int, metadata_version: int
) -> Generator[None, None, bytearray]:
    """The same bytes as `encode_data_batch`, but yields every few hundred records.

    Each slice is encoded as a batch whose records have the offsets of the whole; their bodies are concatenated.
    """
    batch = bytearray()
    for first in range(0, len(records), RECORDS_PER_SLICE):
        if first > 0:
            yield
        part = encode_batch(
            (
                Record(offset, timestamp, None, encode_record(record, record_version(record, metadata_version)))
                for offset, record in enumerate(records[first : first + RECORDS_PER_SLICE], base_offset + first)
            ),
            base_offset=base_offset,
            leader_epoch=epoch,
        )
        batch += part if first == 0 else memoryview(part)[HEADER_SIZE:]
    struct.pack_into(">i", batch, LENGTH_AT, len(batch) - LOG_OVERHEAD)
    struct.pack_into(">i", batch, LAST_OFFSET_DELTA_AT, len(records) - 1)
    struct.pack_into(">i", batch, RECORD_COUNT_AT, len(records))
    write_crc(batch)
    return batch


def encode_control_batch(
    records: Iterable[ControlRecord], *, base_offset: int, epoch: int, timestamp: int
) -> bytearray:
    """Each control record is encoded in the version that it names."""
    return encode_batch(
        (
            Record(-1, timestamp, _KEY.pack(0, _CONTROL_TYPES[type(record)]), encode_bytes(record, record.version))
            for record in records
        ),
        base_offset=base_offset,
        leader_epoch=epoch,
        control=True,
    )


def read_batches(buffer: Buffer, where: str) -> Iterator[MetadataBatch]:
    """Every batch in the buffer. NodeFault, with `where` in its message, when one cannot be decoded."""
    for position, header in checked_batches(buffer, where):
        records: list[Message]
        if header.is_control:
            records = [record for _, record in control_records(buffer, position, header, where)]
        else:
            records = [record for slice_ in data_slices(buffer, position, header, where) for record in slice_]
        yield MetadataBatch(
            header.base_offset,
            header.next_offset,
            header.partition_leader_epoch,
            header.max_timestamp,
            header.size_bytes,
            header.is_control,
            tuple(records),
        )


def checked_batches(buffer: Buffer, where: str) -> Iterator[tuple[int, BatchHeader]]:
    """(position, header) of every batch, with its checksum verified and its records not decoded."""
    position = 0
    try:
        for position, header in batches(buffer):
            if not crc_ok(buffer, position, header.size_bytes):
                raise CorruptBatch("its checksum does not match")
            yield position, header
    except CorruptBatch as error:
        raise NodeFault(f"{where}: the batch at byte {position} cannot be read: {error}") from error


def data_slices(buffer: Buffer, position: int, header: BatchHeader, where: str) -> Iterator[list[Message]]:
    """The metadata records of a data batch, a few hundred at a time."""
    offset = header.base_offset
    try:
        data = bytes(records_of(buffer, position, header))
        at, end = 0, len(data)
        for first in range(0, header.record_count, RECORDS_PER_SLICE):
            slice_: list[Message] = []
            for _ in range(min(RECORDS_PER_SLICE, header.record_count - first)):
                offset = header.base_offset + first + len(slice_)
                span = read_span(data, at, end)
                at = span.end
                slice_.append(decode_record(data[span.value_start : span.value_start + max(0, span.value_length)]))
            yield slice_
    except MalformedMessage as error:
        raise _cannot_decode(where, offset, error) from error
    except (CorruptBatch, IndexError) as error:
        raise NodeFault(f"{where}: the record at offset {offset} is damaged: {error}") from error


def control_records(buffer: Buffer, position: int, header: BatchHeader, where: str) -> list[tuple[int, ControlRecord]]:
    """(offset, record) of the known types; other types are skipped."""
    found: list[tuple[int, ControlRecord]] = []
    try:
        for record in decode_batch(buffer, position):
            cls = _CONTROL_MESSAGES.get(control_record_type(record.key))
            if cls is not None:
                value = record.value or b""
                message, _ = decode(cls, int.from_bytes(value[:2], "big"), value)
                found.append((record.offset, cast(ControlRecord, message)))
    except MalformedMessage as error:
        raise _cannot_decode(where, header.base_offset, error) from error
    except CorruptBatch as error:
        raise NodeFault(f"{where}: the batch at offset {header.base_offset} is damaged: {error}") from error
    return found


def _cannot_decode(where: str, offset: int, error: MalformedMessage) -> NodeFault:
    return NodeFault(
        f"{where}: the metadata record at offset {offset} cannot be understood: {error}. If a newer release wrote it, "
        "run this node with that release; nothing was changed"
    )
