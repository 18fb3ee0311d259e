"""FindCoordinator (10), versions 0-6. There are no coordinators yet: COORDINATOR_NOT_AVAILABLE for every key, with the
reason."""

from __future__ import annotations

from strandline.handlers.context import BrokerContext, Call
from strandline.model.errors import ErrorCode
from strandline.protocol.messages.coordinators import (
    Coordinator,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)
from strandline.runtime.tasks import YieldCounter, yield_to_loop

_KINDS = {0: "consumer groups are", 1: "transactions are", 2: "share groups are"}
_SHARE_PARTITION = 2
_FIRST_VERSION_WITH_SHARES = 6


async def handle_find_coordinator(
    broker: BrokerContext, call: Call, request: FindCoordinatorRequest
) -> FindCoordinatorResponse:
    if call.version < 4:
        code, why = _error(call, request.key_type, request.key)
        return FindCoordinatorResponse(error_code=code, error_message=why, node_id=-1, host="", port=-1)
    coordinators = []
    yields = YieldCounter(call)
    for key in request.coordinator_keys:
        if yields.due():
            await yield_to_loop()
        code, why = _error(call, request.key_type, key)
        coordinators.append(Coordinator(key=key, node_id=-1, host="", port=-1, error_code=code, error_message=why))
    return FindCoordinatorResponse(coordinators=coordinators)


def _error(call: Call, kind: int, key: str) -> tuple[ErrorCode, str]:
    if kind not in _KINDS or (kind == _SHARE_PARTITION and call.version < _FIRST_VERSION_WITH_SHARES):
        return ErrorCode.INVALID_REQUEST, f"there is no coordinator type {kind} in version {call.version}"
    if kind == _SHARE_PARTITION and key.count(":") < 2:
        return ErrorCode.INVALID_REQUEST, "the key of a share partition is group:topic id:partition"
    return ErrorCode.COORDINATOR_NOT_AVAILABLE, f"{_KINDS[kind]} not served by this release"
