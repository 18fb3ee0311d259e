"""Replication of the log by Fetch, leader's side and follower's side (KIP-595).

A fetch at offset N whose last record is of epoch E says: everything below N is synced here, and N-1 is of epoch E. The
leader first compares that with its own log. Where the logs diverge, it responds with the largest epoch they may share
(`diverging_epoch`); where its log starts later, with a snapshot id. Otherwise the fetch acknowledges the records below
N, and the response has the records from N on, committed or not. With nothing to send, the fetch is parked: until
records are appended, until the fetcher's high watermark is behind (KIP-1166), or until its `max_wait_ms` has passed.

A record is committed when a majority of the voters holds it synced *and* a record of the leader's own epoch is among
what they hold (Raft, section 5.4.2): a leader's high watermark is unknown at first, and never decreases. The leader
counts its own log as far as it is synced, and only while it is a voter. Voters are those that the log names last,
committed or not.

A follower has one fetch in flight at a time. Since a fetch acknowledges everything before its offset, a controller
fetches only when its log is synced, whether or not it is a voter: an observer may become a voter, and then its
acknowledgements count. Brokers need not wait. A follower truncates its log where it diverges from the leader's, never
below the high watermark: that would undo committed records.

Voters learn the leader from BeginQuorumEpoch or from each other's responses. Observers fetch from any controller they
know; its response names the leader.
"""

from __future__ import annotations

import logging
from typing import Final

from strandline.model.errors import ErrorCode, KafkaError, NodeFault
from strandline.model.ids import Endpoint
from strandline.protocol.messages.fetch import (
    EpochEndOffset,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    PartitionData,
)
from strandline.protocol.messages.fetch import (
    SnapshotId as SnapshotIdData,
)
from strandline.raft.machine.effects import Flush, Lead, ReplyWithRecords, Send, Truncate
from strandline.raft.machine.log_port import ReplicaLog
from strandline.raft.machine.majorities import offset_held_by_majority
from strandline.raft.machine.membership import on_committed, update_own_voter
from strandline.raft.machine.messages import (
    fetch_partition,
    fetch_request,
    fetch_response,
    fetch_response_partition,
    fetcher,
    response_status,
)
from strandline.raft.machine.observed_leader import observe_and_check_epoch
from strandline.raft.machine.raft_state import RaftState
from strandline.raft.machine.snapshot import begin_snapshot, poll_snapshot
from strandline.raft.machine.states import Follower, Leader, ParkedFetch, Progress
from strandline.raft.machine.timeouts import on_leader_contact, on_leader_failed, record_contact
from strandline.raft.machine.values import NO_NODE, SnapshotId
from strandline.records.batch import CorruptBatch
from strandline.runtime.disk import Buffer
from strandline.runtime.file_slice import FileSlice

MAX_OBSERVERS: Final = 1_000

logger = logging.getLogger(__name__)


def on_fetch(raft: RaftState, token: object, request: FetchRequest, now_ms: int) -> None:
    """Responds at once, or parks the fetch."""
    requested = raft.accept(token, request.cluster_id, fetch_partition(request), FetchResponse)
    if requested is None:
        return
    error = _invalidity(request, requested) or raft.leader_request_error(requested.current_leader_epoch)
    if error is not ErrorCode.NONE or not isinstance(raft.role, Leader):
        raft.reply(token, _response(raft, error))
        return
    max_bytes = min(request.max_bytes, raft.settings.fetch_max_bytes)
    fetch = ParkedFetch(
        token,
        fetcher(request, requested),
        requested.fetch_offset,
        requested.last_fetched_epoch,
        requested.high_watermark,
        min(max_bytes, requested.partition_max_bytes) if requested.partition_max_bytes > 0 else max_bytes,
        now_ms + request.max_wait_ms,
    )
    differs = divergence(raft.log, fetch.offset, fetch.last_fetched_epoch)
    if differs is None:
        _acknowledge(raft, raft.role, fetch, now_ms)
        raft.role.parked.append(fetch)
        return
    response = _response(raft, ErrorCode.NONE, raft.role.high_watermark)
    partition = response.responses[0].partitions[0]
    if isinstance(differs, SnapshotId):
        partition.snapshot_id = SnapshotIdData(end_offset=differs.end_offset, epoch=differs.epoch)
    else:
        partition.diverging_epoch = differs
    raft.reply(token, response)


def complete_parked_fetches(raft: RaftState, role: Leader, now_ms: int) -> None:
    """Called after every input: any of them may have brought what a parked fetch waits for."""
    committed = -1 if role.high_watermark is None else role.high_watermark
    parked, role.parked = role.parked, []
    for fetch in parked:
        if fetch.offset < raft.log.end_offset:
            response = _response(raft, ErrorCode.NONE, role.high_watermark)
            raft.emit(ReplyWithRecords(fetch.token, response, fetch.offset, fetch.max_bytes))
        elif now_ms >= fetch.deadline_ms or fetch.high_watermark < committed:
            raft.reply(fetch.token, _response(raft, ErrorCode.NONE, role.high_watermark))
        else:
            role.parked.append(fetch)


def divergence(log: ReplicaLog, offset: int, epoch: int) -> EpochEndOffset | SnapshotId | None:
    """The divergence from another log: None when a log that ends at `offset` with a record of `epoch` is a prefix of
    this log.

    Otherwise the largest epoch that both may share, and its end in this log; or, where this log starts later, the
    snapshot to start from."""
    latest, earliest = log.latest_snapshot, log.earliest_snapshot
    if offset == 0:
        return latest
    if latest is not None and earliest is not None:
        starts_differently = offset == log.start_offset == earliest.end_offset and epoch != earliest.epoch
        if offset < log.start_offset or starts_differently or epoch < earliest.epoch:
            return latest
    own_epoch, own_end = log.end_offset_for_epoch(epoch)
    if own_epoch != epoch or own_end < offset:
        return EpochEndOffset(epoch=own_epoch, end_offset=own_end)
    return None


def advance_high_watermark(raft: RaftState, role: Leader) -> None:
    ends = [
        raft.flushed_offset if raft.me.key.matches(voter.key) else role.progress_of(voter.key).end_offset
        for voter in raft.voters.voters
    ]
    offset = offset_held_by_majority(ends)
    known = role.high_watermark
    if offset <= role.epoch_start or (known is not None and offset <= known):
        return
    role.high_watermark = offset
    raft.commit(offset)
    if known is None:
        raft.emit(Lead(raft.epoch))
    on_committed(raft, role)


def remove_idle_observers(raft: RaftState, role: Leader, now_ms: int) -> None:
    idle = [
        key
        for key, progress in role.progress.items()
        if now_ms - (progress.last_fetch_ms or 0) > raft.settings.observer_timeout_ms
        and raft.voters.voter_with_key(key) is None
    ]
    for key in idle:
        del role.progress[key]


def poll_follower(raft: RaftState, role: Follower, now_ms: int) -> None:
    if raft.is_truncating:
        # The log still shows its old end: nothing is sent that depends on it.
        return
    if now_ms >= role.deadline_ms:
        if raft.may_be_candidate:
            raft.become_prospective(now_ms)
        else:
            if role.leader_has_failed or role.leader_has_resigned:
                raft.failed_leader_epoch = raft.epoch
            raft.become_unattached(raft.epoch, now_ms)
    elif role.snapshot is not None:
        poll_snapshot(raft, role.snapshot, now_ms)
    elif role.is_failing and not raft.is_voter:
        find_leader(raft, now_ms)
    elif raft.leader_endpoint is not None:
        update_own_voter(raft, role, now_ms)
        _fetch(raft, raft.quorum.leader_id, raft.leader_endpoint, now_ms)


def find_leader(raft: RaftState, now_ms: int) -> None:
    """Fetches from a random node that may know the leader: a bootstrap server, a voter, the former leader.

    A voter passes over the other voters: it has sent vote requests to them already.
    """
    voters = {at: voter.id for voter in raft.voters.voters if (at := voter.endpoint_for(raft.listener_name))}
    known = {**dict.fromkeys(raft.bootstrap, NO_NODE), **voters}
    if raft.leader_endpoint is not None:
        known[raft.leader_endpoint] = raft.quorum.leader_id
    passed_over = [at for _, at in raft.me.listeners] + (list(voters) if raft.may_be_candidate else [])
    free = [at for at in known if at not in passed_over and raft.in_flight.may_send(at, now_ms)]
    if free:
        endpoint = raft.random.choice(free)
        _fetch(raft, known[endpoint], endpoint, now_ms)


def on_fetch_response(raft: RaftState, send: Send, response: FetchResponse, now_ms: int) -> bool:
    """Returns whether the response could be used; otherwise the endpoint gets a backoff."""
    status, fetched = response_status(response), fetch_response_partition(response)
    if status is None or fetched is None:
        return False
    role_before = raft.role
    is_current = observe_and_check_epoch(raft, status.leader, now_ms, from_leader=status.error is ErrorCode.NONE)
    role = raft.role
    if not is_current or not isinstance(role, Follower):
        return role is not role_before
    if status.error is not ErrorCode.NONE:
        if status.error is ErrorCode.NOT_LEADER_OR_FOLLOWER and send.endpoint == raft.leader_endpoint:
            # From the leader itself: it has resigned or restarted, and will not lead this epoch again.
            on_leader_failed(raft, role, now_ms)
        return role is not role_before
    assert isinstance(send.request, FetchRequest)
    requested = fetch_partition(send.request)
    if requested is None or (requested.fetch_offset, requested.last_fetched_epoch) != (
        raft.log.end_offset,
        raft.log.last_epoch,
    ):
        return True
    return _apply_response(raft, role, requested.fetch_offset, fetched, now_ms)


def on_fetch_failed(raft: RaftState, send: Send, refused: bool, now_ms: int) -> None:
    if not isinstance(raft.role, Follower):
        return
    raft.role.is_failing = True
    if refused and send.endpoint == raft.leader_endpoint:
        on_leader_failed(raft, raft.role, now_ms)


def _invalidity(request: FetchRequest, requested: FetchPartition) -> ErrorCode:
    is_valid = (
        request.max_wait_ms >= 0
        and requested.fetch_offset >= 0
        and 0 <= requested.last_fetched_epoch <= requested.current_leader_epoch
    )
    return ErrorCode.NONE if is_valid else ErrorCode.INVALID_REQUEST


def _acknowledge(raft: RaftState, role: Leader, fetch: ParkedFetch, now_ms: int) -> None:
    """Records the progress of the replica that fetches."""
    replica = fetch.replica
    if replica.id < 0 or replica.id == raft.me.id:
        return
    voter = raft.voters.voter_with_key(replica)
    key = replica if voter is None else voter.key
    if voter is None and key not in role.progress:
        _make_room(raft, role)
    progress = role.progress.setdefault(key, Progress())
    end_offset = raft.log.end_offset
    if fetch.offset >= end_offset:
        progress.last_caught_up_ms = now_ms
    elif progress.last_fetch_ms is not None and fetch.offset >= progress.leader_end_at_last_fetch:
        # It has everything that the log held at its last fetch: it is behind by one fetch at most.
        progress.last_caught_up_ms = progress.last_fetch_ms
    progress.end_offset = fetch.offset
    progress.last_fetch_ms = now_ms
    progress.leader_end_at_last_fetch = end_offset
    if voter is not None:
        record_contact(raft, role, voter.id, now_ms)


def _make_room(raft: RaftState, role: Leader) -> None:
    """Removes the observer whose last fetch is oldest if there are too many: any client may fetch with any id."""
    observers = [key for key in role.progress if raft.voters.voter_with_key(key) is None]
    if len(observers) >= MAX_OBSERVERS:
        del role.progress[min(observers, key=lambda key: role.progress[key].last_fetch_ms or 0)]


def _response(raft: RaftState, error: ErrorCode, high_watermark: int | None = None) -> FetchResponse:
    return fetch_response(
        raft.known_leader, error, high_watermark=high_watermark, log_start_offset=raft.log.start_offset
    )


def _fetch(raft: RaftState, to: int, endpoint: Endpoint, now_ms: int) -> None:
    may_send = not raft.is_truncating and raft.in_flight.is_empty and raft.in_flight.may_send(endpoint, now_ms)
    is_synced = raft.flushed_offset >= raft.log.end_offset
    if not may_send or (raft.is_controller and not is_synced):
        return
    request = fetch_request(
        raft.cluster_id,
        raft.me.key,
        epoch=raft.epoch,
        end_offset=raft.log.end_offset,
        last_epoch=raft.log.last_epoch,
        high_watermark=raft.high_watermark,
        max_wait_ms=raft.settings.fetch_wait_ms,
        max_bytes=raft.settings.fetch_max_bytes,
    )
    raft.send(to, endpoint, request, now_ms)


def _apply_response(raft: RaftState, role: Follower, offset: int, fetched: PartitionData, now_ms: int) -> bool:
    """The leader's response to a fetch at `offset`, the end of this log."""
    on_leader_contact(raft, role, now_ms)
    if fetched.diverging_epoch.end_offset >= 0:
        return _truncate(raft, fetched.diverging_epoch.epoch, fetched.diverging_epoch.end_offset)
    if fetched.snapshot_id.end_offset >= 0:
        begin_snapshot(raft, role, SnapshotId(fetched.snapshot_id.end_offset, fetched.snapshot_id.epoch))
        return True
    if fetched.records and not _append(raft, fetched.records):
        return False
    if fetched.high_watermark >= 0:
        raft.commit(min(fetched.high_watermark, raft.log.end_offset))
        role.has_caught_up = role.has_caught_up or offset >= fetched.high_watermark
    return True


def _append(raft: RaftState, records: Buffer | FileSlice) -> bool:
    """Returns whether all batches were valid; the rest is fetched again."""
    if isinstance(records, FileSlice):
        raise NodeFault("a fetch response holds a slice of a local file")
    try:
        raft.log.append_as_follower(records)
    except (CorruptBatch, KafkaError) as error:
        if not isinstance(error, KafkaError) or error.code is not ErrorCode.KAFKA_STORAGE_ERROR:
            logger.warning("the batches from node %d are rejected and fetched again: %s", raft.quorum.leader_id, error)
        # A full disk is logged once, by the log; the fetch is retried until there is room.
        return False
    finally:
        if raft.log.end_offset > raft.flushed_offset:
            raft.emit(Flush())
    return True


def _truncate(raft: RaftState, epoch: int, end_offset: int) -> bool:
    """The leader's log has no records of this log's last epoch, or fewer: `end_offset` is where its `epoch` ends."""
    own_epoch, own_end = raft.log.end_offset_for_epoch(epoch)
    offset = min(own_end, end_offset) if own_epoch == epoch else own_end
    if raft.high_watermark is not None and offset < raft.high_watermark:
        raise NodeFault(
            f"the leader {raft.quorum.leader_id} of epoch {raft.epoch} would have this log truncated to offset "
            f"{offset}, but it is committed up to {raft.high_watermark}"
        )
    if offset >= raft.log.end_offset:
        return False
    raft.flushed_offset = min(raft.flushed_offset, offset)
    raft.is_truncating = True
    raft.emit(Truncate(offset))
    return True
