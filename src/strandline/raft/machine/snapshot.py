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
from strandline.raft.machine.answers import fetch_snapshot_response, response_status, snapshot_response_partition
from strandline.raft.machine.check_quorum import record_contact
from strandline.raft.machine.effects import FinishSnapshot, ReplyWithSnapshot, SnapshotChunk
from strandline.raft.machine.observed_leader import observe_and_check_epoch
from strandline.raft.machine.raft_state import RaftState
from strandline.raft.machine.replication import leader_only_error
from strandline.raft.machine.requests import fetch_snapshot_request, snapshot_partition
from strandline.raft.machine.states import Follower, IncomingSnapshot, Leader
from strandline.raft.machine.timeouts import on_leader_contact, restart_fetch_timeout
from strandline.raft.machine.values import SnapshotId
from strandline.raft.machine.voters import ReplicaKey
from strandline.runtime.file_slice import FileSlice

logger = logging.getLogger(__name__)


def on_fetch_snapshot(raft: RaftState, token: object, request: FetchSnapshotRequest, now_ms: int) -> None:
    if request.cluster_id not in (None, raft.cluster_id):
        raft.reply(token, FetchSnapshotResponse(error_code=ErrorCode.INCONSISTENT_CLUSTER_ID))
        return
    asked = snapshot_partition(request)
    if asked is None:
        raft.reply(token, FetchSnapshotResponse(error_code=ErrorCode.INVALID_REQUEST))
        return
    snapshot_id = SnapshotId(asked.snapshot_id.end_offset, asked.snapshot_id.epoch)
    error, size = leader_only_error(raft, asked.current_leader_epoch), 0
    if error is ErrorCode.NONE:
        found = raft.log.snapshot_size(snapshot_id)
        size = found or 0
        if found is None:
            error = ErrorCode.SNAPSHOT_NOT_FOUND
        elif not 0 <= asked.position < size:
            error = ErrorCode.POSITION_OUT_OF_RANGE
    response = fetch_snapshot_response(raft.known_leader, error, snapshot_id, position=asked.position, size=size)
    if error is not ErrorCode.NONE:
        raft.reply(token, response)
        return
    voter = raft.voters.voter_with_key(ReplicaKey(request.replica_id, asked.replica_directory_id))
    if voter is not None and isinstance(raft.role, Leader):
        record_contact(raft, raft.role, voter.id, now_ms)
    max_bytes = min(request.max_bytes, raft.settings.fetch_snapshot_max_bytes)
    raft.emit(ReplyWithSnapshot(token, response, snapshot_id, asked.position, max_bytes))


def begin_snapshot(raft: RaftState, role: Follower, snapshot_id: SnapshotId) -> None:
    if raft.high_watermark is not None and snapshot_id.end_offset < raft.high_watermark:
        raise NodeFault(
            f"the leader offers the snapshot {snapshot_id.file_name}, which ends before offset {raft.high_watermark}, "
            "up to where this log is committed"
        )
    role.snapshot = IncomingSnapshot(snapshot_id)


def poll_snapshot(raft: RaftState, snapshot: IncomingSnapshot, now_ms: int) -> None:
    endpoint = raft.leader_endpoint
    if snapshot.is_finishing or endpoint is None or not raft.in_flight.is_free(endpoint, now_ms):
        return
    request = fetch_snapshot_request(
        raft.cluster_id,
        raft.me.key,
        raft.epoch,
        snapshot.id,
        snapshot.position,
        raft.settings.fetch_snapshot_max_bytes,
    )
    raft.send(raft.quorum.leader_id, endpoint, request, now_ms)


def on_fetch_snapshot_response(raft: RaftState, response: FetchSnapshotResponse, now_ms: int) -> bool:
    heard, part = response_status(response), snapshot_response_partition(response)
    if heard is None or part is None:
        return False
    if not observe_and_check_epoch(raft, heard.leader, now_ms) or not isinstance(raft.role, Follower):
        return True
    snapshot = raft.role.snapshot
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
        _give_up(raft, raft.role, snapshot.id, f"the leader answered {_in_words(heard.error)}", now_ms)
        return True
    on_leader_contact(raft, raft.role, now_ms)
    raft.emit(SnapshotChunk(snapshot.id, snapshot.position, data))
    snapshot.position += len(data)
    if snapshot.position >= part.size:
        snapshot.is_finishing = True
        raft.emit(FinishSnapshot(snapshot.id))
    return True


def on_snapshot_loaded(raft: RaftState, snapshot_id: SnapshotId, now_ms: int) -> None:
    """The log is that snapshot now, whatever state this replica is in meanwhile."""
    raft.flushed_offset = raft.log.end_offset
    raft.commit(snapshot_id.end_offset)
    if (role := _fetching(raft, snapshot_id)) is not None:
        role.snapshot = None
        role.failed_snapshots = 0
        restart_fetch_timeout(raft, role, now_ms)


def on_snapshot_failed(raft: RaftState, snapshot_id: SnapshotId, why: str, now_ms: int) -> None:
    if (role := _fetching(raft, snapshot_id)) is not None:
        _give_up(raft, role, snapshot_id, why, now_ms)
        restart_fetch_timeout(raft, role, now_ms)


def _fetching(raft: RaftState, snapshot_id: SnapshotId) -> Follower | None:
    role = raft.role
    is_wanted = isinstance(role, Follower) and role.snapshot is not None and role.snapshot.id == snapshot_id
    return role if isinstance(role, Follower) and is_wanted else None


def _give_up(raft: RaftState, role: Follower, snapshot_id: SnapshotId, why: str, now_ms: int) -> None:
    if role.failed_snapshot != snapshot_id:
        logger.warning("the fetched snapshot %s is given up and fetched again: %s", snapshot_id.file_name, why)
    if raft.leader_endpoint is not None:
        raft.in_flight.rest(raft.leader_endpoint, role.failed_snapshots, now_ms)
    role.snapshot = None
    role.failed_snapshot = snapshot_id
    role.failed_snapshots += 1


def _in_words(error: ErrorCode) -> str:
    return "with another piece than the next" if error is ErrorCode.NONE else error.name
