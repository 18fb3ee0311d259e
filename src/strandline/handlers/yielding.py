"""Requests that name thousands of things, in turns: between two of them the event loop serves others.

    turns = YieldCounter(call)
    for one in many:
        if turns.over():
            await yield_to_loop()

An answer that took many turns to make would take long to encode too, so it is marked to be encoded elsewhere.
"""

from __future__ import annotations

from strandline.handlers.context import Call

ITEMS_PER_YIELD = 200  # about a millisecond of lookups and answers
BULKY_YIELDS = 10


class YieldCounter:
    __slots__ = ("_call", "_left", "_taken")

    def __init__(self, call: Call) -> None:
        self._call = call
        self._left = ITEMS_PER_YIELD
        self._taken = 0

    def over(self, items: int = 1) -> bool:
        """Counts what is about to be done, and says whether others are to be let in before."""
        self._left -= items
        if self._left >= 0:
            return False
        self._left = ITEMS_PER_YIELD
        self._taken += 1
        if self._taken >= BULKY_YIELDS:
            self._call.offload_encoding = True
        return True
