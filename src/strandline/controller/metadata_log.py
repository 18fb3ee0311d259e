"""How the controller reaches its log, whatever makes that log durable (a quorum, a sole voter, another store)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from strandline.protocol.types import Message
from strandline.runtime.watermark import Watermark


class MetadataLog(Protocol):
    @property
    def is_leader(self) -> bool:
        """Whether this node may append now."""
        ...

    @property
    def epoch(self) -> int:
        """Of the current leadership; it changes whenever leadership was lost in between."""
        ...

    @property
    def former_leader(self) -> tuple[int, int] | None:
        """The node that led before this one did, and when (`now_ms`) it was last heard from; if both are known."""
        ...

    @property
    def kraft_version(self) -> int:
        """The level of the feature kraft.version: 1 when the log itself says who votes, 0 otherwise."""
        ...

    @property
    def end_offset(self) -> int:
        """Where the next record will stand."""
        ...

    @property
    def committed(self) -> Watermark:
        """The first offset that is not committed. It belongs to one leadership, and is lost with it."""
        ...

    def reserve(self) -> int:
        """The offset where the next append will stand; until `append` or `release` nobody else writes to the log.

        Who has not reserved may append as well, and learns then where.
        """
        ...

    def release(self) -> None:
        """Gives a reservation back without having appended; nothing happens when there is none."""
        ...

    def append(self, records: Sequence[Message]) -> int:
        """One atomic batch at the end of the log; answers the offset of its last record at once, durable later.

        It ends the reservation. NOT_CONTROLLER when this node does not lead any more.
        """
        ...

    async def upgrade_kraft_version(self, level: int) -> Message:
        """Gives the quorum a newer version while it works. Answers an UpdateFeaturesResponse, when that is committed or
        at once if it cannot be. Not to be asked for while anything is reserved: the quorum writes to the log itself."""
        ...
