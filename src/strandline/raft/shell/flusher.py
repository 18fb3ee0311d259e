"""Syncing the log in the background, one sync at a time: whatever was asked for during one is done by the next."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from strandline.log.partition_log import PartitionLog
from strandline.model.errors import KafkaError, NodeFault
from strandline.runtime.offload import Offload


class Flusher:
    def __init__(self, log: PartitionLog, offload: Offload, on_flushed: Callable[[], None]) -> None:
        """`on_flushed`: `log.flushed_offset` may have risen."""
        self._log = log
        self._offload = offload
        self._on_flushed = on_flushed
        self._due = asyncio.Event()
        self.idle = asyncio.Event()
        self.idle.set()

    def ask(self) -> None:
        self._due.set()

    async def run(self) -> None:
        while True:
            await self._due.wait()
            self._due.clear()
            self.idle.clear()
            await self.flush()
            self.idle.set()
            self._on_flushed()

    async def flush(self) -> None:
        """A failed sync is never tried again: the node stops."""
        try:
            await self._offload.run(self._log.flush)
        except KafkaError as error:
            raise NodeFault(f"the metadata log cannot be written: {error.why}") from error
