"""Finds the coordinators of groups and transactional ids, and sends requests to them with retries.

The shell that `admin/groups`, `admin/committed_offsets`, the group member and the transactional producer share. A
coordinator is looked up again after its broker did not respond or is not the coordinator any more.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from enum import IntEnum
from typing import TypeVar

from strandline.client.connection import Connection
from strandline.client.core.cluster_metadata import BrokerMetadata
from strandline.client.errors import TRANSPORT_ERRORS, error_of
from strandline.client.routing import Router
from strandline.model.errors import ErrorCode, KafkaError
from strandline.model.ids import Endpoint
from strandline.protocol.messages.coordinators import Coordinator, FindCoordinatorRequest, FindCoordinatorResponse
from strandline.protocol.types import Message

R = TypeVar("R", bound=Message)

_FIRST_VERSION_WITH_BATCHES = 4
MOVED = frozenset({ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE})
RETRIED = MOVED | {ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.UNSTABLE_OFFSET_COMMIT}


class KeyType(IntEnum):
    GROUP = 0
    TRANSACTION = 1


class Coordinators:
    def __init__(self, router: Router) -> None:
        self._router = router
        self._known: dict[tuple[KeyType, str], int] = {}
        self._lanes = 0

    def next_lane(self) -> int:
        """A number for the connections of one group member: JoinGroup waits at the coordinator, and a broker responds
        to each connection in order."""
        self._lanes += 1
        return self._lanes

    async def find(self, kind: KeyType, key: str) -> int:
        """The broker id of the coordinator. Raises KafkaError after one attempt without a result."""
        if (known := self._known.get((kind, key))) is not None:
            return known
        found = await self._request(kind, key)
        if found.error_code:
            raise error_of(found.error_code, found.error_message or f"the coordinator of {key!r} is not available")
        self._router.metadata.brokers[found.node_id] = BrokerMetadata(found.node_id, Endpoint(found.host, found.port))
        self._known[kind, key] = found.node_id
        return found.node_id

    def forget(self, kind: KeyType, key: str) -> None:
        self._known.pop((kind, key), None)

    async def connection(self, kind: KeyType, key: str, lane: str = "") -> Connection:
        """A connection to the coordinator; one that does not respond is looked up again by the next call."""
        broker_id = await self.find(kind, key)
        try:
            return await self._router.broker(broker_id, lane)
        except TRANSPORT_ERRORS:
            self.forget(kind, key)
            raise

    async def call(
        self,
        kind: KeyType,
        key: str,
        request: Message,
        response_type: type[R],
        *,
        newest: int | None = None,
        older: tuple[int, Message] | None = None,
        timeout_ms: int | None = None,
        errors: Callable[[R], Iterable[int]] | None = None,
    ) -> R:
        """The response, in a version up to `newest`; retried while `errors` of it show that the coordinator has moved
        or is loading. Other errors are the caller's to read. `older` is the request for versions below a number."""

        async def attempt() -> R:
            connection = await self.connection(kind, key)
            version = connection.versions.newest_common_version(type(request), newest)
            message = older[1] if older is not None and version < older[0] else request
            try:
                response = await connection.call(message, response_type, version=version)
            except TRANSPORT_ERRORS:
                self.forget(kind, key)
                raise
            for number in errors(response) if errors is not None else [getattr(response, "error_code", 0)]:
                if number in RETRIED:
                    if number in MOVED:
                        self.forget(kind, key)
                    raise error_of(number, f"the coordinator of {key!r}")
            return response

        return await self._router.retrying(attempt, self._router.deadline_ms(timeout_ms))

    async def _request(self, kind: KeyType, key: str) -> Coordinator:
        connection = await self._router.any_broker()
        version = connection.versions.newest_common_version(FindCoordinatorRequest)
        request = FindCoordinatorRequest(key=key, key_type=kind)
        if version >= _FIRST_VERSION_WITH_BATCHES:
            request = FindCoordinatorRequest(key_type=kind, coordinator_keys=[key])
        response = await connection.call(request, FindCoordinatorResponse, version=version)
        if version >= _FIRST_VERSION_WITH_BATCHES:
            if not response.coordinators:
                raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, f"no coordinator of {key!r} in the response")
            return response.coordinators[0]
        return Coordinator(
            key, response.node_id, response.host, response.port, response.error_code, response.error_message
        )
