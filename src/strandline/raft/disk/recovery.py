"""From disk to memory at a start: the latest snapshot, then the log, into the image and the history of voters.

The image gets only what is known to be committed without a leader: the snapshot, and the log up to the recorded
committed offset. Records after it may yet be truncated; they are replayed when the quorum has committed them. The
voters are those that the log names last, committed or not (KIP-853), so all of the log is read for them.
"""

from __future__ import annotations

import gc
from collections.abc import Iterable, Iterator

from strandline.metadata.image import Image
from strandline.model.errors import NodeFault
from strandline.protocol.types import Message
from strandline.raft.disk.batches import control_records, data_slices
from strandline.raft.disk.quorum_state import LOST_STATE_ADVICE, QUORUM_STATE
from strandline.raft.disk.storage import MetadataStorage
from strandline.raft.machine.values import QuorumState
from strandline.raft.machine.voters import Voter, VoterHistory, VoterSet


def recover(storage: MetadataStorage, image: Image, configured: VoterSet | None) -> VoterHistory:
    """Blocking. Afterwards the image ends at `storage.committed_offset`.

    The cyclic garbage collector is disabled meanwhile: replay creates very many objects and no cycles, and traversing
    them again and again would take longer than creating them.
    """
    collecting = gc.isenabled()
    gc.disable()
    try:
        history = _first_voters(storage, configured)
        _replay_log(storage, image, history, _load_snapshot(storage, image, history))
        return history
    finally:
        if collecting:
            gc.enable()


def read_state(storage: MetadataStorage, history: VoterHistory, me: Voter, *, is_controller: bool) -> QuorumState:
    """Blocking. Reads quorum-state; NodeFault when a voter's is lost: it is synced before the first record of a log."""
    if is_controller and storage.has_lost_state:
        # Whether it is a voter is in the log, which may be lost too.
        raise NodeFault(
            f"{storage.path} has no {QUORUM_STATE}, though this controller has had one: its vote and what it "
            f"acknowledged are lost. {LOST_STATE_ADVICE}"
        )
    votes_with_others = len(history.voters) > 1 and history.voters.voter_with_key(me.key) is not None
    if votes_with_others and storage.log.log_end_offset > 0 and not storage.has_state:
        raise NodeFault(
            f"{storage.path} has a log but no {QUORUM_STATE}: this replica no longer knows how it voted. "
            f"{LOST_STATE_ADVICE}"
        )
    return storage.read_state()


def check_voters(history: VoterHistory, me: Voter, *, is_controller: bool, has_bootstrap: bool) -> None:
    """NodeFault when this node could never join the quorum: it fails at its start rather than wait forever.

    `has_bootstrap`: `controller.quorum.bootstrap.servers` is configured.
    """
    ids = [voter.id for voter in history.voters.voters]
    known = history.voters.voter(me.id)
    if not ids and not has_bootstrap:
        raise NodeFault(
            "the voters are unknown: format this node with --standalone or --initial-controllers, "
            "or set controller.quorum.voters or controller.quorum.bootstrap.servers"
        )
    if is_controller and history.kraft_version == 0 and ids and known is None:
        raise NodeFault(f"node {me.id} is a controller, but not among the voters {ids} of controller.quorum.voters")
    if history.kraft_version > 0 and ids == [me.id] and known is not None and known.directory_id != me.directory_id:
        raise NodeFault(
            f"the only voter, {me.id}, has its log in directory {known.directory_id}, but this is {me.directory_id}: "
            "the metadata of this cluster is elsewhere"
        )


def _first_voters(storage: MetadataStorage, configured: VoterSet | None) -> VoterHistory:
    """The first voters: those of formatting, otherwise those of the config."""
    first = storage.read_first_voters()
    if first is not None and first.voters is not None:
        return VoterHistory(first.voters, first.kraft_version)
    return VoterHistory(configured or VoterSet(()))


def _load_snapshot(storage: MetadataStorage, image: Image, history: VoterHistory) -> int:
    """Returns the offset where the log continues."""
    latest, snapshot = storage.latest_snapshot, storage.read_latest_snapshot()
    if latest is None or snapshot is None:
        return 0
    image.load(snapshot.records(), latest.end_offset)
    history.on_snapshot(latest.end_offset, snapshot.kraft_version, snapshot.voters)
    return latest.end_offset


def _replay_log(storage: MetadataStorage, image: Image, history: VoterHistory, offset: int) -> None:
    committed = storage.committed_offset
    for data, position, header in storage.chunks_from(offset):
        if header.base_offset < offset:
            raise NodeFault(
                f"{storage.path}: the batch at offset {header.base_offset} overlaps the snapshot that ends at {offset}"
            )
        if header.is_control:
            for at, record in control_records(data, position, header, storage.path):
                history.on_record(at, record)
        elif header.next_offset <= committed:
            image.replay_batch(header.base_offset, _records(data_slices(data, position, header, storage.path)))
        if header.next_offset <= committed:
            image.skip_to(header.next_offset)
            image.commit(header.next_offset)
        offset = header.next_offset


def _records(slices: Iterable[list[Message]]) -> Iterator[Message]:
    for records in slices:
        yield from records
