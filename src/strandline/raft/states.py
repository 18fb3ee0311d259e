"""The states of a replica within an epoch, and which may follow which.

    from \\ to      Unattached  Prospective  Candidate  Follower  Leader  Resigned
    Unattached         1            2            -          3        4        -
    Prospective        1            -            5          3        -        -
    Candidate          1            6            -          3        7        -
    Follower           1            2            -          3        -        -
    Leader             1            -            -          3        -        8
    Resigned           1            2            -          3        -        -

    1  a higher epoch is heard of, or a vote is given, or (Prospective) the others would not vote for it
    2  its patience is over: an election timeout, or nothing fetched for too long; only voters stand for election
    3  a leader is heard of: in a higher epoch, or in this one when none was known or it was given up too early
    4  the only voter needs nobody's vote
    5  a majority would vote for it: the epoch rises, and it votes for itself
    6  it did not win in time, or cannot win any more
    7  a majority has voted for it
    8  it is told to, or has not heard from a majority for too long, or is no longer a voter

Epoch, leader and vote are not in here: they survive a restart (`QuorumState`), and belong to the `Seat`. What a state
holds is forgotten when it is left. Observers are Unattached or Followers, and never stand for election.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class Unattached:
    """Knows the epoch, but no leader that it could fetch from."""

    deadline_ms: int | None
    """When it stands for election; None for observers, which look for a leader meanwhile."""


Role = Unattached
