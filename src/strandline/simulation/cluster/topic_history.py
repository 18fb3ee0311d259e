"""What clients asked for, what they were told, and whether the two agree with what is committed.

Each topic belongs to one worker, so the order of what concerns it is known. An operation that was answered holds from
that instant: the ledger must have it. One whose answer never came may have happened, or may happen much later (its
request may still be on its way): its topic is left alone from then on, and may be in either state.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from strandline.metadata.views import View
from strandline.model.ids import Uuid
from strandline.simulation.cluster.committed_metadata import CommittedMetadata
from strandline.simulation.cluster.violation import Violation


@dataclass(frozen=True, slots=True)
class TopicState:
    partitions: int
    configs: Mapping[str, str] = field(default_factory=dict)
    id: Uuid | None = None
    """None until an answer has told it."""

    def is_met_by(self, found: TopicState | None) -> bool:
        if found is None or (self.id is not None and self.id != found.id):
            return False
        return self.partitions == found.partitions and dict(self.configs) == dict(found.configs)


Possible = TopicState | None


class History:
    def __init__(self, ledger: CommittedMetadata) -> None:
        self._ledger = ledger
        self._possible: dict[str, tuple[Possible, ...]] = {}
        self._producer_ids: set[int] = set()
        self.acknowledged = 0
        self.unknown = 0

    def began(self, topic: str, after: Possible) -> None:
        """From now on both are possible."""
        self._possible[topic] = (*self._possible.get(topic, (None,)), after)

    def acked(self, topic: str, after: Possible) -> None:
        self.acknowledged += 1
        self._possible[topic] = (after,)
        self._check(topic, "is acknowledged")

    def refused(self, topic: str, before: Possible) -> None:
        """Nothing has changed, and nothing will."""
        self._possible[topic] = (before,)

    def producer_id(self, producer_id: int) -> None:
        if producer_id in self._producer_ids:
            raise Violation("history", f"producer id {producer_id} is given out twice")
        self._producer_ids.add(producer_id)

    def check(self) -> None:
        """At the end: every topic that anybody asked for is in a state that it may be in, and there are no others."""
        for topic in self._possible:
            self._check(topic, "at the end")
        for found in self._ledger.image.committed.topics():
            if found.name not in self._possible:
                raise Violation("history", f"topic {found.name} exists, and nobody created it")

    def _check(self, topic: str, when: str) -> None:
        found = topic_state(self._ledger.image.committed, topic)
        possible = self._possible[topic]
        if not any(each is found is None or (each is not None and each.is_met_by(found)) for each in possible):
            expected = " or ".join(map(_words, possible))
            raise Violation("history", f"topic {topic} {when}: expected {expected}, committed is {_words(found)}")


def topic_state(view: View, topic: str) -> Possible:
    found = view.topic(topic)
    return None if found is None else TopicState(found.partition_count, view.topic_configs(topic), found.id)


def _words(state: Possible) -> str:
    return "nothing" if state is None else f"{state.partitions} partitions, {dict(state.configs)}, id {state.id}"
