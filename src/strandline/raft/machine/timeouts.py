"""Timeouts of the quorum: when a voter starts an election, when a follower no longer waits for its leader, and when a
leader has lost contact with the majority (check quorum). Random delays keep voters from starting at the same moment.
"""

from __future__ import annotations

from collections.abc import Sequence

from strandline.raft.machine.majorities import majority
from strandline.raft.machine.raft_state import RaftState
from strandline.raft.machine.states import Follower, Leader
from strandline.raft.machine.values import FormerLeader
from strandline.raft.machine.voters import ReplicaKey

_BACKOFF_STEP_MS = 100


def short_election_delay(raft: RaftState, now_ms: int) -> int:
    """A random delay before an election without a leader to wait for: it only avoids simultaneous candidates."""
    delay_ms = raft.settings.failed_leader_delay_ms << min(raft.failed_elections, 3)
    return now_ms + raft.random.randrange(min(delay_ms, raft.settings.election_backoff_max_ms) + 1)


def split_vote_deadline(raft: RaftState, now_ms: int) -> int:
    """The end of an election whose vote may be split: late enough for every live voter to have responded."""
    quarter_ms = raft.settings.election_timeout_ms // 4
    return now_ms + quarter_ms + raft.random.randrange(quarter_ms + 1)


def election_backoff(raft: RaftState, now_ms: int) -> int:
    """The backoff after a lost election: longer each time."""
    raft.failed_elections += 1
    limit_ms = _BACKOFF_STEP_MS * (2 << min(20, raft.failed_elections - 1))
    return now_ms + raft.random.randrange(min(limit_ms, raft.settings.election_backoff_max_ms) + 1)


def succession_deadline(raft: RaftState, successors: Sequence[ReplicaKey], now_ms: int) -> int:
    """The start of this voter's election after its leader resigned and named its preferred successors, best first.

    The first starts at once; each of the others waits twice as long as the one before, the last and all voters that are
    not named wait longest."""
    longest_ms, count = raft.settings.election_backoff_max_ms, len(successors)
    place = next((i for i, key in enumerate(successors) if raft.me.key.matches(key)), count)
    if place == 0:
        return now_ms
    return now_ms + min(longest_ms, (longest_ms >> max(0, count - 1)) << (place - 1))


def on_leader_contact(raft: RaftState, role: Follower, now_ms: int) -> None:
    """The leader has responded."""
    raft.failed_elections = 0
    raft.former_leader = FormerLeader(raft.quorum.leader_id, raft.epoch, now_ms)
    role.has_fetched = True
    role.is_failing = False
    if not role.leader_has_resigned:
        role.leader_has_failed = False
        role.deadline_ms = raft.fetch_timeout(now_ms)


def restart_fetch_timeout(raft: RaftState, role: Follower, now_ms: int) -> None:
    """Restarts the timeout after this replica was busy and has sent no fetch: the leader had nothing to respond to."""
    if not (role.leader_has_failed or role.leader_has_resigned):
        role.deadline_ms = raft.fetch_timeout(now_ms)


def on_leader_failed(raft: RaftState, role: Follower, now_ms: int) -> None:
    """Called on evidence that the leader has failed: an election starts soon, and pre-votes of others are granted.

    A missing response is no such evidence; that is what the fetch timeout is for."""
    if not role.leader_has_failed:
        role.leader_has_failed = True
        role.deadline_ms = min(role.deadline_ms, short_election_delay(raft, now_ms))


def record_contact(raft: RaftState, role: Leader, voter_id: int, now_ms: int) -> None:
    """A voter has fetched, or otherwise shown that it follows this leader. Once a majority has (the leader counts
    itself), the check-quorum timeout starts again."""
    if voter_id != raft.me.id:
        role.contacts[voter_id] = None
    contacts = [voter for voter in raft.other_voters if voter.id in role.contacts]
    if len(contacts) >= _needed_contacts(raft):
        role.contacts.clear()
        role.check_quorum_at_ms = now_ms + raft.settings.check_quorum_timeout_ms


def has_lost_majority(raft: RaftState, role: Leader, now_ms: int) -> bool:
    """Check quorum: a leader that no majority fetches from could commit nothing, and another may have been elected. A
    sole voter never loses its majority."""
    if _needed_contacts(raft) == 0:
        role.check_quorum_at_ms = None
        return False
    if role.check_quorum_at_ms is None:
        role.check_quorum_at_ms = now_ms + raft.settings.check_quorum_timeout_ms
    return now_ms >= role.check_quorum_at_ms


def _needed_contacts(raft: RaftState) -> int:
    """How many other voters make a majority together with this leader."""
    return majority(len(raft.voters)) - (1 if raft.is_voter else 0)
