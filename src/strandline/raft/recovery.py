"""From the disk to memory: the latest snapshot, then the tail of the log, into an image."""

from __future__ import annotations

import gc
from dataclasses import dataclass

from strandline.metadata.image import Image
from strandline.model.errors import NodeFault
from strandline.protocol.messages.control_records import KRaftVersionRecord, VotersRecord
from strandline.raft.batches import MetadataBatch
from strandline.raft.storage import MetadataStorage
from strandline.raft.voters import VoterSet


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
