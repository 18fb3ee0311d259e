"""`<offset>.snapshot`: the producers of a log as they were at an offset, so that not the whole log must be replayed.

Written when a segment is sealed and when a log is closed; read when a log is opened or truncated. Kafka keeps one entry
per producer, its last batch. We write one entry per remembered batch, oldest first: whoever reads them one after
the other ends with the last, as before, and we get the whole window of five back. Only the last entry of a producer
carries its open transaction.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

from strandline.log.producers import NO_OFFSET, NO_SEQUENCE, WINDOW, ProducerState, ProducerStates, SentBatch
from strandline.records.checksum import crc32c

_HEAD = struct.Struct(">hIi")
_CRC_END = 6
# Producer id, epoch, last sequence, last offset, offset delta, timestamp, coordinator epoch, open transaction.
_ENTRY = struct.Struct(">qhiqiqiq")
_VERSION = 1


class CorruptSnapshot(Exception):
    """Not a snapshot, or a damaged one: an older one and more replay will do."""


class Captured(NamedTuple):
    """One producer at the moment of capture; cheap to take, shared with the live state, encoded elsewhere."""

    producer_id: int
    producer_epoch: int
    batches: tuple[SentBatch, ...]
    last_timestamp: int
    coordinator_epoch: int
    transaction_first_offset: int


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
    """Producers count as seen now: a snapshot knows only the timestamps that their records claimed."""
    if len(data) < _HEAD.size:
        raise CorruptSnapshot("cut off")
    version, crc, count = _HEAD.unpack_from(data)
    if version != _VERSION:
        raise CorruptSnapshot(f"version {version} is not {_VERSION}")
    if crc != crc32c(data[_CRC_END:]):
        raise CorruptSnapshot("checksum does not fit")
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
