"""Requested and acknowledged changes of topics, compared with the committed metadata.

Each topic belongs to one worker, so the order of its changes is known. An acknowledged change must be committed at that
instant. A change of unknown outcome may have happened, or may happen much later (its request may still be in flight):
its topic is not changed any more and may be in either state.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from strandline.metadata.views import View
from strandline.model.ids import Uuid
from strandline.simulation.cluster.committed_metadata import CommittedMetadata
from strandline.simulation.cluster.violation import Violation


class TopicState(msgspec.Struct, frozen=True):
    partitions: int
    configs: Mapping[str, str] = msgspec.field(default_factory=dict)
    id: Uuid | None = None
    """None until a response has named it."""

    def matches(self, found: TopicState | None) -> bool:
        if found is None or (self.id is not None and self.id != found.id):
            return False
        return self.partitions == found.partitions and dict(self.configs) == dict(found.configs)


Possible = TopicState | None


class TopicHistory:
    def __init__(self, metadata: CommittedMetadata) -> None:
        self._metadata = metadata
        self._possible: dict[str, tuple[Possible, ...]] = {}
        self._producer_ids: set[int] = set()
        self.acknowledged = 0
        self.unknown = 0

    def requested(self, topic: str, after: Possible) -> None:
        """Makes `after` possible in addition to the former states."""
        self._possible[topic] = (*self._possible.get(topic, (None,)), after)

    def acked(self, topic: str, after: Possible) -> None:
        self.acknowledged += 1
        self._possible[topic] = (after,)
        self._check(topic, "is acknowledged")

    def rejected(self, topic: str, before: Possible) -> None:
        """The change has not happened and will not happen."""
        self._possible[topic] = (before,)

    def producer_id(self, producer_id: int) -> None:
        if producer_id in self._producer_ids:
            raise Violation("history", f"producer id {producer_id} is allocated twice")
        self._producer_ids.add(producer_id)

    def check(self) -> None:
        """Checks at the end that every requested topic is in a possible state, and that there are no other topics."""
        for topic in self._possible:
            self._check(topic, "at the end")
        for found in self._metadata.image.committed.topics():
            if found.name not in self._possible:
                raise Violation("history", f"topic {found.name} exists and was never requested")

    def _check(self, topic: str, when: str) -> None:
        found = topic_state(self._metadata.image.committed, topic)
        possible = self._possible[topic]
        if not any(each is found is None or (each is not None and each.matches(found)) for each in possible):
            expected = " or ".join(map(_words, possible))
            raise Violation("history", f"topic {topic} {when}: expected {expected}, committed is {_words(found)}")


def topic_state(view: View, topic: str) -> Possible:
    found = view.topic(topic)
    return None if found is None else TopicState(found.partition_count, view.topic_configs(topic), found.id)


def _words(state: Possible) -> str:
    return "nothing" if state is None else f"{state.partitions} partitions, {dict(state.configs)}, id {state.id}"
