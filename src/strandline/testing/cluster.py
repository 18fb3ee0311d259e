"""A cluster for the length of a `with`: `launch.Cluster`, with a place to live and an end."""

from __future__ import annotations

import asyncio
import contextlib
import tempfile
from collections.abc import Iterator, Mapping
from os import PathLike
from types import TracebackType
from typing import TYPE_CHECKING, Self

from strandline.launch import cluster as launch

if TYPE_CHECKING:
    from strandline.client.core.health import Health


class Cluster(launch.Cluster):
    """Without a directory, in a temporary one; with one, what is stored stays there for the next time.

    `nodes` are broker and controller at once; `controllers` and `brokers` are nodes that are only one of the two."""

    def __init__(
        self,
        directory: str | PathLike[str] | None = None,
        *,
        nodes: int | None = None,
        controllers: int | None = None,
        brokers: int | None = None,
        settings: Mapping[str, str] | None = None,
    ) -> None:
        self._temporary = tempfile.TemporaryDirectory(prefix="strandline-") if directory is None else None
        super().__init__(self._temporary.name if self._temporary is not None else directory or "")
        self._asked = nodes, controllers, brokers
        self._first_settings = settings

    def __enter__(self) -> Self:
        nodes, controllers, brokers = self._asked
        try:
            self.up(nodes, controllers=controllers, brokers=brokers, port=None, settings=self._first_settings)
        except BaseException:
            self._end()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._end()

    def wait_until_healthy(self, timeout_seconds: float = 60.0) -> None:
        """Until every broker is active, every partition led and fully replicated; TimeoutError says what is not."""
        health = asyncio.run(self._health(int(timeout_seconds * 1000)))
        if not health.is_healthy:
            raise TimeoutError(f"after {timeout_seconds:g} s: {'; '.join(health.problems)}")

    async def _health(self, timeout_ms: int) -> Health:
        from strandline.client.client import Client
        from strandline.client.settings import ClientSettings
        from strandline.runtime.world import system_world

        patience = ClientSettings(api_timeout_ms=5_000, connect_timeout_ms=2_000)
        async with Client(system_world(threads=1), self.bootstrap, patience) as client:
            return await client.until_healthy(timeout_ms)

    def _end(self) -> None:
        self.down()
        if self._temporary is not None:
            self._temporary.cleanup()


@contextlib.contextmanager
def running_cluster(
    directory: str | PathLike[str] | None = None, *, nodes: int | None = None, settings: Mapping[str, str] | None = None
) -> Iterator[Cluster]:
    """`with Cluster(…)`, by its older name."""
    with Cluster(directory, nodes=nodes, settings=settings) as cluster:
        yield cluster
