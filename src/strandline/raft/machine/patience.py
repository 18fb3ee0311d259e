"""How long a replica waits before the next election. Chance keeps voters from standing together."""

from __future__ import annotations

from collections.abc import Sequence

from strandline.raft.machine.seat import Seat
from strandline.raft.machine.states import Follower
from strandline.raft.machine.values import FormerLeader
from strandline.raft.machine.voters import ReplicaKey

_BACKOFF_STEP_MS = 100


def soon(seat: Seat, now_ms: int) -> int:
    """When nothing is to be waited for but others who would stand at the same moment."""
    delay_ms = seat.settings.gone_leader_delay_ms << min(seat.failed_elections, 3)
    return now_ms + seat.random.randrange(min(delay_ms, seat.settings.election_backoff_max_ms) + 1)


def contested_election(seat: Seat, now_ms: int) -> int:
    """When an election that may be split is given up: as soon as everybody who is there has surely answered."""
    quarter_ms = seat.settings.election_timeout_ms // 4
    return now_ms + quarter_ms + seat.random.randrange(quarter_ms + 1)


def backoff(seat: Seat, now_ms: int) -> int:
    """After an election that came to nothing: longer each time."""
    seat.failed_elections += 1
    limit_ms = _BACKOFF_STEP_MS * (2 << min(20, seat.failed_elections - 1))
    return now_ms + seat.random.randrange(min(limit_ms, seat.settings.election_backoff_max_ms) + 1)


def trust_leader(seat: Seat, role: Follower, now_ms: int) -> None:
    """The leader has answered: it is there."""
    seat.failed_elections = 0
    seat.former_leader = FormerLeader(seat.quorum.leader_id, seat.epoch, now_ms)
    role.has_fetched = True
    role.is_failing = False
    if not role.leader_has_resigned:
        role.leader_is_gone = False
        role.deadline_ms = seat.fetch_timeout(now_ms)


def excuse_silence(seat: Seat, role: Follower, now_ms: int) -> None:
    """This replica had something to do that kept it from asking: until now the leader had nothing to answer."""
    if not (role.leader_is_gone or role.leader_has_resigned):
        role.deadline_ms = seat.fetch_timeout(now_ms)


def give_up_leader(seat: Seat, role: Follower, now_ms: int) -> None:
    """There is evidence that nobody leads: the leader is neither waited for nor protected from others' elections.

    Silence is no such evidence; for that there is the fetch timeout.
    """
    if not role.leader_is_gone:
        role.leader_is_gone = True
        role.deadline_ms = min(role.deadline_ms, soon(seat, now_ms))


def succession(seat: Seat, successors: Sequence[ReplicaKey], now_ms: int) -> int:
    """When this voter stands for election after its leader resigned and named who should, best first.

    The first at once; each of the others waits twice as long as the one before, the last and everybody else longest.
    """
    longest_ms, count = seat.settings.election_backoff_max_ms, len(successors)
    place = next((i for i, key in enumerate(successors) if seat.me.key.is_known_as(key)), count)
    if place == 0:
        return now_ms
    return now_ms + min(longest_ms, (longest_ms >> max(0, count - 1)) << (place - 1))
