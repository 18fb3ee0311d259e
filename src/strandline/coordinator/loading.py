"""Loading: the records of a partition, from its log start to its log end, replayed into a machine.

In slices, so that the event loop serves other requests meanwhile. A record that cannot be decoded is logged and
skipped, as Kafka does; a record type that is not known is skipped silently.

Most of `__consumer_offsets` are offsets that were committed again and again. Of those outside of transactions only the
newest per partition is decoded and replayed: they are gathered by key and replayed together, before the next batch of a
transaction (of two commits the later one counts), when there are many of them, and at the end.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final

from strandline.coordinator.log_port import CoordinatorLog
from strandline.coordinator.machine import Machine, Producer
from strandline.coordinator.records import RecordTypes, decode_record, offset_key_prefixes
from strandline.protocol.errors import MalformedMessage
from strandline.records.batch import BatchHeader, ControlType, Record, batches, control_record_type, decode_batch
from strandline.runtime.tasks import yield_to_loop

logger = logging.getLogger(__name__)

# About two milliseconds each.
_REPLAYED_PER_YIELD: Final = 200
_GATHERED_PER_YIELD: Final = 1_000
_MOST_GATHERED: Final = 50_000


async def replay_log(log: CoordinatorLog, machine: Machine, types: RecordTypes, is_wanted: Callable[[], bool]) -> int:
    """Returns the number of records; stops when `is_wanted` is false. Raises KafkaError if the log is unreadable."""
    replay = _Replay(log, machine, types)
    count = unyielded = 0
    async for buffer in log.read_all():
        for position, header in batches(buffer):
            if header.is_transactional or header.is_control or len(replay.newest) >= _MOST_GATHERED:
                await replay.replay_newest()
            replayed = replay.replay_batch(buffer, position, header)
            count += replayed
            unyielded += replayed
            if unyielded >= _GATHERED_PER_YIELD:
                unyielded = 0
                await yield_to_loop()
            if not is_wanted():
                return count
    await replay.replay_newest()
    return count


class _Replay:
    def __init__(self, log: CoordinatorLog, machine: Machine, types: RecordTypes) -> None:
        self._log = log
        self._machine = machine
        self._types = types
        self._gathered = offset_key_prefixes(types)
        self._next_offset = 0
        self.newest: dict[bytes, Record] = {}
        """By key: the newest of the records that were gathered, in the order of their offsets."""

    def replay_batch(self, buffer: memoryview, position: int, header: BatchHeader) -> int:
        self._machine.timeline.mark(header.base_offset)
        records = decode_batch(buffer, position)
        producer = Producer(header.producer_id, header.producer_epoch) if header.is_transactional else None
        if header.is_control:
            for record in records:
                kind = control_record_type(record.key)
                if producer is not None and kind in (ControlType.COMMIT, ControlType.ABORT):
                    self._machine.replay_marker(producer, commit=kind == ControlType.COMMIT)
        elif producer is not None:
            for record in records:
                self._replay(record, producer)
        else:
            self._gather(records)
        self._next_offset = header.next_offset
        return len(records)

    def _gather(self, records: list[Record]) -> None:
        newest, gathered = self.newest, self._gathered
        for record in records:
            key = record.key
            if key is not None and key[:2] in gathered:
                newest.pop(key, None)
                newest[key] = record
            else:
                self._replay(record, None)

    async def replay_newest(self) -> None:
        newest, self.newest = self.newest, {}
        timeline = self._machine.timeline
        if self._next_offset:
            timeline.mark(self._next_offset - 1)
        for number, record in enumerate(newest.values(), 1):
            self._replay(record, None)
            if number % _REPLAYED_PER_YIELD == 0:
                await yield_to_loop()
        # What is committed already can be forgotten as history at once.
        if timeline.committed < self._next_offset <= self._log.high_watermark.value:
            timeline.commit(self._next_offset)

    def _replay(self, record: Record, producer: Producer | None) -> None:
        try:
            decoded = decode_record(self._types, record.key, record.value)
        except MalformedMessage as error:
            logger.error("the coordinator record at offset %d is skipped: %s", record.offset, error)
            return
        if decoded is not None:
            self._machine.replay(decoded, producer)
