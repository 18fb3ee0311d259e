"""How long a replica waits before the next election. Chance keeps voters from standing together."""

from __future__ import annotations

from collections.abc import Sequence

from strandline.raft.machine.raft_state import RaftState
from strandline.raft.machine.states import Follower
from strandline.raft.machine.values import FormerLeader
from strandline.raft.machine.voters import ReplicaKey

_BACKOFF_STEP_MS = 100


def soon(raft: RaftState, now_ms: int) -> int:
    """When nothing is to be waited for but others who would stand at the same moment."""
    delay_ms = raft.settings.failed_leader_delay_ms << min(raft.failed_elections, 3)
    return now_ms + raft.random.randrange(min(delay_ms, raft.settings.election_backoff_max_ms) + 1)


def split_vote_deadline(raft: RaftState, now_ms: int) -> int:
    """When an election that may be split is given up: as soon as everybody who is there has surely answered."""
    quarter_ms = raft.settings.election_timeout_ms // 4
    return now_ms + quarter_ms + raft.random.randrange(quarter_ms + 1)


def backoff(raft: RaftState, now_ms: int) -> int:
    """After an election that came to nothing: longer each time."""
    raft.failed_elections += 1
    limit_ms = _BACKOFF_STEP_MS * (2 << min(20, raft.failed_elections - 1))
    return now_ms + raft.random.randrange(min(limit_ms, raft.settings.election_backoff_max_ms) + 1)


def on_leader_contact(raft: RaftState, role: Follower, now_ms: int) -> None:
    """The leader has answered: it is there."""
    raft.failed_elections = 0
    raft.former_leader = FormerLeader(raft.quorum.leader_id, raft.epoch, now_ms)
    role.has_fetched = True
    role.is_failing = False
    if not role.leader_has_resigned:
        role.leader_has_failed = False
        role.deadline_ms = raft.fetch_timeout(now_ms)


def restart_fetch_timeout(raft: RaftState, role: Follower, now_ms: int) -> None:
    """This replica had something to do that kept it from asking: until now the leader had nothing to answer."""
    if not (role.leader_has_failed or role.leader_has_resigned):
        role.deadline_ms = raft.fetch_timeout(now_ms)


def on_leader_failed(raft: RaftState, role: Follower, now_ms: int) -> None:
    """There is evidence that nobody leads: the leader is neither waited for nor protected from others' elections.

    Silence is no such evidence; for that there is the fetch timeout.
    """
    if not role.leader_has_failed:
        role.leader_has_failed = True
        role.deadline_ms = min(role.deadline_ms, soon(raft, now_ms))


def succession_deadline(raft: RaftState, successors: Sequence[ReplicaKey], now_ms: int) -> int:
    """When this voter stands for election after its leader resigned and named who should, best first.

    The first at once; each of the others waits twice as long as the one before, the last and everybody else longest.
    """
    longest_ms, count = raft.settings.election_backoff_max_ms, len(successors)
    place = next((i for i, key in enumerate(successors) if raft.me.key.matches(key)), count)
    if place == 0:
        return now_ms
    return now_ms + min(longest_ms, (longest_ms >> max(0, count - 1)) << (place - 1))
