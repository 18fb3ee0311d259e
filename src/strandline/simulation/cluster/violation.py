"""The exception that checkers raise: the name of the violated invariant (docs/simulation.md) and what happened."""

from __future__ import annotations


class Violation(Exception):
    """`invariant`: I-1 … I-11, "history", "liveness", a name from record_history.py, or "error" for unexpected
    errors."""

    def __init__(self, invariant: str, why: str) -> None:
        super().__init__(invariant, why)
        self.invariant = invariant
        self.why = why

    def __str__(self) -> str:
        return f"{self.invariant}: {self.why}"

    def bare(self) -> Violation:
        """This violation without its cause, which may not be picklable."""
        return Violation(self.invariant, self.why)
