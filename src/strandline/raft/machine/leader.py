"""What a leader does beside answering: it opens its epoch, counts what is committed, and leaves when it must.

A record is committed when a majority of the voters holds it durably *and* a record of the leader's own epoch is among
what they hold (Raft, section 5.4.2): an epoch's high watermark begins unknown, and never falls. The leader counts
itself with what it has synced, and only while it is a voter. Voters are those at the end of the log, committed or not.
"""

from __future__ import annotations

from collections.abc import Sequence

from strandline.protocol.messages.control_records import (
    KRaftVersionRecord,
    LeaderChangeMessage,
    LeaderChangeMessageVoter,
)
from strandline.raft.machine.announcements import announce_epoch, resign
from strandline.raft.machine.check_quorum import has_lost_majority
from strandline.raft.machine.effects import Flush, Lead
from strandline.raft.machine.majorities import offset_held_by_majority
from strandline.raft.machine.membership import expire_change, on_committed
from strandline.raft.machine.raft_state import RaftState
from strandline.raft.machine.replication import complete_parked_fetches
from strandline.raft.machine.states import Leader
from strandline.raft.machine.values import ControlRecord
from strandline.raft.machine.voters import Voter


def take_leadership(raft: RaftState, epoch: int, granting: Sequence[int], now_ms: int) -> None:
    """Its first record says so in the log, and lets everything before it be committed."""
    voters, kraft_version = raft.voters, raft.log.kraft_version
    raft.become_leader(now_ms, epoch)
    granted = [voter for voter in voters.voters if voter.id in granting]
    # There is a version 1 with directory ids, but Kafka 4.3 neither writes nor reads it.
    records: list[ControlRecord] = [
        LeaderChangeMessage(
            version=0, leader_id=raft.me.id, voters=_named(voters.voters), granting_voters=_named(granted)
        )
    ]
    if kraft_version > 0 and (raft.log.voters_offset < 0 or not voters.describes(raft.me)):
        # So far only formatting has named the voters, or what is said of this one is no longer so.
        voters = voters.with_voter(raft.me)
        records += [KRaftVersionRecord(version=0, kraft_version=kraft_version), voters.record()]
    raft.log.append_control(records, epoch)
    raft.emit(Flush())


def poll_leader(raft: RaftState, role: Leader, now_ms: int) -> None:
    _advance_high_watermark(raft, role)
    if has_lost_majority(raft, role, now_ms) or _is_removed(raft, role):
        resign(raft, role, now_ms)
        return
    expire_change(raft, role, now_ms)
    complete_parked_fetches(raft, role, now_ms)
    if now_ms >= role.announce_at_ms:
        announce_epoch(raft, role, now_ms)
        _forget_observers(raft, role, now_ms)


def _named(voters: Sequence[Voter]) -> list[LeaderChangeMessageVoter]:
    return [LeaderChangeMessageVoter(voter_id=voter.id) for voter in voters]


def _advance_high_watermark(raft: RaftState, role: Leader) -> None:
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


def _is_removed(raft: RaftState, role: Leader) -> bool:
    """It goes on leading until the voters who remain have committed that it is not one of them."""
    return not raft.is_voter and role.high_watermark is not None and role.high_watermark > raft.log.voters_offset


def _forget_observers(raft: RaftState, role: Leader, now_ms: int) -> None:
    gone = [
        key
        for key, progress in role.progress.items()
        if now_ms - (progress.last_fetch_ms or 0) > raft.settings.observer_timeout_ms
        and raft.voters.voter_with_key(key) is None
    ]
    for key in gone:
        del role.progress[key]
