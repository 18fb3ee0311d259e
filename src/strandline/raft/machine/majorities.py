"""The arithmetic of majorities: any two of them share a voter, and that is all that Raft's safety rests on."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec


def majority(voters: int) -> int:
    """How many of so many voters are enough."""
    return voters // 2 + 1


def offset_held_by_majority(end_offsets: Sequence[int]) -> int:
    """Of the voters' log ends: the highest that a majority has reached."""
    return sorted(end_offsets, reverse=True)[len(end_offsets) // 2]


class Tally(msgspec.Struct):
    """The votes of one ballot, by voter id."""

    voters: tuple[int, ...]
    answers: dict[int, bool] = msgspec.field(default_factory=dict)

    def count(self, voter_id: int, *, granted: bool) -> None:
        """A voter's first answer stands; somebody who is no voter is not counted."""
        if voter_id in self.voters:
            self.answers.setdefault(voter_id, granted)

    def ask_again(self, voter_id: int) -> None:
        """A voter that refused may have changed its mind."""
        if self.answers.get(voter_id) is False:
            del self.answers[voter_id]

    @property
    def granting(self) -> list[int]:
        return [voter for voter in self.voters if self.answers.get(voter)]

    @property
    def unanswered(self) -> list[int]:
        return [voter for voter in self.voters if voter not in self.answers]

    @property
    def is_won(self) -> bool:
        return len(self.granting) >= majority(len(self.voters))

    @property
    def is_lost(self) -> bool:
        """Not even everybody who has yet to answer would make it a majority."""
        return len(self.granting) + len(self.unanswered) < majority(len(self.voters))
