"""The shape of every decision: a response, and the records that make it true.

A machine of this package reads the latest view, decides, and returns a `Decision`; it does not change the view. The
event queue (`controller.events`) replays the records, so that the next decision sees them and nothing is written that
cannot be replayed, appends them, and gives the response when they are committed.

A decision that may take long is a generator: it yields where the event loop may run other tasks, and returns its
Decision. No other decision is made in between, so what a machine read before a yield still holds after it.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Final, Generic, TypeVar

import msgspec

from strandline.model.errors import ErrorCode, KafkaError
from strandline.protocol.types import Message

A = TypeVar("A")

# One atomic batch holds at most this many records; a request that needs more is rejected.
MAX_RECORDS_PER_DECISION: Final = 10_000
# About a millisecond of work for the most expensive step (placing a partition and building its record).
STEPS_PER_YIELD: Final = 200


class Decision(msgspec.Struct, Generic[A]):
    response: A
    records: list[Message] = msgspec.field(default_factory=list)
    atomic: bool = True
    """False: the records may be appended in several batches, each of which is valid alone (many leader changes)."""
    on_appended: Callable[[int], None] | None = None
    """Called when the records are in the log, with the offset of the last of them."""


Steps = Generator[None, None, Decision[A]]


def finish(steps: Steps[A]) -> Decision[A]:
    """Runs a long decision to its end without yielding."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            return end.value  # type: ignore[no-any-return]


def check_size(records: int) -> None:
    if records > MAX_RECORDS_PER_DECISION:
        raise KafkaError(
            ErrorCode.POLICY_VIOLATION,
            f"this needs {records} metadata records at once, more than the {MAX_RECORDS_PER_DECISION} that one "
            "request may write; split it into smaller requests",
        )
