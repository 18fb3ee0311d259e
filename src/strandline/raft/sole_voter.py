"""The quorum of one: a sole voter leads as soon as it starts, and its own flush is the commit.

What the controller sees is the `MetadataLog` port: `append` gives offsets at once, `committed` follows. In between,
`run` gathers whatever was appended while the last flush was under way into one write and one sync (group commit), tells
the image and the publisher, then wakes those who wait. Snapshots are written beside, in slices, from a pinned view.

Every start is a new epoch, recorded and synced before anything is written in it, so an (offset, epoch) pair never means
two things. Kafka writes a NoOp record twice a second when nothing happens, to show how far its followers lag; with
nobody to follow, that would only keep an idle disk awake, so none are written.

A failing disk ends it: nothing more is committed, everyone who waits fails with NOT_CONTROLLER, and the node stops.
"""

from __future__ import annotations

import asyncio
import gc
import logging
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from strandline.metadata.image import Image
from strandline.metadata.views import View
from strandline.model.errors import ErrorCode, KafkaError, NodeFault
from strandline.model.ids import Uuid
from strandline.model.timeline import Touched
from strandline.protocol.messages.control_records import (
    KRaftVersionRecord,
    LeaderChangeMessage,
    LeaderChangeMessageVoter,
    VotersRecord,
)
from strandline.protocol.messages.quorum import DescribeQuorumRequest, DescribeQuorumResponse
from strandline.protocol.types import Message
from strandline.raft.batches import ControlRecord, MetadataBatch, encode_control_batch, encode_slowly
from strandline.raft.description import describe_sole_voter
from strandline.raft.snapshots import SnapshotId
from strandline.raft.snapshotting import SnapshotPolicy
from strandline.raft.state import QuorumState
from strandline.raft.storage import MetadataStorage
from strandline.raft.voters import Voter, VoterSet
from strandline.runtime.clock import Clock
from strandline.runtime.offload import Offload
from strandline.runtime.tasks import TaskGroup
from strandline.runtime.watermark import Watermark

logger = logging.getLogger(__name__)

# About two milliseconds of gathering and encoding.
_SNAPSHOT_SLICE: Final = 200

OnCommit = Callable[[list[Touched]], None]


@dataclass(frozen=True, slots=True)
class _Appended:
    """An atomic batch that waits to be written."""

    base_offset: int
    timestamp: int
    metadata_version: int
    records: Sequence[Message]


class SoleVoter:
    def __init__(
        self,
        storage: MetadataStorage,
        image: Image,
        clock: Clock,
        offload: Offload,
        *,
        node_id: int,
        directory_id: Uuid,
        configured_voters: VoterSet | None = None,
        policy: SnapshotPolicy | None = None,
        on_commit: OnCommit | None = None,
    ) -> None:
        """`configured_voters` is `controller.quorum.voters`, for a quorum whose voters are not in its log.

        `on_commit` hears what each commit touched, after the image has committed it and before anyone who waits for it.
        """
        self._storage = storage
        self._image = image
        self._clock = clock
        self._offload = offload
        self._node_id = node_id
        self._directory_id = directory_id
        self._configured_voters = configured_voters
        self._policy = policy or SnapshotPolicy()
        self.on_commit = on_commit
        self._recovered = Recovered()
        self._voters = VoterSet(())
        self._waiting: list[_Appended] = []
        self._work = asyncio.Event()
        self._snapshot_due = asyncio.Event()
        self._bytes_since_snapshot = 0
        self._last_timestamp = 0
        self.epoch = 0
        self.is_leader = False
        self.end_offset = 0
        self.committed = Watermark(0)

    @property
    def kraft_version(self) -> int:
        return self._recovered.kraft_version

    async def start(self) -> None:
        """Reads what is there into the image and takes the lead of a new epoch; then `append` may be called."""
        try:
            await self._take_the_lead()
        except (OSError, KafkaError) as error:
            raise NodeFault(f"the metadata log in {self._storage.path} cannot be used: {error}") from error

    async def _take_the_lead(self) -> None:
        self._recovered = await self._offload.run(recover, self._storage, self._image)
        self._voters = self._check_voters()
        self._bytes_since_snapshot = self._recovered.bytes_since_snapshot
        state = await self._offload.run(self._storage.read_state)
        self.epoch = max(state.epoch, self._recovered.epoch) + 1
        leading = QuorumState(epoch=self.epoch, leader_id=self._node_id)
        self._storage.note_epoch(self.epoch)
        await self._offload.run(self._storage.write_state, leading, self._recovered.kraft_version, self._voters)
        await self._write_epoch_start()
        self.is_leader = True

    def _check_voters(self) -> VoterSet:
        voters = self._recovered.voters if self._recovered.kraft_version > 0 else self._configured_voters
        if voters is None:
            raise NodeFault(
                "nobody has said who votes: format this node with --standalone, or set controller.quorum.voters"
            )
        ids = [voter.id for voter in voters.voters]
        me = voters.voter(self._node_id)
        if me is None:
            raise NodeFault(f"node {self._node_id} is not among the voters {ids}")
        if len(ids) > 1:
            raise NodeFault(f"the voters are {ids}, but this version runs quorums of one only")
        if self._recovered.kraft_version > 0 and me.directory_id != self._directory_id:
            raise NodeFault(
                f"the voter {me.id} has its log in directory {me.directory_id}, but this is {self._directory_id}: "
                "the metadata of this cluster is elsewhere"
            )
        return voters

    async def _write_epoch_start(self) -> None:
        """The leader-change record; in the first epoch of a dynamic quorum also who votes."""
        granting = [LeaderChangeMessageVoter(voter_id=self._node_id)]
        records: list[ControlRecord] = [
            LeaderChangeMessage(version=0, leader_id=self._node_id, voters=granting, granting_voters=granting)
        ]
        if self._recovered.kraft_version > 0 and not self._recovered.voters_in_log:
            records.append(KRaftVersionRecord(version=0, kraft_version=self._recovered.kraft_version))
            records.append(self._voters.record())
        base_offset, wall_ms = self._storage.log.log_end_offset, self._clock.wall_ms()
        batch = encode_control_batch(records, base_offset=base_offset, epoch=self.epoch, timestamp=wall_ms)
        self._storage.append(batch, wall_ms)
        await self._offload.run(self._storage.log.flush)
        self.end_offset = base_offset + len(records)
        self._bytes_since_snapshot += len(batch)
        self._last_timestamp = wall_ms
        self._image.skip_to(self.end_offset)
        self._commit(self.end_offset)

    def reserve(self) -> int:
        """Nobody else ever writes to the log of a sole voter."""
        return self.end_offset

    def release(self) -> None:
        """There is nothing to give back."""

    def append(self, records: Sequence[Message]) -> int:
        if not self.is_leader:
            raise KafkaError(ErrorCode.NOT_CONTROLLER, "this node does not lead the metadata quorum")
        base_offset = self.end_offset
        self._waiting.append(
            _Appended(base_offset, self._clock.wall_ms(), self._image.latest.metadata_version, records)
        )
        self.end_offset = base_offset + len(records)
        self._work.set()
        return self.end_offset - 1

    async def run(self) -> None:
        """Writes, commits and snapshots until cancelled; a failing disk raises NodeFault."""
        try:
            async with TaskGroup() as tasks:
                tasks.start(self._commits(), "metadata commits")
                tasks.start(self._snapshots(), "metadata snapshots")
        finally:
            self.is_leader = False
            self.committed.lose(KafkaError(ErrorCode.NOT_CONTROLLER, "the metadata log of this node has stopped"))

    async def _commits(self) -> None:
        while True:
            await self._work.wait()
            self._work.clear()
            waiting, self._waiting = self._waiting, []
            try:
                await self._write(waiting)
            except (OSError, KafkaError) as error:
                raise NodeFault(f"the metadata log cannot be written: {error}") from error

    async def _write(self, waiting: list[_Appended]) -> None:
        data = bytearray()
        for each in waiting:
            for batch in self._encode(each):
                if batch is None:
                    # Not in a thread: encoding is all Python, and a thread would only fight over the interpreter.
                    await asyncio.sleep(0)
                else:
                    data += batch
        self._storage.append(data, self._clock.wall_ms())
        await self._offload.run(self._storage.log.flush)
        last = waiting[-1]
        self._last_timestamp = last.timestamp
        self._bytes_since_snapshot += len(data)
        self._commit(last.base_offset + len(last.records))
        if self._bytes_since_snapshot >= self._policy.max_bytes_between:
            self._snapshot_due.set()

    def _encode(self, appended: _Appended) -> Iterator[bytearray | None]:
        """None at each good moment to breathe, then the batch."""
        yield (
            yield from encode_slowly(
                appended.records,
                base_offset=appended.base_offset,
                epoch=self.epoch,
                timestamp=appended.timestamp,
                metadata_version=appended.metadata_version,
            )
        )

    def _commit(self, offset: int) -> None:
        """In one step of the loop: whoever is woken finds the image, and what follows from it, as committed."""
        self._storage.note_committed(offset)
        touched = self._image.commit(offset)
        if self.on_commit is not None:
            self.on_commit(touched)
        self.committed.advance(offset)

    async def _snapshots(self) -> None:
        """One when enough was written since the last, one when enough time went by and anything changed."""
        loop = asyncio.get_running_loop()
        while True:
            timer = loop.call_later(self._policy.max_interval_ms / 1000, self._snapshot_due.set)
            try:
                await self._snapshot_due.wait()
            finally:
                timer.cancel()
            self._snapshot_due.clear()
            await self.write_snapshot()

    async def write_snapshot(self) -> SnapshotId | None:
        """The committed state as a file; None when there is nothing new, or a metadata transaction is open."""
        end_offset = self.committed.value
        latest = self._storage.latest_snapshot
        if self._image.committed.offset != end_offset or (latest is not None and latest.end_offset >= end_offset):
            return None
        snapshot_id = SnapshotId(end_offset, self.epoch)
        self._bytes_since_snapshot = 0
        view = self._image.pin()
        try:
            await self._write_snapshot(snapshot_id, view)
            await self._clean()
        except (OSError, KafkaError) as error:
            # Not fatal: the log has everything, and the next snapshot is a file of its own.
            logger.warning("the metadata snapshot %s could not be written: %s", snapshot_id.file_name, error)
            return None
        finally:
            self._image.unpin(view)
        return snapshot_id

    async def _write_snapshot(self, snapshot_id: SnapshotId, view: View) -> None:
        """Cancelled in the middle it leaves a `.part` file, which the next start removes."""
        writer = self._storage.begin_snapshot(snapshot_id, view.metadata_version)
        try:
            writer.begin(
                last_timestamp=self._last_timestamp,
                wall_ms=self._clock.wall_ms(),
                kraft_version=self._recovered.kraft_version,
                voters=self._voters,
            )
            slice_: list[Message] = []
            for record in self._image.records(view):
                slice_.append(record)
                if len(slice_) == _SNAPSHOT_SLICE:
                    writer.append(slice_, self._clock.wall_ms())
                    slice_ = []
                    await asyncio.sleep(0)
            if slice_:
                writer.append(slice_, self._clock.wall_ms())
            await self._offload.run(writer.finish, self._clock.wall_ms())
            self._storage.add_snapshot(snapshot_id)
        except OSError:
            writer.abandon()
            raise

    async def _clean(self) -> None:
        """Forgets old snapshots and the log before the oldest that remains (Kafka's metadata.max.retention.*)."""
        storage, wall_ms = self._storage, self._clock.wall_ms()
        surplus = await self._offload.run(storage.surplus_snapshots, wall_ms)
        segments = storage.forget(surplus, wall_ms)
        await self._offload.run(storage.remove_files, surplus, segments)

    async def describe_quorum(self, request: DescribeQuorumRequest, version: int = 2) -> DescribeQuorumResponse:
        voter = self._voters.voter(self._node_id) or Voter(self._node_id)
        return describe_sole_voter(
            request,
            version,
            voter,
            self.epoch,
            self.committed.value,
            self._storage.log.log_end_offset,
            self._clock.wall_ms(),
        )

    async def close(self) -> None:
        """After `run` has ended: what was flushed stays, and the files are put down."""
        await self._offload.run(self._storage.close)


@dataclass(slots=True)
class Recovered:
    """What the log says beside metadata."""

    kraft_version: int = 0
    voters: VoterSet | None = None
    voters_in_log: bool = False
    """False while only formatting has named the voters: the first leader writes them into the log."""
    epoch: int = 0
    """Of the last record."""
    timestamp: int = 0
    bytes_since_snapshot: int = 0


def recover(storage: MetadataStorage, image: Image) -> Recovered:
    """Blocking. Replays everything there is, as committed: right for a sole voter, whose log nobody can contradict.

    The cyclic collector rests meanwhile: replay makes a great many values and no cycles, and looking through them again
    and again would take longer than making them.
    """
    collecting = gc.isenabled()
    gc.disable()
    try:
        return _recover(storage, image)
    finally:
        if collecting:
            gc.enable()


def _recover(storage: MetadataStorage, image: Image) -> Recovered:
    recovered = Recovered()
    first_voters = storage.read_first_voters()
    if first_voters is not None:
        recovered.kraft_version, recovered.voters = first_voters.kraft_version, first_voters.voters
    latest, snapshot = storage.latest_snapshot, storage.read_latest_snapshot()
    end_offset = 0
    if latest is not None and snapshot is not None:
        image.load(snapshot.records(), latest.end_offset)
        end_offset = latest.end_offset
        recovered.epoch, recovered.timestamp = latest.epoch, snapshot.last_timestamp
        if snapshot.voters is not None:
            recovered.kraft_version, recovered.voters = snapshot.kraft_version, snapshot.voters
            recovered.voters_in_log = True
    for batch in storage.batches_from(end_offset):
        if batch.base_offset < end_offset:
            raise NodeFault(
                f"{storage.path}: the batch at offset {batch.base_offset} reaches over the snapshot's end {end_offset}"
            )
        _replay(batch, image, recovered)
        end_offset = batch.next_offset
    return recovered


def _replay(batch: MetadataBatch, image: Image, recovered: Recovered) -> None:
    if batch.is_control:
        for record in batch.records:
            if isinstance(record, KRaftVersionRecord):
                recovered.kraft_version = record.kraft_version
            elif isinstance(record, VotersRecord):
                recovered.voters = VoterSet.of_record(record)
                recovered.voters_in_log = True
        image.skip_to(batch.next_offset)
    else:
        image.replay_batch(batch.base_offset, batch.records)
    image.commit(batch.next_offset)
    recovered.epoch, recovered.timestamp = batch.epoch, batch.timestamp
    recovered.bytes_since_snapshot += batch.size_bytes
