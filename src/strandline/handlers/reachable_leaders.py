"""Leaders that a client can reach: unfenced, and with an endpoint on the listener that the client is connected to.

A response that would name a leader to which this broker has just lost its connection waits for the controller's
decision (`election_decided`); the handler then makes the response from the new metadata. A client that lost its own
connection may be a few milliseconds ahead of this broker, so a Metadata response that names another broker as leader
waits for these first (`losses_noticed`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Final, NamedTuple

from strandline.handlers.context import BrokerContext, Call
from strandline.metadata.values import PartitionInfo
from strandline.metadata.views import View
from strandline.model.errors import ErrorCode

_NOTICE_MS: Final = 10


class LeaderAddress(NamedTuple):
    node_id: int
    host: str
    port: int
    rack: str | None


def leader_addresses(broker: BrokerContext, listener: str, leaders: Iterable[int]) -> list[LeaderAddress]:
    """The addresses of leaders that a response names, so that the client need not request metadata (KIP-951)."""
    found = []
    for leader in sorted(set(leaders)):
        info = broker.view.broker(leader)
        endpoint = info.endpoint(listener) if info is not None and not info.fenced else None
        if info is not None and endpoint is not None:
            found.append(LeaderAddress(leader, endpoint.host, endpoint.port, info.rack))
    return found


async def losses_noticed(broker: BrokerContext, call: Call, leaders: Iterable[int]) -> None:
    """Waits until this broker has noticed the loss of a connection that a client has noticed already: the kernel closes
    the connections of a killed process one after the other."""
    if broker.lost_leaders.is_enabled and any(leader not in (-1, broker.node_id) for leader in leaders):
        call.park()
        await asyncio.sleep(_NOTICE_MS / 1000)


async def election_decided(broker: BrokerContext, call: Call, leaders: Iterable[int]) -> list[int]:
    """Those of the leaders that are lost, when the controller has decided about them, or has not in time."""
    lost = broker.lost_leaders.among(leaders)
    if lost:
        call.park()
        await broker.lost_leaders.decided(lost)
    return lost


class ReachableBrokers:
    """The unfenced brokers, and those among them with an endpoint on this listener; looked up once for a request."""

    __slots__ = ("_on_listener", "_unfenced")

    def __init__(self, view: View, listener: str) -> None:
        unfenced = [info for info in view.brokers() if not info.fenced]
        self._unfenced = frozenset(info.id for info in unfenced)
        self._on_listener = frozenset(info.id for info in unfenced if info.endpoint(listener) is not None)

    def leader(self, partition: PartitionInfo) -> tuple[ErrorCode, int]:
        """The leader's id, or -1 and the error code."""
        leader = partition.leader
        if leader in self._on_listener:
            return ErrorCode.NONE, leader
        return ErrorCode.LISTENER_NOT_FOUND if leader in self._unfenced else ErrorCode.LEADER_NOT_AVAILABLE, -1

    def offline(self, replicas: Iterable[int]) -> list[int]:
        return [replica for replica in replicas if replica not in self._unfenced]
