"""What a machine returns: a response, the records that make it true, and parked requests that can be answered now.

The shard replays the records at once, so that the next decision sees them, appends them, and sends the responses when
they are committed. A request whose response depends on other members (JoinGroup, SyncGroup) is parked: the machine
keeps its `Token` and names it in `completed` of a later decision.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, NewType, TypeVar

import msgspec

from strandline.coordinator.records import CoordinatorRecord
from strandline.model.errors import ErrorCode
from strandline.protocol.types import Message

R = TypeVar("R")

Token = NewType("Token", int)
"""Names a parked request. Opaque to the machine; the shard knows which caller waits."""


class Completion(msgspec.Struct, frozen=True):
    token: Token
    response: Message


class Decision(msgspec.Struct, Generic[R]):
    response: R
    """None: the request is parked under the token that it came with."""
    records: list[CoordinatorRecord] = msgspec.field(default_factory=list)
    completed: list[Completion] = msgspec.field(default_factory=list)
    """Parked requests that are answered when the records are committed."""
    on_append_failed: Callable[[ErrorCode], Decision[None]] | None = None
    """Corrects state that is not replicated when the records could not be appended; replicated state is reverted by the
    shard. The code is the one that the requests are answered with."""
