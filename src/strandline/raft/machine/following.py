"""The follower's side of Fetch, and how somebody without a leader finds one.

One fetch is under way at a time, whatever else the leader is asked. Since a fetch acknowledges everything before it, a
controller asks for more only when what it has is synced, whether or not it votes: an observer may become a voter, and
then what it said counts. Brokers need not wait.

The log is cut where the leader's differs from it, never below the high watermark: that would undo what is committed.

Voters learn of a leader from itself or from each other's answers. Observers ask around, at any controller they know of;
whoever is asked names the leader.
"""

from __future__ import annotations

import logging

from strandline.model.errors import ErrorCode, KafkaError, NodeFault
from strandline.model.ids import Endpoint
from strandline.protocol.messages.fetch import FetchRequest, FetchResponse, PartitionData
from strandline.raft.machine.answers import heard_in, the_fetched
from strandline.raft.machine.effects import Flush, Send, Truncate
from strandline.raft.machine.hearing import still_concerns
from strandline.raft.machine.joining import keep_voters_true
from strandline.raft.machine.patience import give_up_leader, trust_leader
from strandline.raft.machine.requests import fetch_request, the_fetch
from strandline.raft.machine.seat import Seat
from strandline.raft.machine.snapshot_transfer import begin_snapshot, pursue_snapshot
from strandline.raft.machine.states import Follower
from strandline.raft.machine.values import NOBODY, SnapshotId
from strandline.records.batch import CorruptBatch
from strandline.runtime.disk import Buffer
from strandline.runtime.slices import FileSlice

logger = logging.getLogger(__name__)


def pursue_follower(seat: Seat, role: Follower, now_ms: int) -> None:
    if seat.is_being_cut:
        # The end of the log is being given up: until that is done, nobody is to be told where it ends.
        return
    if now_ms >= role.deadline_ms:
        if seat.may_stand:
            seat.become_prospective(now_ms)
        else:
            if role.leader_is_gone or role.leader_has_resigned:
                seat.given_up_epoch = seat.epoch
            seat.become_unattached(seat.epoch, now_ms)
    elif role.snapshot is not None:
        pursue_snapshot(seat, role.snapshot, now_ms)
    elif role.is_failing and not seat.is_voter:
        ask_around(seat, now_ms)
    elif seat.leader_endpoint is not None:
        keep_voters_true(seat, role, now_ms)
        _fetch(seat, seat.quorum.leader_id, seat.leader_endpoint, now_ms)


def ask_around(seat: Seat, now_ms: int) -> None:
    """Anybody who may know who leads: bootstrap servers, voters, the leader that was.

    Those who stand for election have asked the voters already.
    """
    voters = {at: voter.id for voter in seat.voters.voters if (at := voter.endpoint_for(seat.listener_name))}
    known = {**dict.fromkeys(seat.bootstrap, NOBODY), **voters}
    if seat.leader_endpoint is not None:
        known[seat.leader_endpoint] = seat.quorum.leader_id
    passed_over = [at for _, at in seat.me.listeners] + (list(voters) if seat.may_stand else [])
    free = [at for at in known if at not in passed_over and seat.mail.is_free(at, now_ms)]
    if free:
        endpoint = seat.random.choice(free)
        _fetch(seat, known[endpoint], endpoint, now_ms)


def on_fetch_response(seat: Seat, send: Send, response: FetchResponse, now_ms: int) -> bool:
    """Whether it was of use; otherwise that address rests a little."""
    heard, fetched = heard_in(response), the_fetched(response)
    if heard is None or fetched is None:
        return False
    asked_as = seat.role
    concerns = still_concerns(seat, heard.leader, now_ms, from_leader=heard.error is ErrorCode.NONE)
    role = seat.role
    if not concerns or not isinstance(role, Follower):
        return role is not asked_as
    if heard.error is not ErrorCode.NONE:
        if heard.error is ErrorCode.NOT_LEADER_OR_FOLLOWER and send.endpoint == seat.leader_endpoint:
            # The leader itself says so: it resigned, or was restarted, and will not lead this epoch again.
            give_up_leader(seat, role, now_ms)
        return role is not asked_as
    assert isinstance(send.request, FetchRequest)
    asked = the_fetch(send.request)
    if asked is None or (asked.fetch_offset, asked.last_fetched_epoch) != (seat.log.end_offset, seat.log.last_epoch):
        return True
    return _take(seat, role, asked.fetch_offset, fetched, now_ms)


def on_fetch_failed(seat: Seat, send: Send, refused: bool, now_ms: int) -> None:
    if not isinstance(seat.role, Follower):
        return
    seat.role.is_failing = True
    if refused and send.endpoint == seat.leader_endpoint:
        give_up_leader(seat, seat.role, now_ms)


def _fetch(seat: Seat, to: int, endpoint: Endpoint, now_ms: int) -> None:
    may_ask = not seat.is_being_cut and seat.mail.is_quiet and seat.mail.is_free(endpoint, now_ms)
    is_synced = seat.flushed_offset >= seat.log.end_offset
    if not may_ask or (seat.is_controller and not is_synced):
        return
    request = fetch_request(
        seat.cluster_id,
        seat.me.key,
        epoch=seat.epoch,
        end_offset=seat.log.end_offset,
        last_epoch=seat.log.last_epoch,
        high_watermark=seat.high_watermark,
        max_wait_ms=seat.settings.fetch_wait_ms,
        max_bytes=seat.settings.fetch_max_bytes,
    )
    seat.send(to, endpoint, request, now_ms)


def _take(seat: Seat, role: Follower, offset: int, fetched: PartitionData, now_ms: int) -> bool:
    """What the leader answered to a fetch from `offset`, the end of this log."""
    trust_leader(seat, role, now_ms)
    if fetched.diverging_epoch.end_offset >= 0:
        return _cut(seat, fetched.diverging_epoch.epoch, fetched.diverging_epoch.end_offset)
    if fetched.snapshot_id.end_offset >= 0:
        begin_snapshot(seat, role, SnapshotId(fetched.snapshot_id.end_offset, fetched.snapshot_id.epoch))
        return True
    if fetched.records and not _append(seat, fetched.records):
        return False
    if fetched.high_watermark >= 0:
        seat.commit(min(fetched.high_watermark, seat.log.end_offset))
        role.has_caught_up = role.has_caught_up or offset >= fetched.high_watermark
    return True


def _append(seat: Seat, records: Buffer | FileSlice) -> bool:
    """Whether all of it fits; what does not is fetched again."""
    if isinstance(records, FileSlice):
        raise NodeFault("fetched records came as a file of our own")
    try:
        seat.log.append_fetched(records)
    except (CorruptBatch, KafkaError) as error:
        if not isinstance(error, KafkaError) or error.code is not ErrorCode.KAFKA_STORAGE_ERROR:
            logger.warning("what node %d sent does not fit and is fetched again: %s", seat.quorum.leader_id, error)
        # Of a disk that is full its log tells once; it is tried again until there is room.
        return False
    finally:
        if seat.log.end_offset > seat.flushed_offset:
            seat.emit(Flush())
    return True


def _cut(seat: Seat, epoch: int, end_offset: int) -> bool:
    """The leader's log has nothing of our last epoch, or less: up to `end_offset` in `epoch` both may agree."""
    own_epoch, own_end = seat.log.end_offset_for_epoch(epoch)
    offset = min(own_end, end_offset) if own_epoch == epoch else own_end
    if seat.high_watermark is not None and offset < seat.high_watermark:
        raise NodeFault(
            f"the leader {seat.quorum.leader_id} of epoch {seat.epoch} would have this log cut to offset {offset}, "
            f"but it is committed up to {seat.high_watermark}"
        )
    if offset >= seat.log.end_offset:
        return False
    seat.flushed_offset = min(seat.flushed_offset, offset)
    seat.is_being_cut = True
    seat.emit(Truncate(offset))
    return True
