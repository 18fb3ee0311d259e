"""Who leads, as a client can reach them: alive, and with an address on the listener the client came by."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from strandline.handlers.context import BrokerContext
from strandline.metadata.values import PartitionInfo
from strandline.metadata.views import View
from strandline.model.errors import ErrorCode


class LeaderAddress(NamedTuple):
    node_id: int
    host: str
    port: int
    rack: str | None


def leader_addresses(broker: BrokerContext, listener: str, leaders: Iterable[int]) -> list[LeaderAddress]:
    """For answers that name another leader, so that the client need not ask for it (KIP-951)."""
    found = []
    for leader in sorted(set(leaders)):
        info = broker.view.broker(leader)
        endpoint = info.endpoint(listener) if info is not None and not info.fenced else None
        if info is not None and endpoint is not None:
            found.append(LeaderAddress(leader, endpoint.host, endpoint.port, info.rack))
    return found


class ReachableBrokers:
    """The brokers that are alive, and those among them that this listener leads to; looked up once for a request."""

    __slots__ = ("_alive", "_on_listener")

    def __init__(self, view: View, listener: str) -> None:
        alive = [info for info in view.brokers() if not info.fenced]
        self._alive = frozenset(info.id for info in alive)
        self._on_listener = frozenset(info.id for info in alive if info.endpoint(listener) is not None)

    def leader(self, partition: PartitionInfo) -> tuple[ErrorCode, int]:
        """The leader's id, or -1 and why there is none."""
        leader = partition.leader
        if leader in self._on_listener:
            return ErrorCode.NONE, leader
        return ErrorCode.LISTENER_NOT_FOUND if leader in self._alive else ErrorCode.LEADER_NOT_AVAILABLE, -1

    def offline(self, replicas: Iterable[int]) -> list[int]:
        return [replica for replica in replicas if replica not in self._alive]
