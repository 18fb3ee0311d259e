"""Runs reassignments: starts a few hundred at a time and waits until they have completed.

Used by `topic reassign` and `broker drain`. Reassignments that were started continue when the command is interrupted.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from strandline.cli.errors import CommandFailed

if TYPE_CHECKING:
    from strandline.client.client import Client
    from strandline.client.core.cluster_metadata import ClusterMetadata
    from strandline.model.ids import TopicPartition

POLL_MS = 250
VISIBLE_POLL_MS = 50
VISIBLE_TIMEOUT_MS = 10_000
MAX_CONCURRENT_MOVES = 200


class ReassignmentRun:
    """A set of moves and their state; `progress_text` is printed meanwhile."""

    def __init__(self, moves: Mapping[TopicPartition, Sequence[int]]) -> None:
        self._moves = moves
        self._started = 0
        self._in_progress = 0

    def progress_text(self) -> str:
        moved = self._started - self._in_progress
        return f"{moved} of {len(self._moves)} partitions moved, {self._in_progress} in progress"

    async def start_all(self, client: Client) -> None:
        """Starts all moves without waiting for their completion."""
        await self._start(client, list(self._moves))

    async def run(self, client: Client) -> None:
        """Runs all moves, MAX_CONCURRENT_MOVES at a time, so that the cluster does not copy everything at once."""
        partitions = list(self._moves)
        for first in range(0, len(partitions), MAX_CONCURRENT_MOVES):
            slice_ = partitions[first : first + MAX_CONCURRENT_MOVES]
            await self._start(client, slice_)
            await self.follow(client, slice_)

    async def follow(self, client: Client, partitions: Sequence[TopicPartition]) -> None:
        while True:
            self._in_progress = len(await client.reassignments.ongoing(partitions))
            if not self._in_progress:
                break
            await client.router.sleep(POLL_MS)
        await self._until_visible(client, partitions)

    async def _until_visible(self, client: Client, partitions: Sequence[TopicPartition]) -> None:
        """Waits until the broker's metadata shows the new replicas. The controller knows of the completion first, and
        the next command may read from a broker. A concurrent change may replace these replicas, so the wait is
        limited."""
        router = client.router
        topics = sorted({each.topic for each in partitions})
        deadline_ms = router.deadline_ms(VISIBLE_TIMEOUT_MS)
        while True:
            await router.retrying(lambda: router.refresh(topics), deadline_ms)
            if all(self._is_visible(router.metadata, each) for each in partitions) or router.now_ms() >= deadline_ms:
                return
            await router.sleep(VISIBLE_POLL_MS)

    def _is_visible(self, view: ClusterMetadata, each: TopicPartition) -> bool:
        """Deleted partitions count as visible."""
        topic = view.topics.get(each.topic)
        partition = topic.partitions.get(each.partition) if topic is not None else None
        return partition is None or list(partition.replicas) == list(self._moves[each])

    async def _start(self, client: Client, partitions: Sequence[TopicPartition]) -> None:
        rejected = await client.reassignments.start({each: self._moves[each] for each in partitions})
        self._started += len(partitions) - len(rejected)
        self._in_progress += len(partitions) - len(rejected)
        if rejected:
            reasons = "; ".join(f"{partition}: {error}" for partition, error in list(rejected.items())[:5])
            accepted = f" ({self._started} others were accepted)" if self._started else ""
            raise CommandFailed(f"{len(rejected)} moves were rejected{accepted}: {reasons}")
