"""FindCoordinator (10), versions 0-6. No coordinator lives here yet: every key is told so, with the reason."""

from __future__ import annotations

from strandline.handlers.context import Broker, Call
from strandline.model.errors import ErrorCode
from strandline.protocol.messages.coordinators import (
    Coordinator,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)

_KINDS = {0: "consumer groups are", 1: "transactions are", 2: "share groups are"}


async def handle_find_coordinator(
    broker: Broker, call: Call, request: FindCoordinatorRequest
) -> FindCoordinatorResponse:
    kind = _KINDS.get(request.key_type)
    code = ErrorCode.INVALID_REQUEST if kind is None else ErrorCode.COORDINATOR_NOT_AVAILABLE
    why = f"there is no coordinator type {request.key_type}" if kind is None else f"{kind} not served by this release"
    if call.version < 4:
        return FindCoordinatorResponse(error_code=code, error_message=why, node_id=-1, host="", port=-1)
    return FindCoordinatorResponse(
        coordinators=[
            Coordinator(key=key, node_id=-1, host="", port=-1, error_code=code, error_message=why)
            for key in request.coordinator_keys
        ]
    )
