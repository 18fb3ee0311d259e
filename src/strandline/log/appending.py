"""Appending to a log: on the event loop, into the page cache, one write for what comes at once.

Called by PartitionLog. The order keeps the log true whatever fails: checks, then a new segment if one is due, then the
write, which leaves the file as it was when it fails; only then the state in memory, none of which can fail.
"""

from __future__ import annotations

import struct
import zlib
from typing import TYPE_CHECKING

import msgspec

from strandline.log.health import Condition
from strandline.log.producer_snapshots import capture
from strandline.log.producers import ProducerStates
from strandline.log.segment import MAX_SPAN, NO_TIMESTAMP, Segment
from strandline.log.transaction_index import AbortedTransaction
from strandline.log.validation import Origin, Validated, assign, check_replicated, validate
from strandline.model.errors import ErrorCode, KafkaError
from strandline.records.batch import CONTROL, BatchHeader, ControlType, CorruptBatch, control_record_type, decode_batch

if TYPE_CHECKING:
    from strandline.log.partition_log import PartitionLog

# How much of a segment may pass before its producers are written down again: it bounds what is replayed after a crash.
_CAPTURE_BYTES = 16 << 20
_COORDINATOR_EPOCH = struct.Struct(">hi")
# Looked up once: a member of an enum costs as much as a call, and these are compared for every append.
_ONLINE = Condition.ONLINE
_OFFLINE = Condition.OFFLINE
_CLIENT = Origin.CLIENT


class Appended(msgspec.Struct, frozen=True):
    """What was appended; for a duplicate, what the original append was."""

    base_offset: int
    last_offset: int
    # -1 unless the topic stamps it.
    log_append_time: int
    duplicate: bool
    size_bytes: int


def append_as_leader(
    log: PartitionLog, records: memoryview, *, leader_epoch: int, wall_ms: int, api_version: int, origin: Origin
) -> Appended:
    validated = validate(records, log.settings, wall_ms=wall_ms, api_version=api_version, origin=origin)
    return append_validated(log, validated, leader_epoch=leader_epoch, wall_ms=wall_ms, origin=origin)


def append_validated(
    log: PartitionLog, validated: Validated, *, leader_epoch: int, wall_ms: int, origin: Origin = Origin.CLIENT
) -> Appended:
    if log.health.condition is _OFFLINE:
        log.health.check_readable()
    data, header = validated.buffer, validated.header
    has_producer = header.producer_id >= 0
    if has_producer:
        original = _check_producer(log, data, header, origin)
        if original is not None:
            return original
    latest_epoch = log.epochs.latest
    if leader_epoch < latest_epoch:
        raise KafkaError(ErrorCode.FENCED_LEADER_EPOCH, f"{log.topic_partition} is at leader epoch {latest_epoch}")
    base_offset = log.log_end_offset
    last_offset = base_offset + header.last_offset_delta
    size = len(data)
    timestamp = header.max_timestamp
    assign(validated, base_offset, leader_epoch)
    segment = _segment_for(log, base_offset, last_offset, timestamp, size, wall_ms)
    position = _write(log, segment, data)
    indexed = segment.note(base_offset, last_offset, timestamp, position, size, log.settings.index_interval_bytes)
    if leader_epoch > latest_epoch:
        log.epochs.assign(leader_epoch, base_offset)
    log.log_end_offset = last_offset + 1
    if has_producer:
        _replay_producer(log, segment, data, header, base_offset, wall_ms)
    if indexed:
        _spill_if_due(log, segment)
    return Appended(base_offset, last_offset, validated.log_append_time, False, size)


def append_as_follower(log: PartitionLog, data: memoryview, wall_ms: int) -> Appended:
    log.health.check_readable()
    batches = check_replicated(data)
    if not batches:
        return Appended(log.log_end_offset, log.log_end_offset - 1, -1, False, 0)
    _check_order(log, batches)
    at = 0
    while at < len(batches):
        at = _append_group(log, data, batches, at, wall_ms)
    last = batches[-1][1]
    size = batches[-1][0] + last.size_bytes
    return Appended(batches[0][1].base_offset, last.last_offset, -1, False, size)


def _check_order(log: PartitionLog, batches: list[tuple[int, BatchHeader]]) -> None:
    due = log.log_end_offset
    leader_epoch = log.epochs.latest
    for _, header in batches:
        if 0 <= header.partition_leader_epoch < leader_epoch:
            raise KafkaError(
                ErrorCode.INVALID_RECORD,
                f"{log.topic_partition}: leader epoch {header.partition_leader_epoch} cannot follow {leader_epoch}",
            )
        leader_epoch = max(leader_epoch, header.partition_leader_epoch)
        if header.base_offset < due:
            raise KafkaError(
                ErrorCode.INVALID_RECORD,
                f"{log.topic_partition}: a batch at offset {header.base_offset} cannot follow offset {due - 1}",
            )
        due = header.next_offset


def _append_group(
    log: PartitionLog, data: memoryview, batches: list[tuple[int, BatchHeader]], first: int, wall_ms: int
) -> int:
    """As many batches as belong into one segment, with one write; the index of the first that does not."""
    start, header = batches[first]
    timestamp = max(header.max_timestamp for _, header in batches[first:])
    segment = _segment_for(log, header.base_offset, header.last_offset, timestamp, header.size_bytes, wall_ms)
    room = log.settings.segment_bytes - segment.size
    end = start + header.size_bytes
    behind = first + 1
    while behind < len(batches):
        header = batches[behind][1]
        if end - start + header.size_bytes > room or header.last_offset - segment.base_offset > MAX_SPAN:
            break
        end += header.size_bytes
        behind += 1
    position = _write(log, segment, data[start:end])
    for at, header in batches[first:behind]:
        base_offset, size = header.base_offset, header.size_bytes
        where = position + at - start
        segment.note(
            base_offset, header.last_offset, header.max_timestamp, where, size, log.settings.index_interval_bytes
        )
        if header.partition_leader_epoch > log.epochs.latest:
            log.epochs.assign(header.partition_leader_epoch, base_offset)
        log.log_end_offset = header.next_offset
        if header.producer_id >= 0:
            _replay_producer(log, segment, data[at : at + size], header, base_offset, wall_ms)
    _spill_if_due(log, segment)
    return behind


def _write(log: PartitionLog, segment: Segment, data: memoryview) -> int:
    try:
        position = segment.write(data)
    except OSError as error:
        raise log.health.explain(error, f"appending to {segment!r}") from error
    log.size_bytes += len(data)
    log.touched = True
    if log.health.condition is not _ONLINE:
        log.health.wrote()
    return position


def _spill_if_due(log: PartitionLog, segment: Segment) -> None:
    if not segment.is_spill_due():
        return
    if segment.size - log.captured_at_bytes >= _CAPTURE_BYTES:
        log.captured_at_bytes = segment.size
        # Within a segment only the newest one counts.
        bases = [segment.base_offset for segment in log.segments]
        captured = {offset: kept for offset, kept in log.captured_producers.items() if offset in bases}
        log.captured_producers = {**captured, log.log_end_offset: capture(log.producers)}
    try:
        segment.spill()
    except OSError as error:
        # The entries stay in memory and the append stands: an index can always be rebuilt.
        log.health.explain(error, f"writing the indexes of {segment!r}")


def _segment_for(
    log: PartitionLog, base_offset: int, last_offset: int, timestamp: int, size: int, wall_ms: int
) -> Segment:
    """The active segment, or a new one when this append must not go into it."""
    active = log.active
    settings = log.settings
    if active.size + size > settings.segment_bytes or last_offset - active.base_offset > MAX_SPAN:
        due = active.size > 0 or last_offset - active.base_offset > MAX_SPAN
    elif active.size == 0:
        due = False
    else:
        since = active.first_timestamp
        if since == NO_TIMESTAMP:
            since, timestamp = active.created_ms, wall_ms
        waited = timestamp - since
        due = (waited > settings.roll_ms - settings.segment_jitter_ms and waited > _patience(log)) or (
            active.is_index_full(settings.segment_index_bytes)
        )
    if not due:
        return active
    # Segments join without a gap, even where offsets are missing (a follower of a compacted log): so a gap between two
    # segments can be told to be a loss.
    joins = last_offset - log.log_end_offset <= MAX_SPAN
    return _roll(log, log.log_end_offset if joins else base_offset, wall_ms)


def _patience(log: PartitionLog) -> int:
    """The time less this segment's share of segment.jitter.ms; drawn from its name, so that runs repeat."""
    settings = log.settings
    jitter = min(settings.segment_jitter_ms, settings.roll_ms)
    if jitter <= 0:
        return settings.roll_ms
    return settings.roll_ms - zlib.crc32(f"{log.topic_partition}/{log.active.base_offset}".encode()) % jitter


def roll_now(log: PartitionLog, wall_ms: int) -> None:
    if log.active.size:
        _roll(log, log.log_end_offset, wall_ms)


def _roll(log: PartitionLog, base_offset: int, wall_ms: int) -> Segment:
    old = log.active
    try:
        old.seal()
        segment = Segment.create(log.disk, log.path, base_offset, wall_ms)
        if log.settings.preallocate:
            segment.reserve(log.settings.segment_bytes)
    except OSError as error:
        raise log.health.explain(error, f"beginning a segment at offset {base_offset} of {log.path}") from error
    sealed = log.segments
    if old.size == 0:
        # Nothing was ever in it and its name would claim offsets that the log does not have.
        sealed = sealed[:-1]
        old.remove()
    else:
        log.captured_producers[base_offset] = capture(log.producers)
    # A new list: threads walk the old one.
    log.segments = [*sealed, segment]
    log.active = segment
    log.captured_at_bytes = 0
    log.entries_changed += 1
    return segment


def _check_producer(log: PartitionLog, data: memoryview, header: BatchHeader, origin: Origin) -> Appended | None:
    """The answer to a duplicate, None for what may be appended; raises KafkaError for what may not."""
    if origin is not _CLIENT:
        if header.attributes & CONTROL:
            marker = read_marker(data)
            if marker is not None:
                log.producers.check_marker(header, marker[1])
        else:
            log.producers.check_transaction(header)
        return None
    sent = log.producers.check(header)
    if sent is None:
        return None
    log_append_time = sent.timestamp if log.settings.stamps_append_time else -1
    return Appended(sent.first_offset, sent.last_offset, log_append_time, True, 0)


def _replay_producer(
    log: PartitionLog, segment: Segment, data: memoryview, header: BatchHeader, base_offset: int, wall_ms: int
) -> None:
    if not header.attributes & CONTROL:
        timestamp = header.max_timestamp
        log.producers.replay(header, base_offset, wall_ms if wall_ms > timestamp else timestamp)
        return
    aborted = replay_batch(log.producers, data, header, base_offset, wall_ms)
    if aborted is None:
        return
    try:
        segment.add_aborted(aborted)
    except OSError as error:
        # As with every index: what could not be written is found again in the log.
        log.health.explain(error, f"writing the transaction index of {segment!r}")


def replay_batch(
    producers: ProducerStates, batch: memoryview | None, header: BatchHeader, base_offset: int, seen_ms: int
) -> AbortedTransaction | None:
    """Take a batch of the log with a producer id into the producers' state; the transaction it aborts, if it does."""
    if not header.attributes & CONTROL:
        producers.replay(header, base_offset, max(seen_ms, header.max_timestamp))
        return None
    marker = None if batch is None else read_marker(batch)
    if marker is None:
        return None
    aborted, coordinator_epoch = marker
    completed = producers.replay_marker(
        header, base_offset, aborted=aborted, coordinator_epoch=coordinator_epoch, seen_ms=seen_ms
    )
    return producers.aborted_entry(completed) if completed is not None and aborted else None


def read_marker(batch: memoryview) -> tuple[bool, int] | None:
    """(aborted, coordinator epoch) of a transaction marker; None for other control batches."""
    try:
        record = decode_batch(batch)[0]
        kind = control_record_type(record.key)
        if kind not in (ControlType.ABORT, ControlType.COMMIT) or record.value is None:
            return None
        _, coordinator_epoch = _COORDINATOR_EPOCH.unpack_from(record.value)
    except (CorruptBatch, IndexError, struct.error):
        return None
    return kind == ControlType.ABORT, coordinator_epoch
