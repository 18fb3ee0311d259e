"""A leader that no majority fetches from any more stops leading: it could commit nothing, and somebody else may lead.

Fetches show that voters still follow. The leader notes who has fetched, and whenever they are a majority, counting
itself, the watch begins anew. A leader that needs nobody else is never overdue.
"""

from __future__ import annotations

from strandline.raft.machine.majorities import majority
from strandline.raft.machine.raft_state import RaftState
from strandline.raft.machine.states import Leader


def record_contact(raft: RaftState, role: Leader, voter_id: int, now_ms: int) -> None:
    """A voter has fetched, or otherwise shown that it follows."""
    if voter_id != raft.me.id:
        role.heard_from[voter_id] = None
    heard = [voter for voter in raft.other_voters if voter.id in role.heard_from]
    if len(heard) >= _needed(raft):
        role.heard_from.clear()
        role.check_quorum_at_ms = now_ms + raft.settings.check_quorum_timeout_ms


def has_lost_majority(raft: RaftState, role: Leader, now_ms: int) -> bool:
    if _needed(raft) == 0:
        role.check_quorum_at_ms = None
        return False
    if role.check_quorum_at_ms is None:
        role.check_quorum_at_ms = now_ms + raft.settings.check_quorum_timeout_ms
    return now_ms >= role.check_quorum_at_ms


def _needed(raft: RaftState) -> int:
    """How many others make a majority."""
    return majority(len(raft.voters)) - (1 if raft.is_voter else 0)
