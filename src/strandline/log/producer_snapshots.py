"""`<offset>.snapshot`: the producers of a log as of an offset, so that opening a log need not replay all of it.

`ProducerSnapshots` is owned by one PartitionLog: it captures the producers when a segment is sealed, every 16 MiB
within a segment, and when the log is closed; a flush writes what was captured. Snapshots are read when a log is opened
or truncated (see `producer_replay`).

Kafka writes one entry per producer, its last batch. We write one entry per remembered batch, oldest first: a reader
that keeps the last entry of a producer gets what Kafka wrote, and we get all five batches back. Only the last entry of
a producer carries its open transaction.
"""

from __future__ import annotations

import os
import struct

import msgspec

from strandline.log import names
from strandline.log.local_log import LocalLog
from strandline.log.producers import NO_OFFSET, NO_SEQUENCE, WINDOW, ProducerState, ProducerStates, SentBatch
from strandline.records.checksum import crc32c

# How far a segment may grow before its producers are captured again: it bounds what is replayed after a crash.
_CAPTURE_BYTES = 16 << 20

_HEAD = struct.Struct(">hIi")
_CRC_END = 6
# Producer id, epoch, last sequence, last offset, offset delta, timestamp, coordinator epoch, open transaction.
_ENTRY = struct.Struct(">qhiqiqiq")
_VERSION = 1


class CorruptSnapshot(Exception):
    """A file is not a producer snapshot, or a damaged one: the log replays from an older one instead."""


class Captured(msgspec.Struct, frozen=True):
    """One producer as of the capture. Cheap to take: it shares `batches` with the live state."""

    producer_id: int
    producer_epoch: int
    batches: tuple[SentBatch, ...]
    last_timestamp: int
    coordinator_epoch: int
    transaction_first_offset: int


class ProducerSnapshots:
    """Threads: the event loop captures; a thread that holds the flush lock writes what was captured."""

    __slots__ = ("_captured", "_captured_at_bytes", "_local", "_producers", "newest_offset")

    def __init__(self, local: LocalLog, producers: ProducerStates, newest_offset: int) -> None:
        self._local = local
        self._producers = producers
        self._captured: dict[int, list[Captured]] = {}
        """The captured snapshots by offset, until a flush has written them."""
        self._captured_at_bytes = 0
        """Size of the active segment at the last capture."""
        self.newest_offset = newest_offset
        """The offset of the newest snapshot on disk; -1 when none is known."""

    def capture(self, offset: int) -> None:
        self._captured[offset] = capture(self._producers)

    def on_roll(self, base_offset: int, *, is_sealed: bool) -> None:
        if is_sealed:
            self.capture(base_offset)
        self._captured_at_bytes = 0

    def capture_within_segment(self) -> None:
        """Captures the state if the active segment has grown enough; only its newest capture is kept."""
        local = self._local
        if local.active.size - self._captured_at_bytes < _CAPTURE_BYTES:
            return
        self._captured_at_bytes = local.active.size
        base_offsets = [segment.base_offset for segment in local.segments]
        captured = {offset: kept for offset, kept in self._captured.items() if offset in base_offsets}
        self._captured = {**captured, local.end_offset: capture(self._producers)}

    def discard(self, offset: int) -> None:
        """No segment starts at this offset any more: the snapshot is renamed to `.deleted`."""
        self._captured.pop(offset, None)
        path = snapshot_path(self._local, offset)
        if self._local.disk.exists(path):
            self._local.disk.rename(path, path + names.DELETED)

    def write_captured(self, generation: int) -> None:
        """Blocking, with the flush lock held. Writes without a sync: a damaged snapshot is skipped on opening.

        No snapshot above the end of a truncated log may appear. A truncation that begins after the check below removes
        its files only after it got the flush lock; one that is past that point still has `truncating_to` set, or has
        incremented `generation`."""
        local = self._local
        for offset in sorted(self._captured):
            truncating_to = local.truncating_to
            if generation != local.generation or (truncating_to is not None and offset > truncating_to):
                return
            captured = self._captured.get(offset)
            if captured is None:
                continue
            path = snapshot_path(local, offset)
            file = local.disk.open(path + ".tmp", create=True)
            try:
                file.truncate(0)
                file.write_at(0, encode(captured))
            finally:
                file.close()
            local.disk.rename(path + ".tmp", path)
            self._captured.pop(offset, None)
            # A log that only changed its epochs is closed at the offset where it was closed before.
            if self.newest_offset != offset:
                self._remove_unless_at_segment_start(self.newest_offset)
            self.newest_offset = offset

    def _remove_unless_at_segment_start(self, offset: int) -> None:
        """Snapshots are kept with the segment that starts where they were taken; of the others only the newest."""
        if offset < 0 or any(segment.base_offset == offset for segment in self._local.segments):
            return
        path = snapshot_path(self._local, offset)
        if self._local.disk.exists(path):
            self._local.disk.remove(path)

    def on_disk(self) -> list[int]:
        """Blocking. The offsets of all snapshots in the partition directory, ascending."""
        files = (names.parse_segment_file(name) for name in self._local.disk.list(self._local.path))
        return sorted(file.base_offset for file in files if file and file.suffix == names.SNAPSHOT and not file.extra)

    def remove(self, offset: int) -> None:
        """Blocking. Removes the snapshot at this offset."""
        self._local.disk.remove(snapshot_path(self._local, offset))

    def on_truncated(self, end_offset: int, *, is_full: bool) -> None:
        """`is_full`: nothing of the log is left, and it starts empty at `end_offset`."""
        kept = {} if is_full else self._captured
        self._captured = {offset: captured for offset, captured in kept.items() if offset <= end_offset}
        self._captured_at_bytes = self._local.active.size
        self.newest_offset = -1


def snapshot_path(local: LocalLog, offset: int) -> str:
    return os.path.join(local.path, names.offset_name(offset) + names.SNAPSHOT)


def capture(states: ProducerStates) -> list[Captured]:
    return [
        Captured(
            state.producer_id,
            state.producer_epoch,
            state.batches,
            state.last_timestamp,
            state.coordinator_epoch,
            state.transaction_first_offset,
        )
        for state in states.all()
    ]


def encode(captured: list[Captured]) -> bytes:
    entries = []
    for producer in captured:
        batches = producer.batches or (SentBatch(NO_SEQUENCE, NO_OFFSET, 0, producer.last_timestamp),)
        for number, sent in enumerate(batches, 1):
            last = number == len(batches)
            entries.append(
                _ENTRY.pack(
                    producer.producer_id,
                    producer.producer_epoch,
                    sent.last_sequence,
                    sent.last_offset,
                    sent.offset_delta,
                    sent.timestamp,
                    producer.coordinator_epoch,
                    producer.transaction_first_offset if last else NO_OFFSET,
                )
            )
    body = len(entries).to_bytes(4, "big") + b"".join(entries)
    return struct.pack(">hI", _VERSION, crc32c(body)) + body


def decode(data: bytes, map_end_offset: int, seen_ms: int) -> ProducerStates:
    """Producers count as seen at `seen_ms`: a snapshot holds only the timestamps of their records."""
    if len(data) < _HEAD.size:
        raise CorruptSnapshot("truncated")
    version, crc, count = _HEAD.unpack_from(data)
    if version != _VERSION:
        raise CorruptSnapshot(f"version {version} is not {_VERSION}")
    if crc != crc32c(data[_CRC_END:]):
        raise CorruptSnapshot("wrong checksum")
    if count < 0 or _HEAD.size + count * _ENTRY.size != len(data):
        raise CorruptSnapshot(f"{count} entries do not fill {len(data)} bytes")
    states = ProducerStates(map_end_offset)
    for fields in _ENTRY.iter_unpack(data[_HEAD.size :]):
        producer_id, epoch, last_sequence, last_offset, delta, timestamp, coordinator_epoch, first_offset = fields
        state = states.get(producer_id)
        if state is None or state.producer_epoch != epoch:
            state = ProducerState(producer_id, epoch)
        if last_offset >= 0:
            sent = SentBatch(last_sequence, last_offset, delta, timestamp)
            state.batches = (*state.batches[1 - WINDOW :], sent)
        state.last_timestamp = timestamp
        state.last_seen_ms = seen_ms
        state.coordinator_epoch = coordinator_epoch
        state.transaction_first_offset = first_offset
        states.install(state)
    return states
