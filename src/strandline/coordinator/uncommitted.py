"""A decision of a shard whose records are not committed yet, and the request that waits for them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Final

import msgspec

from strandline.coordinator.decision import Completion, Decision, Now
from strandline.model.errors import ErrorCode, KafkaError

PARKED: Final = object()
"""In place of a response: the request is answered by a later decision."""


class UncommittedDecision(msgspec.Struct):
    """A decision whose records are not committed yet."""

    response: Any
    future: asyncio.Future[Any] | None
    completed: list[Completion] = []
    effects: list[object] = []
    error: KafkaError | None = None
    too_large: ErrorCode = ErrorCode.UNKNOWN_SERVER_ERROR
    on_committed: Callable[[Now], Decision[None]] | None = None
    on_append_failed: Callable[[ErrorCode, Now], Decision[None]] | None = None


def uncommitted(decision: Decision[Any], future: asyncio.Future[Any] | None) -> UncommittedDecision:
    return UncommittedDecision(
        PARKED if decision.response is None else decision.response,
        future,
        decision.completed,
        decision.effects,
        decision.error,
        decision.too_large,
        decision.on_committed,
        decision.on_append_failed,
    )
