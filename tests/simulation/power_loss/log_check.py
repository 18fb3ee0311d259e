"""Opens a log as a power loss left it and compares it with the promises.

The log opens; from its log start on it is a prefix of a possible lineage; no flushed record is missing; every batch
read is one that was written; leader epochs and producer state match the batches; the log accepts appends, and what is
flushed then survives a second power loss.
"""

from __future__ import annotations

from bisect import bisect_right
from random import Random

from simulation.power_loss.log_workload import Batch, LogWorkload, Promise, open_log
from strandline.log.cold_reads import ColdRead
from strandline.log.partition_log import PartitionLog
from strandline.log.validation import validate
from strandline.model.errors import KafkaError
from strandline.records.batch import Record, batches, crc_ok, decode_batch, encode_batch, read_header
from strandline.simulation.disk import SimDisk
from strandline.simulation.journal import Journal
from strandline.simulation.volume import UnsyncedChanges, Volume

_WALL_MS = 1_900_000_000_000


class BrokenPromise(AssertionError):
    """What was found after a power loss contradicts what was promised before it."""


class LogRecording:
    def __init__(self, seed: int, mode: str, steps: int) -> None:
        self.name = f"log seed {seed} {mode}"
        self._workload = LogWorkload(seed, flush_every_append=mode == "flush")
        self._workload.run(steps)

    @property
    def journal(self) -> Journal:
        return self._workload.journal

    def check(self, found: Volume, operation: int, random: Random) -> None:
        check_log(found, self._workload.promises, operation, random)


def check_log(volume: Volume, promises: list[Promise], operation: int, random: Random) -> None:
    """`volume` as left by a power loss before disk operation `operation`."""
    at = bisect_right(promises, operation, key=lambda promise: promise.operation) - 1
    before = promises[max(at, 0)]
    after = promises[min(at + 1, len(promises) - 1)]
    disk = SimDisk(volume)
    if at < 0:
        return
    log = open_log(disk, _WALL_MS)
    found = read_everything(log)
    _check_content(log, found, before, after)
    _check_epochs(log, found, after.highest_log_start)
    _check_lookups(log, found, random)
    _check_producers(log, found, before)
    _check_appends(disk, log, found, random)


def read_everything(log: PartitionLog) -> list[Batch]:
    found: list[Batch] = []
    offset = log.log_start_offset
    while offset < log.log_end_offset:
        data = read_at(log, offset, 5000)
        for position, header in batches(data):
            batch = data[position : position + header.size_bytes]
            if not crc_ok(data, position, header.size_bytes):
                raise BrokenPromise(f"reading returns a damaged batch at {header.base_offset}")
            found.append(Batch(header.base_offset, header.next_offset, batch))
        if found[-1].next_offset <= offset:
            raise BrokenPromise(f"reading at {offset} returns a batch that ends at {found[-1].next_offset}")
        offset = found[-1].next_offset
    return found


def read_at(log: PartitionLog, offset: int, max_bytes: int) -> bytes:
    for _ in range(3):
        try:
            read = log.read(offset, max_bytes=max_bytes)
        except KafkaError as error:
            raise BrokenPromise(f"reading at {offset} of {log!r}: {error}") from error
        if not isinstance(read, ColdRead):
            if read.slice is None:
                raise BrokenPromise(f"nothing at {offset} of {log!r}")
            return read.slice.read()
        read.load()
    raise BrokenPromise(f"{offset} of {log!r} stays cold")


def _check_content(log: PartitionLog, found: list[Batch], before: Promise, after: Promise) -> None:
    durable = min(before.durable_end, after.durable_end)
    if log.log_end_offset < durable:
        raise BrokenPromise(f"{log!r} has lost what was flushed up to {durable}")
    if log.log_start_offset > max(before.log_start, after.log_start):
        raise BrokenPromise(f"{log!r} starts after {before.log_start} and {after.log_start}")
    lineages = (*before.lineages, *after.lineages)
    for lineage in lineages:
        expected = [batch for batch in lineage if batch.next_offset > log.log_start_offset]
        if found == expected[: len(found)] and (found or log.log_end_offset <= _end(lineage, before, after)):
            return
    raise BrokenPromise(f"{log!r} is not a prefix of any of the {len(lineages)} possible lineages: {_offsets(found)}")


def _end(lineage: tuple[Batch, ...], before: Promise, after: Promise) -> int:
    """An empty log may end where a lineage ended, or where a deletion or full truncation let it start."""
    end = lineage[-1].next_offset if lineage else 0
    return max(end, before.log_start, after.log_start)


def _offsets(found: list[Batch]) -> str:
    return ", ".join(f"{batch.base_offset}..{batch.next_offset}" for batch in found[-8:])


def _check_epochs(log: PartitionLog, found: list[Batch], log_start: int) -> None:
    """From the highest log start on: if a deletion was lost, the epochs of the restored records may be lost too."""
    entries = log.epochs.entries
    for batch in found:
        if batch.next_offset <= log_start:
            continue
        header = read_header(batch.data)
        at = bisect_right(entries, batch.next_offset - 1, key=lambda entry: entry[1]) - 1
        known = entries[at][0] if at >= 0 else -1
        if known != header.partition_leader_epoch:
            raise BrokenPromise(
                f"offset {header.base_offset} is of leader epoch {header.partition_leader_epoch}, "
                f"not {known}: {entries}, the log is {log!r}"
            )
    if entries and entries[-1][1] > log.log_end_offset:
        raise BrokenPromise(f"leader epochs {entries} go beyond {log!r}")


def _check_lookups(log: PartitionLog, found: list[Batch], random: Random) -> None:
    for batch in random.sample(found, min(3, len(found))):
        offset = random.randrange(max(batch.base_offset, log.log_start_offset), batch.next_offset)
        first = read_header(read_at(log, offset, 1))
        if first.base_offset != batch.base_offset:
            raise BrokenPromise(f"reading at {offset} starts with {first.base_offset}, not {batch.base_offset}")
        timestamp = read_header(batch.data).max_timestamp
        hit = log.offset_for_timestamp(timestamp)
        expected = _first_at(found, timestamp, log.log_start_offset)
        if (None if hit is None else hit.offset) != expected:
            raise BrokenPromise(f"timestamp {timestamp} is first at {expected}, found {hit}; the log is {log!r}")


def _first_at(found: list[Batch], timestamp: int, log_start: int) -> int | None:
    for batch in found:
        for record in decode_batch(batch.data):
            if record.offset >= log_start and record.timestamp >= timestamp:
                return record.offset
    return None


def _check_producers(log: PartitionLog, found: list[Batch], before: Promise) -> None:
    """The last batch of each producer, appended again, is rejected as a duplicate."""
    last: dict[int, Batch] = {}
    for batch in found:
        header = read_header(batch.data)
        if header.producer_id >= 0:
            last[header.producer_id] = batch
    end = log.log_end_offset
    for producer, batch in last.items():
        again = bytearray(batch.data)
        again[0:8] = bytes(8)
        validated = validate(memoryview(again), log.settings, wall_ms=_WALL_MS)
        result = log.append_as_leader(validated, leader_epoch=1_000, wall_ms=_WALL_MS)
        if not result.duplicate or result.base_offset != batch.base_offset:
            raise BrokenPromise(f"producer {producer}'s batch at {batch.base_offset} was appended again: {result}")
    if log.log_end_offset != end:
        raise BrokenPromise("duplicates were appended")


def _check_appends(disk: SimDisk, log: PartitionLog, found: list[Batch], random: Random) -> None:
    for number in range(random.randint(1, 6)):
        batch = encode_batch([Record(-1, _WALL_MS, None, bytes([number]) * 400, ())])
        validated = validate(memoryview(batch), log.settings, wall_ms=_WALL_MS)
        appended = log.append_as_leader(validated, leader_epoch=1_000, wall_ms=_WALL_MS)
        found = [*found, Batch(appended.base_offset, appended.last_offset + 1, bytes(batch))]
    log.flush()
    second = open_log(SimDisk(disk.volume.after_power_loss(random, UnsyncedChanges.LOST)), _WALL_MS)
    again = read_everything(second)
    expected = [batch for batch in found if batch.next_offset > second.log_start_offset]
    if second.log_start_offset > log.log_start_offset or again[-len(expected) :] != expected[-len(again) :]:
        raise BrokenPromise(
            f"after a second power loss {second!r} has {_offsets(again)}; flushed was {_offsets(expected)}"
        )
