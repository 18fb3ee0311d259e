"""The leader's side of Fetch, by which followers and observers ask for the log, and voters acknowledge it (KIP-595).

A fetch at offset N whose last record is of epoch E says: everything below N is durable here, and N-1 is of epoch E.
The leader first compares that with its own log. Where they differ it says how far back they may still agree
(`diverging_epoch`); where its log does not reach back so far it names a snapshot instead. Otherwise the fetch is an
acknowledgement, and is answered with what follows, committed or not. With nothing to tell it is parked: until records
are appended, until the fetcher's high watermark is behind (KIP-1166), or until it has waited long enough.
"""

from __future__ import annotations

from typing import Final

from strandline.model.errors import ErrorCode
from strandline.protocol.messages.fetch import (
    EpochEndOffset,
    FetchPartition,
    FetchRequest,
    FetchResponse,
)
from strandline.protocol.messages.fetch import (
    SnapshotId as SnapshotIdData,
)
from strandline.raft.machine.answers import fetch_response
from strandline.raft.machine.check_quorum import record_contact
from strandline.raft.machine.effects import ReplyWithRecords
from strandline.raft.machine.log_port import ReplicaLog
from strandline.raft.machine.raft_state import RaftState
from strandline.raft.machine.requests import fetch_partition, fetcher
from strandline.raft.machine.states import Leader, ParkedFetch, Progress
from strandline.raft.machine.values import SnapshotId

MAX_OBSERVERS: Final = 1_000


def on_fetch(raft: RaftState, token: object, request: FetchRequest, now_ms: int) -> None:
    if request.cluster_id not in (None, raft.cluster_id):
        raft.reply(token, FetchResponse(error_code=ErrorCode.INCONSISTENT_CLUSTER_ID))
        return
    asked = fetch_partition(request)
    if asked is None:
        raft.reply(token, FetchResponse(error_code=ErrorCode.INVALID_REQUEST))
        return
    error = _invalidity(request, asked) or leader_only_error(raft, asked.current_leader_epoch)
    if error is not ErrorCode.NONE or not isinstance(raft.role, Leader):
        raft.reply(token, _answer(raft, error))
        return
    most_bytes = min(request.max_bytes, raft.settings.fetch_max_bytes)
    fetch = ParkedFetch(
        token,
        fetcher(request, asked),
        asked.fetch_offset,
        asked.last_fetched_epoch,
        asked.high_watermark,
        min(most_bytes, asked.partition_max_bytes) if asked.partition_max_bytes > 0 else most_bytes,
        now_ms + request.max_wait_ms,
    )
    differs = divergence(raft.log, fetch.offset, fetch.last_fetched_epoch)
    if differs is None:
        _acknowledge(raft, raft.role, fetch, now_ms)
        raft.role.parked.append(fetch)
        return
    response = _answer(raft, ErrorCode.NONE, raft.role.high_watermark)
    partition = response.responses[0].partitions[0]
    if isinstance(differs, SnapshotId):
        partition.snapshot_id = SnapshotIdData(end_offset=differs.end_offset, epoch=differs.epoch)
    else:
        partition.diverging_epoch = differs
    raft.reply(token, response)


def leader_only_error(raft: RaftState, epoch: int) -> ErrorCode:
    """Why a request that only the leader of this epoch can answer is refused, or NONE."""
    if epoch < raft.epoch:
        return ErrorCode.FENCED_LEADER_EPOCH
    if epoch > raft.epoch:
        return ErrorCode.UNKNOWN_LEADER_EPOCH
    return ErrorCode.NONE if isinstance(raft.role, Leader) else ErrorCode.NOT_LEADER_OR_FOLLOWER


def complete_parked_fetches(raft: RaftState, role: Leader, now_ms: int) -> None:
    """Whatever the last input was, it may be what somebody waits for."""
    committed = -1 if role.high_watermark is None else role.high_watermark
    parked, role.parked = role.parked, []
    for fetch in parked:
        if fetch.offset < raft.log.end_offset:
            response = _answer(raft, ErrorCode.NONE, role.high_watermark)
            raft.emit(ReplyWithRecords(fetch.token, response, fetch.offset, fetch.max_bytes))
        elif now_ms >= fetch.deadline_ms or fetch.high_watermark < committed:
            raft.reply(fetch.token, _answer(raft, ErrorCode.NONE, role.high_watermark))
        else:
            role.parked.append(fetch)


def divergence(log: ReplicaLog, offset: int, epoch: int) -> EpochEndOffset | SnapshotId | None:
    """None: a log that ends at `offset` with a record of `epoch` is the beginning of this one.

    Otherwise up to where it may be (the largest epoch that both may share, and its end here); or, where this log does
    not reach back so far, the snapshot to begin from.
    """
    latest, earliest = log.latest_snapshot, log.earliest_snapshot
    if offset == 0:
        return latest
    if latest is not None and earliest is not None:
        begins_differently = offset == log.start_offset == earliest.end_offset and epoch != earliest.epoch
        if offset < log.start_offset or begins_differently or epoch < earliest.epoch:
            return latest
    own_epoch, own_end = log.end_offset_for_epoch(epoch)
    if own_epoch != epoch or own_end < offset:
        return EpochEndOffset(epoch=own_epoch, end_offset=own_end)
    return None


def _invalidity(request: FetchRequest, asked: FetchPartition) -> ErrorCode:
    is_valid = (
        request.max_wait_ms >= 0
        and asked.fetch_offset >= 0
        and 0 <= asked.last_fetched_epoch <= asked.current_leader_epoch
    )
    return ErrorCode.NONE if is_valid else ErrorCode.INVALID_REQUEST


def _acknowledge(raft: RaftState, role: Leader, fetch: ParkedFetch, now_ms: int) -> None:
    """What the leader learns of a replica from where it fetches."""
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
        # It has all that there was when it last asked: it is behind by no more than one round.
        progress.last_caught_up_ms = progress.last_fetch_ms
    progress.end_offset = fetch.offset
    progress.last_fetch_ms = now_ms
    progress.leader_end_at_last_fetch = end_offset
    if voter is not None:
        record_contact(raft, role, voter.id, now_ms)


def _make_room(raft: RaftState, role: Leader) -> None:
    """For one more observer. Anybody may come with ids that nobody knows; who has been silent longest is forgotten."""
    observers = [key for key in role.progress if raft.voters.voter_with_key(key) is None]
    if len(observers) >= MAX_OBSERVERS:
        del role.progress[min(observers, key=lambda key: role.progress[key].last_fetch_ms or 0)]


def _answer(raft: RaftState, error: ErrorCode, high_watermark: int | None = None) -> FetchResponse:
    return fetch_response(
        raft.known_leader, error, high_watermark=high_watermark, log_start_offset=raft.log.start_offset
    )
