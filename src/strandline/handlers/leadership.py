"""Who leads instead, with an address on the listener the client uses (KIP-951)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from strandline.handlers.context import Broker


class LeaderAddress(NamedTuple):
    node_id: int
    host: str
    port: int
    rack: str | None


def leader_addresses(broker: Broker, listener: str, leaders: Iterable[int]) -> list[LeaderAddress]:
    found = []
    for leader in sorted(set(leaders)):
        info = broker.view.broker(leader)
        endpoint = info.endpoint(listener) if info is not None and not info.fenced else None
        if info is not None and endpoint is not None:
            found.append(LeaderAddress(leader, endpoint.host, endpoint.port, info.rack))
    return found
