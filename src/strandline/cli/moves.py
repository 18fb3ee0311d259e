"""Replicas on the move: begun a few hundred at a time and followed until they have arrived.

`topic reassign` and `broker drain` share it. Whoever stops watching stops nothing: what was begun goes on without us.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from strandline.cli.errors import Failed

if TYPE_CHECKING:
    from strandline.client.client import Client
    from strandline.model.ids import TopicPartition

POLL_MS = 250
AT_ONCE = 200


class Moving:
    """What has become of a set of moves; `story` is what to show meanwhile."""

    def __init__(self, moves: Mapping[TopicPartition, Sequence[int]]) -> None:
        self._moves = moves
        self._begun = 0
        self._under_way = 0

    def story(self) -> str:
        return f"{self._begun - self._under_way} of {len(self._moves)} partitions moved, {self._under_way} on their way"

    async def begin_all(self, client: Client) -> None:
        """Without waiting for any of them."""
        await self._begin(client, list(self._moves))

    async def run(self, client: Client) -> None:
        """A slice at a time, so that the cluster is not asked to copy everything at once."""
        partitions = list(self._moves)
        for first in range(0, len(partitions), AT_ONCE):
            slice_ = partitions[first : first + AT_ONCE]
            await self._begin(client, slice_)
            await self.follow(client, slice_)

    async def follow(self, client: Client, partitions: Sequence[TopicPartition]) -> None:
        while True:
            self._under_way = len(await client.reassignments.under_way(partitions))
            if not self._under_way:
                return
            await client.router.sleep(POLL_MS)

    async def _begin(self, client: Client, partitions: Sequence[TopicPartition]) -> None:
        refused = await client.reassignments.begin({each: self._moves[each] for each in partitions})
        self._begun += len(partitions) - len(refused)
        self._under_way += len(partitions) - len(refused)
        if refused:
            told = "; ".join(f"{partition}: {error}" for partition, error in list(refused.items())[:5])
            begun = f" ({self._begun} others were accepted)" if self._begun else ""
            raise Failed(f"{len(refused)} moves were refused{begun}: {told}")
