"""Decodes the files of a log for `log dump`: batches and records, indexes, snapshots, checkpoints.

Yields entries (dictionaries that print as text or as JSON). Damage is an entry of its own, with its position; decoding
continues behind it where possible.
"""

from __future__ import annotations

import base64
import os
import struct
from collections.abc import Iterator
from typing import Any, BinaryIO

from strandline.cli.output import text_field
from strandline.log import offset_index, time_index, transaction_index
from strandline.model.ids import METADATA_TOPIC, Uuid
from strandline.protocol.errors import MalformedMessage
from strandline.protocol.types import Message, Struct
from strandline.records.batch import (
    HEADER_SIZE,
    LOG_OVERHEAD,
    BatchHeader,
    Codec,
    ControlType,
    CorruptBatch,
    Record,
    control_record_type,
    crc_ok,
    decode_batch,
    read_header,
)

Entry = dict[str, Any]
_CODECS = frozenset(Codec)
# A larger length is damage, not a batch.
MAX_BATCH_BYTES = 1 << 30


class NotALogFile(Exception):
    """The file name is none of a log's file names."""


def dump(path: str, *, records: bool) -> Iterator[Entry]:
    """The entries of one file. Raises NotALogFile or OSError."""
    name = os.path.basename(path)
    suffix = name.removesuffix(".deleted").removesuffix(".swap").removesuffix(".cleaned").rpartition(".")[2]
    if suffix in ("log", "checkpoint"):
        is_metadata = suffix == "checkpoint" or _partition_of(path).startswith(METADATA_TOPIC)
        yield from _batches(path, records=records, is_metadata=is_metadata)
    elif suffix == "index":
        yield from _offset_index(path)
    elif suffix == "timeindex":
        yield from _time_index(path)
    elif suffix == "txnindex":
        yield from _txn_index(path)
    elif suffix == "snapshot":
        yield from _producer_snapshot(path)
    elif name.endswith("-checkpoint") or name in ("partition.metadata", "meta.properties", "quorum-state"):
        yield from _lines(path)
    else:
        raise NotALogFile(
            f"{path} is not a file of a log: *.log, *.index, *.timeindex, *.txnindex, *.snapshot, "
            "*.checkpoint, *-checkpoint, partition.metadata, meta.properties, quorum-state, or a partition's directory"
        )


def _partition_of(path: str) -> str:
    return os.path.basename(os.path.dirname(os.path.abspath(path)))


def _base_offset(path: str) -> int:
    digits = os.path.basename(path)[:20]
    return int(digits) if digits.isdigit() else 0


def _batches(path: str, *, records: bool, is_metadata: bool) -> Iterator[Entry]:
    with open(path, "rb") as file:
        position = 0
        while header_bytes := file.read(HEADER_SIZE):
            try:
                header = read_header(header_bytes)
                batch = header_bytes + _body(file, header)
            except CorruptBatch as error:
                if not any(header_bytes) and _only_zeros(file):
                    yield {"type": "zeros", "position": position, "why": "preallocated, not written yet"}
                else:
                    yield {"type": "damage", "position": position, "why": str(error)}
                return
            yield _batch(header, batch, position)
            if records:
                yield from record_entries(header, batch, is_metadata=is_metadata)
            position += header.size_bytes


def _body(file: BinaryIO, header: BatchHeader) -> bytes:
    size = header.size_bytes - HEADER_SIZE
    if header.size_bytes > MAX_BATCH_BYTES:
        raise CorruptBatch(f"a batch of {header.size_bytes} bytes is not credible")
    body = file.read(size)
    if len(body) < size:
        raise CorruptBatch(f"the file ends {size - len(body)} bytes before the batch does")
    return body


def _only_zeros(file: BinaryIO) -> bool:
    while chunk := file.read(1 << 20):
        if any(chunk):
            return False
    return True


def _batch(header: BatchHeader, batch: bytes, position: int) -> Entry:
    codec = header.codec
    return {
        "type": "batch",
        "base_offset": header.base_offset,
        "last_offset": header.last_offset,
        "count": header.record_count,
        "position": position,
        "size": header.batch_length + LOG_OVERHEAD,
        "leader_epoch": header.partition_leader_epoch,
        "codec": Codec(codec).name.lower() if codec in _CODECS else codec,
        "timestamp_type": "append" if header.is_log_append_time else "create",
        "base_timestamp": header.base_timestamp,
        "max_timestamp": header.max_timestamp,
        "producer_id": header.producer_id,
        "producer_epoch": header.producer_epoch,
        "base_sequence": header.base_sequence,
        "last_sequence": header.last_sequence,
        "transactional": header.is_transactional,
        "control": header.is_control,
        "delete_horizon": header.has_delete_horizon,
        "crc": header.crc,
        "valid": crc_ok(batch, 0, len(batch)),
    }


def record_entries(header: BatchHeader, batch: bytes, *, is_metadata: bool) -> Iterator[Entry]:
    try:
        decoded = decode_batch(batch)
    except CorruptBatch as error:
        yield {"type": "damage", "offset": header.base_offset, "why": str(error)}
        return
    for record in decoded:
        entry: Entry = {"type": "record", "offset": record.offset, "timestamp": record.timestamp}
        if header.is_control:
            entry |= _control(record)
        elif is_metadata:
            entry |= _metadata(record)
        else:
            entry |= {**text_field("key", record.key), **text_field("value", record.value)}
        if record.headers:
            entry["headers"] = [{"key": name, **text_field("value", value)} for name, value in record.headers]
        yield entry


def _control(record: Record) -> Entry:
    from strandline.protocol.codec import decode
    from strandline.protocol.messages import control_records

    schemas: dict[ControlType, type[Message]] = {
        ControlType.ABORT: control_records.EndTxnMarker,
        ControlType.COMMIT: control_records.EndTxnMarker,
        ControlType.LEADER_CHANGE: control_records.LeaderChangeMessage,
        ControlType.SNAPSHOT_HEADER: control_records.SnapshotHeaderRecord,
        ControlType.SNAPSHOT_FOOTER: control_records.SnapshotFooterRecord,
        ControlType.KRAFT_VERSION: control_records.KRaftVersionRecord,
        ControlType.KRAFT_VOTERS: control_records.VotersRecord,
    }
    try:
        kind = ControlType(control_record_type(record.key))
    except (ValueError, CorruptBatch) as error:
        return {"control": str(error), **text_field("value", record.value)}
    value = record.value or b""
    schema = schemas[kind]
    # Transaction markers start with a version; the other control records have it as their first field.
    version = int.from_bytes(value[:2], "big")
    position = 2 if kind in (ControlType.ABORT, ControlType.COMMIT) else 0
    try:
        version = min(version, schema.versions[1])
        message, _ = decode(schema, version if position == 0 else 0, value, position)
    except MalformedMessage as error:
        return {"control": kind.name, "damage": str(error)}
    return {"control": kind.name, "fields": plain(message)}


def _metadata(record: Record) -> Entry:
    from strandline.protocol.metadata_codec import decode_record_and_version

    try:
        message, version = decode_record_and_version(record.value or b"")
    except MalformedMessage as error:
        return {"damage": str(error), **text_field("value", record.value)}
    return {"record": type(message).__name__, "version": version, "fields": plain(message)}


def plain(value: Any) -> Any:
    """A message as dictionaries, lists, strings and numbers."""
    if isinstance(value, Struct):
        names = [name for name in value.__struct_fields__ if name != "unknown_tags"]
        return {name: plain(getattr(value, name)) for name in names}
    if isinstance(value, Uuid):
        return str(value)
    if isinstance(value, (bytes, bytearray, memoryview)):
        return base64.b64encode(value).decode()
    if isinstance(value, list):
        return [plain(each) for each in value]
    return value


def _entries(path: str, form: struct.Struct) -> Iterator[tuple[int, ...]]:
    """The fields of each entry, without the zeros at the end of a preallocated file."""
    with open(path, "rb") as file:
        while len(data := file.read(form.size)) == form.size:
            if not any(data) and file.tell() > form.size:
                return
            yield form.unpack(data)


def _offset_index(path: str) -> Iterator[Entry]:
    base_offset = _base_offset(path)
    for relative, position in _entries(path, offset_index.ENTRY):
        yield {"type": "index", "offset": base_offset + relative, "position": position}


def _time_index(path: str) -> Iterator[Entry]:
    base_offset = _base_offset(path)
    for timestamp, relative in _entries(path, time_index.ENTRY):
        yield {"type": "timeindex", "timestamp": timestamp, "offset": base_offset + relative}


def _txn_index(path: str) -> Iterator[Entry]:
    for version, *fields in _entries(path, transaction_index.ENTRY):
        yield {"type": "txnindex", "version": version, **transaction_index.AbortedTransaction(*fields)._asdict()}


def _producer_snapshot(path: str) -> Iterator[Entry]:
    from strandline.log.producer_snapshots import CorruptSnapshot, decode

    with open(path, "rb") as file:
        data = file.read()
    try:
        states = decode(data, _base_offset(path), 0)
    except CorruptSnapshot as error:
        yield {"type": "damage", "position": 0, "why": str(error)}
        return
    for state in states.all():
        yield {
            "type": "producer",
            "producer_id": state.producer_id,
            "producer_epoch": state.producer_epoch,
            "coordinator_epoch": state.coordinator_epoch,
            "last_timestamp": state.last_timestamp,
            "transaction_first_offset": state.transaction_first_offset,
            "batches": [
                {
                    "first_sequence": sent.first_sequence,
                    "last_sequence": sent.last_sequence,
                    "last_offset": sent.last_offset,
                }
                for sent in state.batches
            ],
        }


def _lines(path: str) -> Iterator[Entry]:
    with open(path, encoding="utf-8", errors="replace") as file:
        for line in file:
            yield {"type": "line", "text": line.rstrip("\n")}
