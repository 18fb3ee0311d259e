"""The client's side of an incremental fetch session (KIP-227) with one broker, for consumers and for followers: after
the first request only partitions that changed are sent, and only partitions with news come back. A machine; the
fetchers of `client` and `replication` call it.

The broker stores the partitions and positions of the session. Both sides count session epochs, so that a lost request
is detected. After a lost response or a rejected request the session is reset: the next request creates a new one and
names every partition.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from strandline.model.errors import ErrorCode
from strandline.model.ids import Uuid
from strandline.protocol.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic, ForgottenTopic

# Topic id, topic name and partition index. Fetch names topics by id since version 13 and by name before.
SessionKey = tuple[Uuid, str, int]

SESSIONLESS_EPOCH = -1
_INITIAL_EPOCH = 0
_LAST_EPOCH = 2**31 - 1


class FetchSessionHandler:
    __slots__ = ("_enabled", "_epoch", "_forgotten", "_id", "_unsent", "wanted")

    def __init__(self, *, enabled: bool = True) -> None:
        self._enabled = enabled
        self.wanted: dict[SessionKey, FetchPartition] = {}
        self.reset()

    def reset(self) -> None:
        self._id = 0
        self._epoch = _INITIAL_EPOCH if self._enabled else SESSIONLESS_EPOCH
        # Partitions that the broker does not know yet as they are wanted now, or does not know to be unwanted.
        self._unsent: dict[SessionKey, None] = dict.fromkeys(self.wanted)
        self._forgotten: dict[SessionKey, None] = {}

    def want(self, key: SessionKey, partition: FetchPartition | None) -> None:
        """Sets what the next fetches request of a partition; with None they leave it out."""
        if partition == self.wanted.get(key):
            return
        if partition is not None:
            self.wanted[key] = partition
            self._unsent[key] = None
            self._forgotten.pop(key, None)
        else:
            del self.wanted[key]
            self._unsent.pop(key, None)
            self._forgotten[key] = None

    def want_only(self, wanted: Mapping[SessionKey, FetchPartition]) -> None:
        """Makes the next fetches request these partitions and no others."""
        for key in [known for known in self.wanted if known not in wanted]:
            self.want(key, None)
        for key, partition in wanted.items():
            self.want(key, partition)

    def fill(self, request: FetchRequest) -> None:
        """Adds the session and its changed partitions to the next request."""
        incremental = self._epoch > _INITIAL_EPOCH
        unsent = self._unsent if self._enabled else self.wanted
        request.session_id = self._id
        request.session_epoch = self._epoch
        request.topics = _fetch_topics({key: self.wanted[key] for key in unsent})
        request.forgotten_topics_data = _forgotten_topics(self._forgotten) if incremental else []
        self._unsent, self._forgotten = {}, {}

    def on_response(self, response: FetchResponse) -> None:
        if response.error_code != ErrorCode.NONE or response.session_id == 0:
            self.reset()  # rejected, or the broker granted no session
        else:
            self._id = response.session_id
            self._epoch = 1 if self._epoch == _LAST_EPOCH else self._epoch + 1


def _fetch_topics(wanted: Mapping[SessionKey, FetchPartition]) -> list[FetchTopic]:
    topics: dict[tuple[Uuid, str], FetchTopic] = {}
    for (topic_id, name, _), partition in wanted.items():
        topic = topics.get((topic_id, name))
        if topic is None:
            topic = topics[topic_id, name] = FetchTopic(topic=name, topic_id=topic_id)
        topic.partitions.append(partition)
    return list(topics.values())


def _forgotten_topics(keys: Iterable[SessionKey]) -> list[ForgottenTopic]:
    topics: dict[tuple[Uuid, str], ForgottenTopic] = {}
    for topic_id, name, index in keys:
        topic = topics.setdefault((topic_id, name), ForgottenTopic(topic=name, topic_id=topic_id))
        topic.partitions.append(index)
    return list(topics.values())
