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
from strandline.raft.machine.check_quorum import hear_from
from strandline.raft.machine.effects import ReplyWithRecords
from strandline.raft.machine.log_port import ReplicaLog
from strandline.raft.machine.requests import fetcher, the_fetch
from strandline.raft.machine.seat import Seat
from strandline.raft.machine.states import Leader, ParkedFetch, Progress
from strandline.raft.machine.values import SnapshotId

MOST_OBSERVERS: Final = 1_000


def on_fetch(seat: Seat, token: object, request: FetchRequest, now_ms: int) -> None:
    if request.cluster_id not in (None, seat.cluster_id):
        seat.reply(token, FetchResponse(error_code=ErrorCode.INCONSISTENT_CLUSTER_ID))
        return
    asked = the_fetch(request)
    if asked is None:
        seat.reply(token, FetchResponse(error_code=ErrorCode.INVALID_REQUEST))
        return
    error = _invalidity(request, asked) or leader_only_error(seat, asked.current_leader_epoch)
    if error is not ErrorCode.NONE or not isinstance(seat.role, Leader):
        seat.reply(token, _answer(seat, error))
        return
    most_bytes = min(request.max_bytes, seat.settings.fetch_max_bytes)
    fetch = ParkedFetch(
        token,
        fetcher(request, asked),
        asked.fetch_offset,
        asked.last_fetched_epoch,
        asked.high_watermark,
        min(most_bytes, asked.partition_max_bytes) if asked.partition_max_bytes > 0 else most_bytes,
        now_ms + request.max_wait_ms,
    )
    differs = disagreement(seat.log, fetch.offset, fetch.last_fetched_epoch)
    if differs is None:
        _acknowledge(seat, seat.role, fetch, now_ms)
        seat.role.parked.append(fetch)
        return
    response = _answer(seat, ErrorCode.NONE, seat.role.high_watermark)
    partition = response.responses[0].partitions[0]
    if isinstance(differs, SnapshotId):
        partition.snapshot_id = SnapshotIdData(end_offset=differs.end_offset, epoch=differs.epoch)
    else:
        partition.diverging_epoch = differs
    seat.reply(token, response)


def leader_only_error(seat: Seat, epoch: int) -> ErrorCode:
    """Why a request that only the leader of this epoch can answer is refused, or NONE."""
    if epoch < seat.epoch:
        return ErrorCode.FENCED_LEADER_EPOCH
    if epoch > seat.epoch:
        return ErrorCode.UNKNOWN_LEADER_EPOCH
    return ErrorCode.NONE if isinstance(seat.role, Leader) else ErrorCode.NOT_LEADER_OR_FOLLOWER


def answer_parked(seat: Seat, role: Leader, now_ms: int) -> None:
    """Whatever the last input was, it may be what somebody waits for."""
    committed = -1 if role.high_watermark is None else role.high_watermark
    parked, role.parked = role.parked, []
    for fetch in parked:
        if fetch.offset < seat.log.end_offset:
            response = _answer(seat, ErrorCode.NONE, role.high_watermark)
            seat.emit(ReplyWithRecords(fetch.token, response, fetch.offset, fetch.max_bytes))
        elif now_ms >= fetch.deadline_ms or fetch.high_watermark < committed:
            seat.reply(fetch.token, _answer(seat, ErrorCode.NONE, role.high_watermark))
        else:
            role.parked.append(fetch)


def disagreement(log: ReplicaLog, offset: int, epoch: int) -> EpochEndOffset | SnapshotId | None:
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


def _acknowledge(seat: Seat, role: Leader, fetch: ParkedFetch, now_ms: int) -> None:
    """What the leader learns of a replica from where it fetches."""
    replica = fetch.replica
    if replica.id < 0 or replica.id == seat.me.id:
        return
    voter = seat.voters.voter_known_as(replica)
    key = replica if voter is None else voter.key
    if voter is None and key not in role.progress:
        _make_room(seat, role)
    progress = role.progress.setdefault(key, Progress())
    end_offset = seat.log.end_offset
    if fetch.offset >= end_offset:
        progress.last_caught_up_ms = now_ms
    elif progress.last_fetch_ms is not None and fetch.offset >= progress.leader_end_at_last_fetch:
        # It has all that there was when it last asked: it is behind by no more than one round.
        progress.last_caught_up_ms = progress.last_fetch_ms
    progress.end_offset = fetch.offset
    progress.last_fetch_ms = now_ms
    progress.leader_end_at_last_fetch = end_offset
    if voter is not None:
        hear_from(seat, role, voter.id, now_ms)


def _make_room(seat: Seat, role: Leader) -> None:
    """For one more observer. Anybody may come with ids that nobody knows; who has been silent longest is forgotten."""
    observers = [key for key in role.progress if seat.voters.voter_known_as(key) is None]
    if len(observers) >= MOST_OBSERVERS:
        del role.progress[min(observers, key=lambda key: role.progress[key].last_fetch_ms or 0)]


def _answer(seat: Seat, error: ErrorCode, high_watermark: int | None = None) -> FetchResponse:
    return fetch_response(
        seat.known_leader, error, high_watermark=high_watermark, log_start_offset=seat.log.start_offset
    )
