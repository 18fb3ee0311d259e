"""A cluster for tests: `launch.Cluster` as a context manager, by default in a temporary directory."""

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
    """A cluster whose data is kept in the given directory for the next start, or in a temporary directory.

    `nodes` are combined nodes (broker and controller); `controllers` and `brokers` have one role."""

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
        self._requested = nodes, controllers, brokers
        self._initial_settings = settings

    def __enter__(self) -> Self:
        nodes, controllers, brokers = self._requested
        try:
            self.up(nodes, controllers=controllers, brokers=brokers, port=None, settings=self._initial_settings)
        except BaseException:
            self._shut_down()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._shut_down()

    def wait_until_healthy(self, timeout_seconds: float = 60.0) -> None:
        """Waits until every broker is active and every partition is fully replicated. Raises TimeoutError."""
        health = asyncio.run(self._health(int(timeout_seconds * 1000)))
        if not health.is_healthy:
            raise TimeoutError(f"after {timeout_seconds:g} s: {'; '.join(health.problems)}")

    async def _health(self, timeout_ms: int) -> Health:
        from strandline.client.client import Client
        from strandline.client.settings import ClientSettings
        from strandline.runtime.world import system_world

        settings = ClientSettings(api_timeout_ms=5_000, connect_timeout_ms=2_000)
        async with Client(system_world(threads=1), self.bootstrap, settings) as client:
            return await client.until_healthy(timeout_ms)

    def _shut_down(self) -> None:
        self.down()
        if self._temporary is not None:
            self._temporary.cleanup()


@contextlib.contextmanager
def running_cluster(
    directory: str | PathLike[str] | None = None, *, nodes: int | None = None, settings: Mapping[str, str] | None = None
) -> Iterator[Cluster]:
    """The older name of `with Cluster(…)`."""
    with Cluster(directory, nodes=nodes, settings=settings) as cluster:
        yield cluster
