"""What decisions about consumer groups ask of the metadata. The node implements it over the committed image."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import msgspec

from strandline.model.ids import Uuid

Racks = tuple[tuple[str, ...], ...]
"""By partition: the racks of its replicas. Empty when no broker names a rack."""


class SubscribedTopic(msgspec.Struct, frozen=True):
    name: str
    topic_id: Uuid
    partition_count: int


class Topics(Protocol):
    @property
    def version(self) -> int:
        """Grows with every change of the metadata."""

    def by_name(self, name: str) -> SubscribedTopic | None: ...

    def by_id(self, topic_id: Uuid) -> SubscribedTopic | None: ...

    def names(self) -> Sequence[str]: ...

    def racks(self, topic: SubscribedTopic) -> Racks: ...


class NoTopics:
    """Metadata without topics."""

    version = 0

    def by_name(self, name: str) -> SubscribedTopic | None:
        return None

    def by_id(self, topic_id: Uuid) -> SubscribedTopic | None:
        return None

    def names(self) -> Sequence[str]:
        return ()

    def racks(self, topic: SubscribedTopic) -> Racks:
        return ()
