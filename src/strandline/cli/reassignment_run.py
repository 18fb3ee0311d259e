"""Replicas on the move: begun a few hundred at a time and followed until they have arrived.

`topic reassign` and `broker drain` share it. Whoever stops watching stops nothing: what was begun goes on without us.
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
    """What has become of a set of moves; `progress_text` is what to show meanwhile."""

    def __init__(self, moves: Mapping[TopicPartition, Sequence[int]]) -> None:
        self._moves = moves
        self._started = 0
        self._under_way = 0

    def progress_text(self) -> str:
        return (
            f"{self._started - self._under_way} of {len(self._moves)} partitions moved, {self._under_way} on their way"
        )

    async def start_all(self, client: Client) -> None:
        """Without waiting for any of them."""
        await self._begin(client, list(self._moves))

    async def run(self, client: Client) -> None:
        """A slice at a time, so that the cluster is not asked to copy everything at once."""
        partitions = list(self._moves)
        for first in range(0, len(partitions), MAX_CONCURRENT_MOVES):
            slice_ = partitions[first : first + MAX_CONCURRENT_MOVES]
            await self._begin(client, slice_)
            await self.follow(client, slice_)

    async def follow(self, client: Client, partitions: Sequence[TopicPartition]) -> None:
        while True:
            self._under_way = len(await client.reassignments.under_way(partitions))
            if not self._under_way:
                break
            await client.router.sleep(POLL_MS)
        await self._until_visible(client, partitions)

    async def _until_visible(self, client: Client, partitions: Sequence[TopicPartition]) -> None:
        """That all have arrived the controller knows first. Who looks next asks a broker, and should find what we said;
        but what somebody else has changed meanwhile is never shown, so there is an end to it."""
        router = client.router
        topics = sorted({each.topic for each in partitions})
        deadline_ms = router.deadline_ms(VISIBLE_TIMEOUT_MS)
        while True:
            await router.retrying(lambda: router.refresh(topics), deadline_ms)
            if all(self._is_visible(router.view, each) for each in partitions) or router.now_ms() >= deadline_ms:
                return
            await router.sleep(VISIBLE_POLL_MS)

    def _is_visible(self, view: ClusterMetadata, each: TopicPartition) -> bool:
        """What is gone need not be shown."""
        topic = view.topics.get(each.topic)
        partition = topic.partitions.get(each.partition) if topic is not None else None
        return partition is None or list(partition.replicas) == list(self._moves[each])

    async def _begin(self, client: Client, partitions: Sequence[TopicPartition]) -> None:
        refused = await client.reassignments.begin({each: self._moves[each] for each in partitions})
        self._started += len(partitions) - len(refused)
        self._under_way += len(partitions) - len(refused)
        if refused:
            told = "; ".join(f"{partition}: {error}" for partition, error in list(refused.items())[:5])
            begun = f" ({self._started} others were accepted)" if self._started else ""
            raise CommandFailed(f"{len(refused)} moves were refused{begun}: {told}")
