"""A replica that is too far behind for the leader's log fetches a snapshot first, piece by piece (KIP-630).

A piece is a range of bytes of the file and need not end with a batch. When the last one has come, the driver verifies
the file and begins the log anew at its end; only then does fetching go on, and everything below is known to be
committed. Whatever goes wrong, the snapshot is given up, and the next fetch says what is to be done: after a rest that
doubles, for a leader whose only snapshot is damaged sends it again and again.
"""

from __future__ import annotations

import logging

from strandline.model.errors import ErrorCode, NodeFault
from strandline.protocol.messages.quorum import FetchSnapshotRequest, FetchSnapshotResponse
from strandline.raft.machine.answers import fetch_snapshot_response, heard_in, the_snapshot_part
from strandline.raft.machine.check_quorum import hear_from
from strandline.raft.machine.effects import FinishSnapshot, ReplyWithSnapshot, SnapshotChunk
from strandline.raft.machine.hearing import still_concerns
from strandline.raft.machine.patience import excuse_silence, trust_leader
from strandline.raft.machine.replication import leader_only_error
from strandline.raft.machine.requests import fetch_snapshot_request, the_snapshot
from strandline.raft.machine.seat import Seat
from strandline.raft.machine.states import Follower, IncomingSnapshot, Leader
from strandline.raft.machine.values import SnapshotId
from strandline.raft.machine.voters import ReplicaKey
from strandline.runtime.slices import FileSlice

logger = logging.getLogger(__name__)


def on_fetch_snapshot(seat: Seat, token: object, request: FetchSnapshotRequest, now_ms: int) -> None:
    if request.cluster_id not in (None, seat.cluster_id):
        seat.reply(token, FetchSnapshotResponse(error_code=ErrorCode.INCONSISTENT_CLUSTER_ID))
        return
    asked = the_snapshot(request)
    if asked is None:
        seat.reply(token, FetchSnapshotResponse(error_code=ErrorCode.INVALID_REQUEST))
        return
    snapshot_id = SnapshotId(asked.snapshot_id.end_offset, asked.snapshot_id.epoch)
    error, size = leader_only_error(seat, asked.current_leader_epoch), 0
    if error is ErrorCode.NONE:
        found = seat.log.snapshot_size(snapshot_id)
        size = found or 0
        if found is None:
            error = ErrorCode.SNAPSHOT_NOT_FOUND
        elif not 0 <= asked.position < size:
            error = ErrorCode.POSITION_OUT_OF_RANGE
    response = fetch_snapshot_response(seat.known_leader, error, snapshot_id, position=asked.position, size=size)
    if error is not ErrorCode.NONE:
        seat.reply(token, response)
        return
    voter = seat.voters.voter_known_as(ReplicaKey(request.replica_id, asked.replica_directory_id))
    if voter is not None and isinstance(seat.role, Leader):
        hear_from(seat, seat.role, voter.id, now_ms)
    max_bytes = min(request.max_bytes, seat.settings.fetch_snapshot_max_bytes)
    seat.emit(ReplyWithSnapshot(token, response, snapshot_id, asked.position, max_bytes))


def begin_snapshot(seat: Seat, role: Follower, snapshot_id: SnapshotId) -> None:
    if seat.high_watermark is not None and snapshot_id.end_offset < seat.high_watermark:
        raise NodeFault(
            f"the leader offers the snapshot {snapshot_id.file_name}, which ends before offset {seat.high_watermark}, "
            "up to where this log is committed"
        )
    role.snapshot = IncomingSnapshot(snapshot_id)


def pursue_snapshot(seat: Seat, snapshot: IncomingSnapshot, now_ms: int) -> None:
    endpoint = seat.leader_endpoint
    if snapshot.is_finishing or endpoint is None or not seat.mail.is_free(endpoint, now_ms):
        return
    request = fetch_snapshot_request(
        seat.cluster_id,
        seat.me.key,
        seat.epoch,
        snapshot.id,
        snapshot.position,
        seat.settings.fetch_snapshot_max_bytes,
    )
    seat.send(seat.quorum.leader_id, endpoint, request, now_ms)


def on_fetch_snapshot_response(seat: Seat, response: FetchSnapshotResponse, now_ms: int) -> bool:
    heard, part = heard_in(response), the_snapshot_part(response)
    if heard is None or part is None:
        return False
    if not still_concerns(seat, heard.leader, now_ms) or not isinstance(seat.role, Follower):
        return True
    snapshot = seat.role.snapshot
    if snapshot is None:
        return True
    data = part.unaligned_records
    if isinstance(data, FileSlice):
        raise NodeFault("a piece of a snapshot came as a file of our own")
    is_next = (part.snapshot_id.end_offset, part.snapshot_id.epoch, part.position) == (
        snapshot.id.end_offset,
        snapshot.id.epoch,
        snapshot.position,
    )
    if heard.error is not ErrorCode.NONE or not is_next or len(data) == 0:
        _give_up(seat, seat.role, snapshot.id, f"the leader answered {_in_words(heard.error)}", now_ms)
        return True
    trust_leader(seat, seat.role, now_ms)
    seat.emit(SnapshotChunk(snapshot.id, snapshot.position, data))
    snapshot.position += len(data)
    if snapshot.position >= part.size:
        snapshot.is_finishing = True
        seat.emit(FinishSnapshot(snapshot.id))
    return True


def on_snapshot_loaded(seat: Seat, snapshot_id: SnapshotId, now_ms: int) -> None:
    """The log is that snapshot now, whatever state this replica is in meanwhile."""
    seat.flushed_offset = seat.log.end_offset
    seat.commit(snapshot_id.end_offset)
    if (role := _fetching(seat, snapshot_id)) is not None:
        role.snapshot = None
        role.given_up_snapshots = 0
        excuse_silence(seat, role, now_ms)


def on_snapshot_failed(seat: Seat, snapshot_id: SnapshotId, why: str, now_ms: int) -> None:
    if (role := _fetching(seat, snapshot_id)) is not None:
        _give_up(seat, role, snapshot_id, why, now_ms)
        excuse_silence(seat, role, now_ms)


def _fetching(seat: Seat, snapshot_id: SnapshotId) -> Follower | None:
    role = seat.role
    is_wanted = isinstance(role, Follower) and role.snapshot is not None and role.snapshot.id == snapshot_id
    return role if isinstance(role, Follower) and is_wanted else None


def _give_up(seat: Seat, role: Follower, snapshot_id: SnapshotId, why: str, now_ms: int) -> None:
    if role.given_up_snapshot != snapshot_id:
        logger.warning("the fetched snapshot %s is given up and fetched again: %s", snapshot_id.file_name, why)
    if seat.leader_endpoint is not None:
        seat.mail.rest(seat.leader_endpoint, role.given_up_snapshots, now_ms)
    role.snapshot = None
    role.given_up_snapshot = snapshot_id
    role.given_up_snapshots += 1


def _in_words(error: ErrorCode) -> str:
    return "with another piece than the next" if error is ErrorCode.NONE else error.name
