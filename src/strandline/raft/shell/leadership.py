"""One leadership of this node, from the moment everything committed is replayed to the moment it is lost.

Owned by the driver. It holds what belongs to the leadership and dies with it: the append queue, and the watermark that
those wait on who appended. `writing` encodes what was appended and asks for it to be written: at once when the disk is
idle, together with what comes meanwhile when a sync is under way (but no longer than `append_linger_ms`).
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import Final

from strandline.model.errors import ErrorCode, KafkaError
from strandline.protocol.types import Message
from strandline.raft.shell.accumulator import Accumulator
from strandline.runtime.tasks import yield_to_loop
from strandline.runtime.watermark import Watermark

# Some milliseconds of settling what was replayed and telling the node what it means.
_RECORDS_PER_COMMIT: Final = 2_000


class LeaderTerm:
    def __init__(self, epoch: int, end_offset: int, high_watermark: int) -> None:
        self.epoch = epoch
        self.accumulator = Accumulator(epoch, end_offset)
        self.committed = Watermark(high_watermark)
        self.task: asyncio.Task[None] | None = None
        """Runs `writing`."""
        self._appended = asyncio.Event()
        self._ends: deque[int] = deque()
        """Where each append ends that is not committed yet."""

    def append(self, records: Sequence[Message], timestamp: int, metadata_version: int) -> int:
        last_offset = self.accumulator.append(records, timestamp, metadata_version)
        self._ends.append(last_offset + 1)
        self._appended.set()
        return last_offset

    def portions(self, high_watermark: int) -> Iterator[int]:
        """Offsets to commit one after the other, up to the high watermark: many small appends together, never a part
        of one, so that no step of the loop commits much more than it must."""
        begin = committed = self.committed.value
        while self._ends and self._ends[0] <= high_watermark:
            end = self._ends.popleft()
            if end - begin > _RECORDS_PER_COMMIT and committed > begin:
                yield committed
                begin = committed
            committed = end
        yield high_watermark

    def lose(self) -> None:
        if self.task is not None:
            self.task.cancel()
        self.committed.lose(
            KafkaError(ErrorCode.NOT_CONTROLLER, "this node does not lead the metadata quorum any more")
        )

    async def writing(self, flush_idle: asyncio.Event, append_linger_ms: int, write: Callable[[], None]) -> None:
        """Until cancelled. `write` is called when something is encoded."""
        while True:
            await self._appended.wait()
            if not flush_idle.is_set():
                await _within(append_linger_ms, flush_idle)
            self._appended.clear()
            while self.accumulator.encode_slice():
                await yield_to_loop()
            write()


async def _within(timeout_ms: int, event: asyncio.Event) -> None:
    """Until the event, or until the time is over."""
    try:
        async with asyncio.timeout(timeout_ms / 1000):
            await event.wait()
    except TimeoutError:
        return
