"""A follower's side of an incremental fetch session (KIP-227), as a machine: what to say, so that a request names only
what changed since the last one, and costs only that. One conversation per connection to a leader.

After anything unexpected (no answer, a session the leader has forgotten) the next request begins anew and names all.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec

from strandline.model.errors import ErrorCode, KafkaError, code_of
from strandline.model.ids import Uuid
from strandline.protocol.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    ForgottenTopic,
    ReplicaState,
)

PartitionKey = tuple[Uuid, int]

_FIRST_EPOCH = 0
_LAST_EPOCH = 2**31 - 1
_FORGOTTEN = frozenset(
    {
        ErrorCode.FETCH_SESSION_ID_NOT_FOUND,
        ErrorCode.INVALID_FETCH_SESSION_EPOCH,
        ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR,
    }
)


class Manners(msgspec.Struct, frozen=True):
    """How a follower asks."""

    max_wait_ms: int
    min_bytes: int
    max_bytes: int


class Conversation:
    __slots__ = ("_broker_id", "_epoch", "_forgotten", "_manners", "_session_id", "_unsaid", "wanted")

    def __init__(self, broker_id: int, manners: Manners) -> None:
        self._broker_id = broker_id
        self._manners = manners
        self.wanted: dict[PartitionKey, FetchPartition] = {}
        self.begin_anew()

    def begin_anew(self) -> None:
        self._session_id = 0
        self._epoch = _FIRST_EPOCH
        # Where the leader does not believe yet what we want, or that we want nothing any more.
        self._unsaid: dict[PartitionKey, None] = dict.fromkeys(self.wanted)
        self._forgotten: dict[PartitionKey, None] = {}

    def want(self, key: PartitionKey, one: FetchPartition | None) -> None:
        """What is wanted of a partition from now on; None: nothing."""
        if one == self.wanted.get(key):
            return
        if one is not None:
            self.wanted[key] = one
            self._unsaid[key] = None
            self._forgotten.pop(key, None)
        else:
            del self.wanted[key]
            self._unsaid.pop(key, None)
            self._forgotten[key] = None

    def request(self, broker_epoch: int) -> FetchRequest:
        unsaid, self._unsaid = self._unsaid, {}
        # Who hears of a session for the first time has nothing to forget.
        forgotten = self._forgotten if self._epoch != _FIRST_EPOCH else {}
        self._forgotten = {}
        return FetchRequest(
            replica_state=ReplicaState(replica_id=self._broker_id, replica_epoch=broker_epoch),
            max_wait_ms=self._manners.max_wait_ms,
            min_bytes=self._manners.min_bytes,
            max_bytes=self._manners.max_bytes,
            session_id=self._session_id,
            session_epoch=self._epoch,
            topics=_by_topic({key: self.wanted[key] for key in unsaid}),
            forgotten_topics_data=_forgotten(forgotten),
        )

    def on_answer(self, response: FetchResponse) -> bool:
        """False when the leader has forgotten the session: the same may be asked again at once. Raises KafkaError for
        any other refusal of the whole request."""
        if response.error_code != ErrorCode.NONE:
            self.begin_anew()
            if response.error_code not in _FORGOTTEN:
                raise KafkaError(code_of(response.error_code), "the fetch was refused")
            return False
        if response.session_id == 0:
            self.begin_anew()  # none was granted
        else:
            self._session_id = response.session_id
            self._epoch = 1 if self._epoch == _LAST_EPOCH else self._epoch + 1
        return True


def _by_topic(wanted: Mapping[PartitionKey, FetchPartition]) -> list[FetchTopic]:
    topics: dict[Uuid, FetchTopic] = {}
    for (topic_id, _), one in wanted.items():
        topics.setdefault(topic_id, FetchTopic(topic_id=topic_id)).partitions.append(one)
    return list(topics.values())


def _forgotten(keys: Iterable[PartitionKey]) -> list[ForgottenTopic]:
    topics: dict[Uuid, ForgottenTopic] = {}
    for topic_id, index in keys:
        topics.setdefault(topic_id, ForgottenTopic(topic_id=topic_id)).partitions.append(index)
    return list(topics.values())
