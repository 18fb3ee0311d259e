"""Requests of the simulation's own clients: a connection of our client, to a broker chosen at random."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import TypeVar

from strandline.client.connection import Connection
from strandline.client.settings import ClientSettings
from strandline.model.errors import ErrorCode
from strandline.model.ids import Endpoint
from strandline.protocol.types import Message
from strandline.runtime.world import World
from strandline.simulation.nodes import PORT

R = TypeVar("R", bound=Message)

SETTINGS = ClientSettings(connect_timeout_ms=1_000, request_timeout_ms=3_000)
UNKNOWN_OUTCOME = frozenset(
    {
        ErrorCode.NOT_CONTROLLER,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.UNKNOWN_SERVER_ERROR,
        ErrorCode.BROKER_NOT_AVAILABLE,
    }
)
"""Errors after which the request may have been executed, or may still be."""


class BrokerConnection:
    """One connection at a time; after it is lost, and now and then, another broker is chosen."""

    def __init__(self, world: World, brokers: Callable[[], list[str]], random: Random) -> None:
        self._world = world
        self._brokers = brokers
        self._random = random
        self._connection: Connection | None = None
        self.broker = ""
        """The machine of the broker that the last request went to."""

    async def call(self, request: Message, response: type[R]) -> R:
        connection = self._connection
        if connection is None or not connection.is_open or self._random.random() < 0.1:
            self.close()
            self.broker = self._random.choice(self._brokers())
            connection = await Connection.open(self._world.network, Endpoint(self.broker, PORT), SETTINGS)
            self._connection = connection
        return await connection.call(request, response)

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None
