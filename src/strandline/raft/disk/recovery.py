"""From the disk to memory: the latest snapshot, then the log, into an image and a history of voters.

The image takes only what is known to be committed without asking anybody: the snapshot, and the log as far as the note
beside it says. What follows in the log may yet be cut off; it waits for the quorum's word. Voters are different: those
whom the log names last count, committed or not (KIP-853), so all of the log is read for them.
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

    The cyclic collector rests meanwhile: replay makes a great many values and no cycles, and looking through them again
    and again would take longer than making them.
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
    """Blocking. NodeFault when a voter's vote is gone: a state is synced before the first record of a log."""
    if is_controller and storage.has_forgotten:
        # Whether it votes is in the log, which may be gone too.
        raise NodeFault(
            f"{storage.path} has no {QUORUM_STATE}, though this controller has had one: it has forgotten its vote "
            f"and what it acknowledged. {LOST_STATE_ADVICE}"
        )
    votes_with_others = len(history.voters) > 1 and history.voters.voter_with_key(me.key) is not None
    if votes_with_others and storage.log.log_end_offset > 0 and not storage.has_state:
        raise NodeFault(
            f"{storage.path} has a log but no {QUORUM_STATE}: this replica no longer knows how it voted. "
            f"{LOST_STATE_ADVICE}"
        )
    return storage.read_state()


def check_voters(history: VoterHistory, me: Voter, *, is_controller: bool, can_ask: bool) -> None:
    """NodeFault when this node could never take part: better told at its start than waited for.

    `can_ask`: somebody is configured who can be asked for the quorum (`controller.quorum.bootstrap.servers`).
    """
    ids = [voter.id for voter in history.voters.voters]
    known = history.voters.voter(me.id)
    if not ids and not can_ask:
        raise NodeFault(
            "nobody has said who votes: format this node with --standalone or --initial-controllers, "
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
    """As formatting named them; otherwise as configured."""
    first = storage.read_first_voters()
    if first is not None and first.voters is not None:
        return VoterHistory(first.voters, first.kraft_version)
    return VoterHistory(configured or VoterSet(()))


def _load_snapshot(storage: MetadataStorage, image: Image, history: VoterHistory) -> int:
    """The offset where the log goes on."""
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
                f"{storage.path}: the batch at offset {header.base_offset} reaches over the snapshot's end {offset}"
            )
        if header.is_control:
            for at, told in control_records(data, position, header, storage.path):
                history.on_record(at, told)
        elif header.next_offset <= committed:
            image.replay_batch(header.base_offset, _records(data_slices(data, position, header, storage.path)))
        if header.next_offset <= committed:
            image.skip_to(header.next_offset)
            image.commit(header.next_offset)
        offset = header.next_offset


def _records(slices: Iterable[list[Message]]) -> Iterator[Message]:
    for records in slices:
        yield from records
