"""Appending to a log: on the event loop, into the page cache, with one write for what arrives together.

`AppendableLog` is the appending half of PartitionLog, its only subclass. It is inherited and not a part that
PartitionLog owns, because then every append would take one more call, and every log one more object. There are two
appends: the leader's, of a batch that `validation` has accepted, and the follower's, of batches that already have their
offsets and leader epochs (raft appends its own batches that way too).

The order keeps the log consistent whatever fails: checks, then a new segment if one is due, then the write, which
leaves the file as it was when it fails; only then the state in memory, which cannot fail.
"""

from __future__ import annotations

import msgspec

from strandline.log.directory_health import Condition
from strandline.log.epochs import EpochCache
from strandline.log.local_log import LocalLog
from strandline.log.producer_snapshots import ProducerSnapshots
from strandline.log.producers import ProducerStates, read_marker
from strandline.log.segment import MAX_SPAN
from strandline.log.validation import Origin, Validated, assign_offset, check_replicated
from strandline.model.errors import ErrorCode, KafkaError
from strandline.records.batch import CONTROL, BatchHeader
from strandline.runtime.disk import Buffer

# Looked up once: a member of an enum costs as much as a call, and these are compared for every append.
_OFFLINE = Condition.OFFLINE
_CLIENT = Origin.CLIENT


class Appended(msgspec.Struct, frozen=True):
    """What was appended; for a duplicate, what the original append was."""

    base_offset: int
    last_offset: int
    log_append_time: int
    """-1 unless the topic has LogAppendTime."""
    duplicate: bool
    size_bytes: int


class AppendableLog:
    __slots__ = ("_epochs", "_local", "_producers", "_snapshots")

    def __init__(
        self, local: LocalLog, epochs: EpochCache, producers: ProducerStates, snapshots: ProducerSnapshots
    ) -> None:
        self._local = local
        self._epochs = epochs
        self._producers = producers
        self._snapshots = snapshots

    def append_as_leader(self, validated: Validated, *, leader_epoch: int, wall_ms: int) -> Appended:
        """Assigns offsets to a validated batch and writes it. Raises KafkaError; then nothing was written."""
        local = self._local
        if local.health.condition is _OFFLINE:
            local.health.check_readable()
        data, header = validated.buffer, validated.header
        has_producer = header.producer_id >= 0
        if has_producer:
            if validated.origin is not _CLIENT:
                self._check_coordinator_batch(data, header)
            elif (sent := self._producers.check(header)) is not None:
                log_append_time = sent.timestamp if local.settings.stamps_append_time else -1
                return Appended(sent.first_offset, sent.last_offset, log_append_time, True, 0)
        epochs = self._epochs
        latest_epoch = epochs.latest
        if leader_epoch < latest_epoch:
            raise KafkaError(
                ErrorCode.FENCED_LEADER_EPOCH, f"{local.topic_partition} is at leader epoch {latest_epoch}"
            )
        base_offset = local.end_offset
        last_offset = base_offset + header.last_offset_delta
        size = len(data)
        timestamp = header.max_timestamp
        assign_offset(validated, base_offset, leader_epoch)
        if local.must_roll(last_offset, timestamp, size, wall_ms):
            self._roll(base_offset, wall_ms)
        position = local.write(data)
        if leader_epoch > latest_epoch:
            epochs.assign(leader_epoch, base_offset)
        indexed = local.extend(base_offset, last_offset, timestamp, position, size)
        if has_producer:
            if header.attributes & CONTROL:
                self._replay_batch(data, header, base_offset, wall_ms)
            else:
                self._producers.replay(header, base_offset, wall_ms if wall_ms > timestamp else timestamp)
        if indexed:
            self._spill_indexes_if_due()
        return Appended(base_offset, last_offset, validated.log_append_time, False, size)

    def append_as_follower(self, batches: Buffer, *, wall_ms: int = 0) -> Appended:
        """Appends whole batches that have their offsets and leader epochs: from a leader, or raft's own. Checksums are
        verified; an incomplete batch at the end is left out."""
        local = self._local
        local.health.check_readable()
        data = memoryview(batches)
        found = check_replicated(data)
        if not found:
            return Appended(local.end_offset, local.end_offset - 1, -1, False, 0)
        self._check_order(found)
        at = 0
        while at < len(found):
            at = self._append_group(data, found, at, wall_ms)
        last = found[-1][1]
        size = found[-1][0] + last.size_bytes
        return Appended(found[0][1].base_offset, last.last_offset, -1, False, size)

    def _check_order(self, batches: list[tuple[int, BatchHeader]]) -> None:
        expected = self._local.end_offset
        latest_epoch = self._epochs.latest
        why = None
        for _, header in batches:
            leader_epoch, base_offset = header.partition_leader_epoch, header.base_offset
            if 0 <= leader_epoch < latest_epoch:
                why = f"leader epoch {leader_epoch} cannot follow {latest_epoch}"
            elif base_offset < expected:
                why = f"a batch at offset {base_offset} cannot follow offset {expected - 1}"
            if why is not None:
                raise KafkaError(ErrorCode.INVALID_RECORD, f"{self._local.topic_partition}: {why}")
            latest_epoch = max(latest_epoch, leader_epoch)
            expected = header.next_offset

    def _append_group(self, data: memoryview, batches: list[tuple[int, BatchHeader]], first: int, wall_ms: int) -> int:
        """Appends as many batches as fit into one segment, with one write. Returns the index of the first that does
        not."""
        local, epochs = self._local, self._epochs
        start, header = batches[first]
        timestamp = max(header.max_timestamp for _, header in batches[first:])
        if local.must_roll(header.last_offset, timestamp, header.size_bytes, wall_ms):
            # Segments adjoin even where offsets are missing (a follower of a compacted log), so that recovery can tell
            # a gap between two segments from a loss.
            adjoins = header.last_offset - local.end_offset <= MAX_SPAN
            self._roll(local.end_offset if adjoins else header.base_offset, wall_ms)
        segment = local.active
        room = local.settings.segment_bytes - segment.size
        end = start + header.size_bytes
        behind = first + 1
        while behind < len(batches):
            header = batches[behind][1]
            if end - start + header.size_bytes > room or header.last_offset - segment.base_offset > MAX_SPAN:
                break
            end += header.size_bytes
            behind += 1
        position = local.write(data[start:end])
        for at, header in batches[first:behind]:
            base_offset, size = header.base_offset, header.size_bytes
            if header.partition_leader_epoch > epochs.latest:
                epochs.assign(header.partition_leader_epoch, base_offset)
            local.extend(base_offset, header.last_offset, header.max_timestamp, position + at - start, size)
            if header.producer_id >= 0:
                self._replay_batch(data[at : at + size], header, base_offset, wall_ms)
        self._spill_indexes_if_due()
        return behind

    def _check_coordinator_batch(self, data: memoryview, header: BatchHeader) -> None:
        if not header.attributes & CONTROL:
            self._producers.check_coordinator_batch(header)
        elif (marker := read_marker(data)) is not None:
            self._producers.check_marker(header, marker.coordinator_epoch)

    def _replay_batch(self, data: memoryview, header: BatchHeader, base_offset: int, wall_ms: int) -> None:
        """Replays a batch with a producer id; if it aborts a transaction, adds that to the transaction index."""
        aborted = self._producers.replay_batch(data, header, base_offset, wall_ms)
        if aborted is None:
            return
        segment = self._local.active
        try:
            segment.add_aborted(aborted)
        except OSError as error:
            # As with every index: what could not be written is found again in the log.
            self._local.health.report_error(error, f"writing the transaction index of {segment!r}")

    def _spill_indexes_if_due(self) -> None:
        segment = self._local.active
        if not segment.is_spill_due():
            return
        self._snapshots.capture_within_segment()
        try:
            segment.spill()
        except OSError as error:
            # The entries stay in memory and the append stands: an index can always be rebuilt.
            self._local.health.report_error(error, f"writing the indexes of {segment!r}")

    def roll(self, wall_ms: int = 0) -> None:
        """Starts a new segment, unless the active one is empty."""
        if self._local.active.size:
            self._roll(self._local.end_offset, wall_ms)

    def _roll(self, base_offset: int, wall_ms: int) -> None:
        is_sealed = self._local.roll(base_offset, wall_ms)
        self._snapshots.on_roll(base_offset, is_sealed=is_sealed)
