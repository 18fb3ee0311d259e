"""Fetch: what is read, what is refused, and what sessions remember."""

from __future__ import annotations

from typing import Any

from cluster.handlers.scripts.running import script
from cluster.handlers.talk import EPOCH_MS, Talk, batch
from strandline.model.ids import ZERO_UUID, Uuid
from strandline.protocol.apis import ApiKey
from strandline.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic, ForgottenTopic, ReplicaState
from strandline.records.compression import Codec

STRANGER = Uuid(b"nobody's topic i")
MIB = 1 << 20


class Reader:
    """Fetches in the version of the talk, naming topics as the version does."""

    def __init__(self, talk: Talk) -> None:
        self.talk = talk
        self._ids: dict[str, Uuid] = {}

    def topic(self, name: str, *partitions: FetchPartition, topic_id: Uuid | None = None) -> FetchTopic:
        if topic_id is None:
            if name not in self._ids:
                self._ids[name] = self.talk.topic_id(name)
            topic_id = self._ids[name]
        return FetchTopic(topic=name, topic_id=topic_id, partitions=list(partitions))

    def forgotten(self, name: str, *partitions: int) -> ForgottenTopic:
        return ForgottenTopic(topic=name, topic_id=self._ids[name], partitions=list(partitions))

    def request(self, *topics: FetchTopic, **fields: Any) -> FetchRequest:
        return FetchRequest(topics=list(topics), **{"max_bytes": MIB, "min_bytes": 1, **fields})

    def ask(self, label: str, *topics: FetchTopic, differs: str | None = None, **fields: Any) -> Any:
        return self.talk.ask(label, self.request(*topics, **fields), differs=differs)


def from_offset(offset: int, partition: int = 0, max_bytes: int = MIB, epoch: int = -1) -> FetchPartition:
    return FetchPartition(
        partition=partition, fetch_offset=offset, partition_max_bytes=max_bytes, current_leader_epoch=epoch
    )


@script(ApiKey.FETCH)
def records_read(talk: Talk) -> None:
    name = talk.topic("t", 2)
    reader = Reader(talk)
    reader.ask("an empty log", reader.topic(name, from_offset(0)))
    reader.ask("an empty log, after a wait", reader.topic(name, from_offset(0)), max_wait_ms=20)
    reader.ask("an empty log, asking for no bytes", reader.topic(name, from_offset(0)), min_bytes=0, max_wait_ms=10_000)
    talk.append(name, batch(3), batch(3, first_ms=EPOCH_MS + 10), batch(3, first_ms=EPOCH_MS + 20))
    for offset in (0, 1, 3, 8, 9):
        reader.ask(f"from offset {offset}", reader.topic(name, from_offset(offset)))
    for offset in (10, -1, -2, 2**62):
        reader.ask(f"from offset {offset}, which is out of range", reader.topic(name, from_offset(offset)))
    reader.ask("with read_committed", reader.topic(name, from_offset(3)), isolation_level=1)
    reader.ask("with read_committed, nothing to read", reader.topic(name, from_offset(9)), isolation_level=1)
    reader.ask("no room at all", reader.topic(name, from_offset(0)), max_bytes=0)
    reader.ask("no room in the partition", reader.topic(name, from_offset(0, max_bytes=0)))
    reader.ask(
        "negative room in the partition", reader.topic(name, from_offset(0, max_bytes=-5)), differs="it reads as none"
    )
    reader.ask("room for one batch", reader.topic(name, from_offset(0, max_bytes=100)))
    reader.ask("room for two batches", reader.topic(name, from_offset(0, max_bytes=200)))
    talk.append(name, batch(1), partition=1)
    both = reader.topic(name, from_offset(0), from_offset(0, 1))
    reader.ask("two partitions", both)
    reader.ask("two partitions, the other way round", reader.topic(name, from_offset(0, 1), from_offset(0)))
    reader.ask("two partitions and room for one batch", both, max_bytes=1)
    reader.ask("more bytes than there are, after a wait", both, min_bytes=MIB, max_wait_ms=20)
    reader.ask(
        "an isolation level that does not exist",
        reader.topic(name, from_offset(0)),
        isolation_level=9,
        differs="an error that has a name is told by it",
    )
    reader.ask("the same partition twice", reader.topic(name, from_offset(0), from_offset(3)))
    reader.ask("the same topic twice", reader.topic(name, from_offset(0)), reader.topic(name, from_offset(0, 1)))


@script(ApiKey.FETCH)
def fetches_refused(talk: Talk) -> None:
    name = talk.topic("t")
    talk.append(name, batch())
    reader = Reader(talk)
    reader.ask("nothing")
    reader.ask("a topic without partitions", reader.topic(name))
    reader.ask("a topic that is not there", reader.topic(talk.name("nowhere"), from_offset(0), topic_id=STRANGER))
    reader.ask("a topic with an illegal name", reader.topic("../x", from_offset(0), topic_id=STRANGER))
    reader.ask("no name and no id", reader.topic("", from_offset(0), topic_id=ZERO_UUID))
    reader.ask("a partition that is not there", reader.topic(name, from_offset(0, 7)))
    reader.ask("a partition below zero", reader.topic(name, from_offset(0, -1)))
    reader.ask(
        "one partition that is there and one that is not",
        reader.topic(name, from_offset(0), from_offset(0, 7)),
        max_wait_ms=20,
        min_bytes=MIB,
    )
    for epoch in (0, 5, -3):
        reader.ask(f"leader epoch {epoch}", reader.topic(name, from_offset(0, epoch=epoch)))
    if talk.version >= 12:
        for last, offset in ((0, 2), (0, 3), (0, 9), (3, 2), (-7, 2)):
            one = from_offset(offset)
            one.last_fetched_epoch = last
            reader.ask(f"last fetched epoch {last} at offset {offset}", reader.topic(name, one))
    zstd = talk.topic("zstd", compression_type="zstd")
    reader.ask("a topic compressed with zstd", reader.topic(zstd, from_offset(0)))
    talk.append(zstd, batch(codec=Codec.ZSTD))
    reader.ask("a topic compressed with zstd, with records", reader.topic(zstd, from_offset(0)))


@script(ApiKey.FETCH)
def fetches_by_others(talk: Talk) -> None:
    name = talk.topic("t")
    talk.append(name, batch())
    reader = Reader(talk)

    def by(replica_id: int) -> dict[str, Any]:
        if talk.version < 15:
            return {"replica_id": replica_id}
        return {"replica_state": ReplicaState(replica_id=replica_id, replica_epoch=-1)}

    reader.ask("a debugging consumer", reader.topic(name, from_offset(0)), **by(-2))
    reader.ask("a replica that is none", reader.topic(name, from_offset(0)), **by(7))
    reader.ask("a replica that is none and knows the epoch", reader.topic(name, from_offset(0, epoch=0)), **by(7))


@script(ApiKey.FETCH)
def fetch_sessions(talk: Talk) -> None:
    if talk.version < 7:
        return
    name = talk.topic("t", 3)
    reader = Reader(talk)
    talk.append(name, batch())
    first = reader.topic(name, from_offset(0), from_offset(0, 1))
    session = reader.ask("begin", first, session_epoch=0).session_id
    reader.ask("continue, with nothing new to say", session_id=session, session_epoch=1, max_wait_ms=20)
    reader.ask(
        "continue from where the records end",
        reader.topic(name, from_offset(3)),
        session_id=session,
        session_epoch=2,
        max_wait_ms=20,
    )
    reader.ask("nothing has changed", session_id=session, session_epoch=3, max_wait_ms=20)
    talk.append(name, batch(1), partition=1)
    reader.ask("another partition has records", session_id=session, session_epoch=4)
    reader.ask("it still has", session_id=session, session_epoch=5)
    reader.ask("the epoch before", session_id=session, session_epoch=5)
    reader.ask("an epoch to come", session_id=session, session_epoch=9)
    reader.ask(
        "a third partition is added, the second forgotten",
        reader.topic(name, from_offset(0, 2)),
        forgotten_topics_data=[reader.forgotten(name, 1)],
        session_id=session,
        session_epoch=6,
        max_wait_ms=20,
    )
    reader.ask(
        "a partition that is not there is added",
        reader.topic(name, from_offset(0, 9)),
        session_id=session,
        session_epoch=7,
        max_wait_ms=20,
    )
    reader.ask("an error is told again", session_id=session, session_epoch=8, max_wait_ms=20)
    reader.ask(
        "everything is forgotten",
        forgotten_topics_data=[reader.forgotten(name, 0, 2, 9)],
        session_id=session,
        session_epoch=9,
        max_wait_ms=20,
    )
    reader.ask("it is gone", session_id=session, session_epoch=10)


@script(ApiKey.FETCH)
def fetch_sessions_refused(talk: Talk) -> None:
    if talk.version < 7:
        return
    name = talk.topic("t")
    reader = Reader(talk)
    one = reader.topic(name, from_offset(0))
    reader.ask("a session that is not there", one, session_id=123456, session_epoch=1)
    reader.ask("session 0 and epoch 1", one, session_id=0, session_epoch=1)
    reader.ask("an epoch below -1", one, session_epoch=-2)
    reader.ask("a session of nothing", session_epoch=0)
    session = reader.ask("begin", one, session_epoch=0).session_id
    again = reader.ask("begin anew, closing that one", one, session_id=session, session_epoch=0).session_id
    reader.ask("the old one", session_id=session, session_epoch=1)
    reader.ask("close the new one", one, session_id=again, session_epoch=-1)
    reader.ask("the new one", session_id=again, session_epoch=1)
    session = reader.ask("begin a third", one, session_epoch=0).session_id
    other = 12 if talk.version >= 13 else 13
    request = reader.request(one, session_id=session, session_epoch=1)
    talk.ask("continue it by names or ids, as it was not begun", request, version=other)
