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
from strandline.raft.machine.answers import fetch_response_partition, response_status
from strandline.raft.machine.effects import Flush, Send, Truncate
from strandline.raft.machine.joining import update_own_voter
from strandline.raft.machine.observed_leader import observe_and_check_epoch
from strandline.raft.machine.raft_state import RaftState
from strandline.raft.machine.requests import fetch_partition, fetch_request
from strandline.raft.machine.snapshot import begin_snapshot, poll_snapshot
from strandline.raft.machine.states import Follower
from strandline.raft.machine.timeouts import on_leader_contact, on_leader_failed
from strandline.raft.machine.values import NO_NODE, SnapshotId
from strandline.records.batch import CorruptBatch
from strandline.runtime.disk import Buffer
from strandline.runtime.file_slice import FileSlice

logger = logging.getLogger(__name__)


def poll_follower(raft: RaftState, role: Follower, now_ms: int) -> None:
    if raft.is_truncating:
        # The end of the log is being given up: until that is done, nobody is to be told where it ends.
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
    """Anybody who may know who leads: bootstrap servers, voters, the leader that was.

    Those who stand for election have asked the voters already.
    """
    voters = {at: voter.id for voter in raft.voters.voters if (at := voter.endpoint_for(raft.listener_name))}
    known = {**dict.fromkeys(raft.bootstrap, NO_NODE), **voters}
    if raft.leader_endpoint is not None:
        known[raft.leader_endpoint] = raft.quorum.leader_id
    passed_over = [at for _, at in raft.me.listeners] + (list(voters) if raft.may_be_candidate else [])
    free = [at for at in known if at not in passed_over and raft.in_flight.is_free(at, now_ms)]
    if free:
        endpoint = raft.random.choice(free)
        _fetch(raft, known[endpoint], endpoint, now_ms)


def on_fetch_response(raft: RaftState, send: Send, response: FetchResponse, now_ms: int) -> bool:
    """Whether it was of use; otherwise that address rests a little."""
    heard, fetched = response_status(response), fetch_response_partition(response)
    if heard is None or fetched is None:
        return False
    asked_as = raft.role
    concerns = observe_and_check_epoch(raft, heard.leader, now_ms, from_leader=heard.error is ErrorCode.NONE)
    role = raft.role
    if not concerns or not isinstance(role, Follower):
        return role is not asked_as
    if heard.error is not ErrorCode.NONE:
        if heard.error is ErrorCode.NOT_LEADER_OR_FOLLOWER and send.endpoint == raft.leader_endpoint:
            # The leader itself says so: it resigned, or was restarted, and will not lead this epoch again.
            on_leader_failed(raft, role, now_ms)
        return role is not asked_as
    assert isinstance(send.request, FetchRequest)
    asked = fetch_partition(send.request)
    if asked is None or (asked.fetch_offset, asked.last_fetched_epoch) != (raft.log.end_offset, raft.log.last_epoch):
        return True
    return _take(raft, role, asked.fetch_offset, fetched, now_ms)


def on_fetch_failed(raft: RaftState, send: Send, refused: bool, now_ms: int) -> None:
    if not isinstance(raft.role, Follower):
        return
    raft.role.is_failing = True
    if refused and send.endpoint == raft.leader_endpoint:
        on_leader_failed(raft, raft.role, now_ms)


def _fetch(raft: RaftState, to: int, endpoint: Endpoint, now_ms: int) -> None:
    may_ask = not raft.is_truncating and raft.in_flight.is_quiet and raft.in_flight.is_free(endpoint, now_ms)
    is_synced = raft.flushed_offset >= raft.log.end_offset
    if not may_ask or (raft.is_controller and not is_synced):
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


def _take(raft: RaftState, role: Follower, offset: int, fetched: PartitionData, now_ms: int) -> bool:
    """What the leader answered to a fetch from `offset`, the end of this log."""
    on_leader_contact(raft, role, now_ms)
    if fetched.diverging_epoch.end_offset >= 0:
        return _cut(raft, fetched.diverging_epoch.epoch, fetched.diverging_epoch.end_offset)
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
    """Whether all of it fits; what does not is fetched again."""
    if isinstance(records, FileSlice):
        raise NodeFault("fetched records came as a file of our own")
    try:
        raft.log.append_as_follower(records)
    except (CorruptBatch, KafkaError) as error:
        if not isinstance(error, KafkaError) or error.code is not ErrorCode.KAFKA_STORAGE_ERROR:
            logger.warning("what node %d sent does not fit and is fetched again: %s", raft.quorum.leader_id, error)
        # Of a disk that is full its log tells once; it is tried again until there is room.
        return False
    finally:
        if raft.log.end_offset > raft.flushed_offset:
            raft.emit(Flush())
    return True


def _cut(raft: RaftState, epoch: int, end_offset: int) -> bool:
    """The leader's log has nothing of our last epoch, or less: up to `end_offset` in `epoch` both may agree."""
    own_epoch, own_end = raft.log.end_offset_for_epoch(epoch)
    offset = min(own_end, end_offset) if own_epoch == epoch else own_end
    if raft.high_watermark is not None and offset < raft.high_watermark:
        raise NodeFault(
            f"the leader {raft.quorum.leader_id} of epoch {raft.epoch} would have this log cut to offset {offset}, "
            f"but it is committed up to {raft.high_watermark}"
        )
    if offset >= raft.log.end_offset:
        return False
    raft.flushed_offset = min(raft.flushed_offset, offset)
    raft.is_truncating = True
    raft.emit(Truncate(offset))
    return True
