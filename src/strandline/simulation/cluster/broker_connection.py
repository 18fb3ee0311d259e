"""How the simulation's own clients reach the cluster: our client's connection, to a broker chosen at random."""

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
# Answers after which what was asked may have been done, or may yet be.
DOUBTFUL = frozenset(
    {
        ErrorCode.NOT_CONTROLLER,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.UNKNOWN_SERVER_ERROR,
        ErrorCode.BROKER_NOT_AVAILABLE,
    }
)


class Caller:
    """One connection at a time, to a broker chosen anew whenever the last one was lost."""

    def __init__(self, world: World, brokers: Callable[[], list[str]], random: Random) -> None:
        self._world = world
        self._brokers = brokers
        self._random = random
        self._connection: Connection | None = None
        self.at = "nobody"

    async def call(self, request: Message, response: type[R]) -> R:
        connection = self._connection
        if connection is None or not connection.is_open or self._random.random() < 0.1:
            self.close()
            self.at = self._random.choice(self._brokers())
            connection = await Connection.open(self._world.network, Endpoint(self.at, PORT), SETTINGS)
            self._connection = connection
        return await connection.call(request, response)

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None
