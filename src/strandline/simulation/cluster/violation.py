"""What a checker raises: an invariant by the name it has among the project's promises, and how it was broken."""

from __future__ import annotations


class Violation(Exception):
    """`invariant`: I-1 … I-11, "history", "liveness", or "error" where a program failed in a way nobody foresaw."""

    def __init__(self, invariant: str, why: str) -> None:
        super().__init__(invariant, why)
        self.invariant = invariant
        self.why = why

    def __str__(self) -> str:
        return f"{self.invariant}: {self.why}"

    def bare(self) -> Violation:
        """Without what caused it, which may not fit through a pipe between processes."""
        return Violation(self.invariant, self.why)
