"""Loading: the records of a partition, from its log start to its log end, replayed into a machine.

In slices, so that the event loop serves other requests meanwhile. A record that cannot be decoded is logged and
skipped, as Kafka does; a record type that is not known is skipped silently.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final

from strandline.coordinator.log_port import CoordinatorLog
from strandline.coordinator.machine import Machine, Producer
from strandline.coordinator.records import RecordTypes, decode_record
from strandline.protocol.errors import MalformedMessage
from strandline.records.batch import BatchHeader, ControlType, batches, control_record_type, decode_batch
from strandline.runtime.tasks import yield_to_loop

logger = logging.getLogger(__name__)

# About two milliseconds of replay.
_RECORDS_PER_YIELD: Final = 500


async def replay_log(log: CoordinatorLog, machine: Machine, types: RecordTypes, is_wanted: Callable[[], bool]) -> int:
    """Returns the number of records; stops when `is_wanted` is false. Raises KafkaError if the log is unreadable."""
    count = unyielded = 0
    async for buffer in log.read_all():
        for position, header in batches(buffer):
            replayed = _replay_batch(machine, types, buffer, position, header)
            # What is committed already can be forgotten as history at once.
            if header.next_offset <= log.high_watermark.value:
                machine.timeline.commit(header.next_offset)
            count += replayed
            unyielded += replayed
            if unyielded >= _RECORDS_PER_YIELD:
                unyielded = 0
                await yield_to_loop()
            if not is_wanted():
                return count
    return count


def _replay_batch(machine: Machine, types: RecordTypes, buffer: memoryview, position: int, header: BatchHeader) -> int:
    machine.timeline.mark(header.base_offset)
    records = decode_batch(buffer, position)
    producer = Producer(header.producer_id, header.producer_epoch) if header.is_transactional else None
    for record in records:
        if header.is_control:
            kind = control_record_type(record.key)
            if producer is not None and kind in (ControlType.COMMIT, ControlType.ABORT):
                machine.replay_marker(producer, commit=kind == ControlType.COMMIT)
            continue
        try:
            decoded = decode_record(types, record.key, record.value)
        except MalformedMessage as error:
            logger.error("the coordinator record at offset %d is skipped: %s", record.offset, error)
            continue
        if decoded is not None:
            machine.replay(decoded, producer)
    return len(records)
