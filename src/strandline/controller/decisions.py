"""The shape of every decision: an answer, and the records that make it true.

A machine of this package looks at the latest view, decides, and returns a `Decision`; it does not change the view. The
shell (`controller.events`) replays the records, so that the next decision sees them and nothing is written that cannot
be replayed, appends them, and gives the answer when they are committed.

A decision that may take long is a generator: it yields where the event loop may breathe and returns its Decision. No
other decision is made meanwhile, so a machine may trust across a yield what it saw before it.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Final, Generic, TypeVar

import msgspec

from strandline.model.errors import ErrorCode, KafkaError
from strandline.protocol.types import Message

A = TypeVar("A")

# One atomic batch holds at most this many records; what a user asks for beyond it is refused.
MAX_RECORDS_PER_DECISION: Final = 10_000
# About a millisecond of work for the heaviest decision (placing a partition and writing its record).
STEPS_PER_YIELD: Final = 200


class Decision(msgspec.Struct, Generic[A]):
    answer: A
    records: list[Message] = msgspec.field(default_factory=list)
    atomic: bool = True
    """False: the records may be appended in several batches, each of which makes sense alone (many leader changes)."""
    appended: Callable[[int], None] | None = None
    """Told the offset of the last record that is in the log, once these are."""


Steps = Generator[None, None, Decision[A]]


def finish(steps: Steps[A]) -> Decision[A]:
    """Runs a long decision to its end at once (for those who have no loop to let breathe)."""
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
            "request may write; ask for it in smaller portions",
        )
