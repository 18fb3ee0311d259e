"""The arithmetic of majorities: any two of them share a voter, which is what Raft's safety rests on."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec


def majority(voters: int) -> int:
    """The number of voters that make a majority."""
    return voters // 2 + 1


def offset_held_by_majority(end_offsets: Sequence[int]) -> int:
    """The highest offset that the logs of a majority have reached."""
    return sorted(end_offsets, reverse=True)[len(end_offsets) // 2]


class Tally(msgspec.Struct):
    """The votes of one election, by voter id."""

    voters: tuple[int, ...]
    votes: dict[int, bool] = msgspec.field(default_factory=dict)

    def count(self, voter_id: int, *, granted: bool) -> None:
        """The first response of a voter counts; responses of other replicas do not."""
        if voter_id in self.voters:
            self.votes.setdefault(voter_id, granted)

    def retry(self, voter_id: int) -> None:
        """A voter that rejected may grant its vote now."""
        if self.votes.get(voter_id) is False:
            del self.votes[voter_id]

    @property
    def granting(self) -> list[int]:
        return [voter for voter in self.voters if self.votes.get(voter)]

    @property
    def unanswered(self) -> list[int]:
        return [voter for voter in self.voters if voter not in self.votes]

    @property
    def is_won(self) -> bool:
        return len(self.granting) >= majority(len(self.voters))

    @property
    def is_lost(self) -> bool:
        """Even with the votes of all voters that have not responded it would be no majority."""
        return len(self.granting) + len(self.unanswered) < majority(len(self.voters))
