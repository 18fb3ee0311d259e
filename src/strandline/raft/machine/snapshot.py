"""A follower whose log ends before the leader's log starts fetches a snapshot first, in chunks (KIP-630).

A chunk is a range of bytes of the file and need not end with a batch. After the last one the driver verifies the file,
truncates the log fully and starts it at the snapshot's end; only then is more fetched, with everything below known
to be committed. On any failure the received file is discarded and the next fetch decides again, after a backoff that
doubles: a leader whose only snapshot is damaged sends the same one every time.
"""

from __future__ import annotations

import logging

from strandline.model.errors import ErrorCode, NodeFault
from strandline.protocol.messages.quorum import FetchSnapshotRequest, FetchSnapshotResponse
from strandline.raft.machine.effects import FinishSnapshot, ReplyWithSnapshot, SnapshotChunk
from strandline.raft.machine.messages import (
    fetch_snapshot_request,
    fetch_snapshot_response,
    response_status,
    snapshot_partition,
    snapshot_response_partition,
)
from strandline.raft.machine.observed_leader import observe_and_check_epoch
from strandline.raft.machine.raft_state import RaftState
from strandline.raft.machine.states import Follower, IncomingSnapshot, Leader
from strandline.raft.machine.timeouts import on_leader_contact, record_contact, restart_fetch_timeout
from strandline.raft.machine.values import SnapshotId
from strandline.raft.machine.voters import ReplicaKey
from strandline.runtime.file_slice import FileSlice

logger = logging.getLogger(__name__)


def on_fetch_snapshot(raft: RaftState, token: object, request: FetchSnapshotRequest, now_ms: int) -> None:
    requested = raft.accept(token, request.cluster_id, snapshot_partition(request), FetchSnapshotResponse)
    if requested is None:
        return
    snapshot_id = SnapshotId(requested.snapshot_id.end_offset, requested.snapshot_id.epoch)
    error, size = raft.leader_request_error(requested.current_leader_epoch), 0
    if error is ErrorCode.NONE:
        found = raft.log.snapshot_size(snapshot_id)
        size = found or 0
        if found is None:
            error = ErrorCode.SNAPSHOT_NOT_FOUND
        elif not 0 <= requested.position < size:
            error = ErrorCode.POSITION_OUT_OF_RANGE
    response = fetch_snapshot_response(raft.known_leader, error, snapshot_id, position=requested.position, size=size)
    if error is not ErrorCode.NONE:
        raft.reply(token, response)
        return
    voter = raft.voters.voter_with_key(ReplicaKey(request.replica_id, requested.replica_directory_id))
    if voter is not None and isinstance(raft.role, Leader):
        record_contact(raft, raft.role, voter.id, now_ms)
    max_bytes = min(request.max_bytes, raft.settings.fetch_snapshot_max_bytes)
    raft.emit(ReplyWithSnapshot(token, response, snapshot_id, requested.position, max_bytes))


def begin_snapshot(raft: RaftState, role: Follower, snapshot_id: SnapshotId) -> None:
    if raft.high_watermark is not None and snapshot_id.end_offset < raft.high_watermark:
        raise NodeFault(
            f"the leader offers the snapshot {snapshot_id.file_name}, which ends before offset {raft.high_watermark}, "
            "the high watermark of this log"
        )
    role.snapshot = IncomingSnapshot(snapshot_id)


def poll_snapshot(raft: RaftState, snapshot: IncomingSnapshot, now_ms: int) -> None:
    endpoint = raft.leader_endpoint
    if snapshot.is_finishing or endpoint is None or not raft.in_flight.may_send(endpoint, now_ms):
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
    status, part = response_status(response), snapshot_response_partition(response)
    if status is None or part is None:
        return False
    if not observe_and_check_epoch(raft, status.leader, now_ms) or not isinstance(raft.role, Follower):
        return True
    snapshot = raft.role.snapshot
    if snapshot is None:
        return True
    data = part.unaligned_records
    if isinstance(data, FileSlice):
        raise NodeFault("a snapshot chunk holds a slice of a local file")
    is_next = (part.snapshot_id.end_offset, part.snapshot_id.epoch, part.position) == (
        snapshot.id.end_offset,
        snapshot.id.epoch,
        snapshot.position,
    )
    if status.error is not ErrorCode.NONE or not is_next or len(data) == 0:
        _discard(raft, raft.role, snapshot.id, _reason(status.error), now_ms)
        return True
    on_leader_contact(raft, raft.role, now_ms)
    raft.emit(SnapshotChunk(snapshot.id, snapshot.position, data))
    snapshot.position += len(data)
    if snapshot.position >= part.size:
        snapshot.is_finishing = True
        raft.emit(FinishSnapshot(snapshot.id))
    return True


def on_snapshot_loaded(raft: RaftState, snapshot_id: SnapshotId, now_ms: int) -> None:
    """The log starts and ends where the snapshot ends, whatever role this replica has by now."""
    raft.flushed_offset = raft.log.end_offset
    raft.commit(snapshot_id.end_offset)
    if (role := _follower_fetching(raft, snapshot_id)) is not None:
        role.snapshot = None
        role.failed_snapshots = 0
        restart_fetch_timeout(raft, role, now_ms)


def on_snapshot_failed(raft: RaftState, snapshot_id: SnapshotId, why: str, now_ms: int) -> None:
    if (role := _follower_fetching(raft, snapshot_id)) is not None:
        _discard(raft, role, snapshot_id, why, now_ms)
        restart_fetch_timeout(raft, role, now_ms)


def _follower_fetching(raft: RaftState, snapshot_id: SnapshotId) -> Follower | None:
    role = raft.role
    is_wanted = isinstance(role, Follower) and role.snapshot is not None and role.snapshot.id == snapshot_id
    return role if isinstance(role, Follower) and is_wanted else None


def _discard(raft: RaftState, role: Follower, snapshot_id: SnapshotId, why: str, now_ms: int) -> None:
    if role.failed_snapshot != snapshot_id:
        logger.warning("the fetched snapshot %s is discarded and fetched again: %s", snapshot_id.file_name, why)
    if raft.leader_endpoint is not None:
        raft.in_flight.back_off(raft.leader_endpoint, role.failed_snapshots, now_ms)
    role.snapshot = None
    role.failed_snapshot = snapshot_id
    role.failed_snapshots += 1


def _reason(error: ErrorCode) -> str:
    return "the leader did not send the next chunk" if error is ErrorCode.NONE else f"the leader responded {error.name}"
