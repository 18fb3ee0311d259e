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
from strandline.raft.machine.check_quorum import is_overdue
from strandline.raft.machine.effects import Flush, Lead
from strandline.raft.machine.majorities import offset_held_by_majority
from strandline.raft.machine.membership import expire_change, on_committed
from strandline.raft.machine.replication import answer_parked
from strandline.raft.machine.seat import Seat
from strandline.raft.machine.states import Leader
from strandline.raft.machine.values import ControlRecord
from strandline.raft.machine.voters import Voter


def take_the_lead(seat: Seat, epoch: int, granting: Sequence[int], now_ms: int) -> None:
    """Its first record says so in the log, and lets everything before it be committed."""
    voters, kraft_version = seat.voters, seat.log.kraft_version
    seat.become_leader(now_ms, epoch)
    granted = [voter for voter in voters.voters if voter.id in granting]
    # There is a version 1 with directory ids, but Kafka 4.3 neither writes nor reads it.
    records: list[ControlRecord] = [
        LeaderChangeMessage(
            version=0, leader_id=seat.me.id, voters=_named(voters.voters), granting_voters=_named(granted)
        )
    ]
    if kraft_version > 0 and (seat.log.voters_offset < 0 or not voters.is_true_of(seat.me)):
        # So far only formatting has named the voters, or what is said of this one is no longer so.
        voters = voters.with_voter(seat.me)
        records += [KRaftVersionRecord(version=0, kraft_version=kraft_version), voters.record()]
    seat.log.append_control(records, epoch)
    seat.emit(Flush())


def pursue_leader(seat: Seat, role: Leader, now_ms: int) -> None:
    _advance_high_watermark(seat, role)
    if is_overdue(seat, role, now_ms) or _is_removed(seat, role):
        resign(seat, role, now_ms)
        return
    expire_change(seat, role, now_ms)
    answer_parked(seat, role, now_ms)
    if now_ms >= role.announce_at_ms:
        announce_epoch(seat, role, now_ms)
        _forget_observers(seat, role, now_ms)


def _named(voters: Sequence[Voter]) -> list[LeaderChangeMessageVoter]:
    return [LeaderChangeMessageVoter(voter_id=voter.id) for voter in voters]


def _advance_high_watermark(seat: Seat, role: Leader) -> None:
    ends = [
        seat.flushed_offset if seat.me.key.is_known_as(voter.key) else role.progress_of(voter.key).end_offset
        for voter in seat.voters.voters
    ]
    offset = offset_held_by_majority(ends)
    known = role.high_watermark
    if offset <= role.epoch_start or (known is not None and offset <= known):
        return
    role.high_watermark = offset
    seat.commit(offset)
    if known is None:
        seat.emit(Lead(seat.epoch))
    on_committed(seat, role)


def _is_removed(seat: Seat, role: Leader) -> bool:
    """It goes on leading until the voters who remain have committed that it is not one of them."""
    return not seat.is_voter and role.high_watermark is not None and role.high_watermark > seat.log.voters_offset


def _forget_observers(seat: Seat, role: Leader, now_ms: int) -> None:
    gone = [
        key
        for key, progress in role.progress.items()
        if now_ms - (progress.last_fetch_ms or 0) > seat.settings.observer_timeout_ms
        and seat.voters.voter_known_as(key) is None
    ]
    for key in gone:
        del role.progress[key]
