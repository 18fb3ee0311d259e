"""A leader that no majority fetches from any more stops leading: it could commit nothing, and somebody else may lead.

Fetches show that voters still follow. The leader notes who has fetched, and whenever they are a majority, counting
itself, the watch begins anew. A leader that needs nobody else is never overdue.
"""

from __future__ import annotations

from strandline.raft.machine.majorities import majority
from strandline.raft.machine.seat import Seat
from strandline.raft.machine.states import Leader


def hear_from(seat: Seat, role: Leader, voter_id: int, now_ms: int) -> None:
    """A voter has fetched, or otherwise shown that it follows."""
    if voter_id != seat.me.id:
        role.heard_from[voter_id] = None
    heard = [voter for voter in seat.other_voters if voter.id in role.heard_from]
    if len(heard) >= _needed(seat):
        role.heard_from.clear()
        role.check_quorum_at_ms = now_ms + seat.settings.check_quorum_timeout_ms


def is_overdue(seat: Seat, role: Leader, now_ms: int) -> bool:
    if _needed(seat) == 0:
        role.check_quorum_at_ms = None
        return False
    if role.check_quorum_at_ms is None:
        role.check_quorum_at_ms = now_ms + seat.settings.check_quorum_timeout_ms
    return now_ms >= role.check_quorum_at_ms


def _needed(seat: Seat) -> int:
    """How many others make a majority."""
    return majority(len(seat.voters)) - (1 if seat.is_voter else 0)
