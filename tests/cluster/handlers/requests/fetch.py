"""Fetch: records, rejected requests, and fetch sessions (KIP-227)."""

from __future__ import annotations

from typing import Any

from cluster.handlers.script_run import SPECIFIC_ERROR, UNKNOWN_TOPIC_ID, ScriptRun
from cluster.handlers.script_runner import script
from cluster.record_batches import EPOCH_MS, batch
from strandline.model.ids import ZERO_UUID, Uuid
from strandline.protocol.apis import ApiKey
from strandline.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic, ForgottenTopic, ReplicaState
from strandline.records.compression import Codec

MIB = 1 << 20


class Fetcher:
    """Builds Fetch requests with topic names and ids."""

    def __init__(self, run: ScriptRun) -> None:
        self.run = run
        self._ids: dict[str, Uuid] = {}

    def topic(self, name: str, *partitions: FetchPartition, topic_id: Uuid | None = None) -> FetchTopic:
        if topic_id is None:
            if name not in self._ids:
                self._ids[name] = self.run.topic_id(name)
            topic_id = self._ids[name]
        return FetchTopic(topic=name, topic_id=topic_id, partitions=list(partitions))

    def forgotten(self, name: str, *partitions: int) -> ForgottenTopic:
        return ForgottenTopic(topic=name, topic_id=self._ids[name], partitions=list(partitions))

    def request(self, *topics: FetchTopic, **fields: Any) -> FetchRequest:
        return FetchRequest(topics=list(topics), **{"max_bytes": MIB, "min_bytes": 1, **fields})

    def record(self, label: str, *topics: FetchTopic, differs: str | None = None, **fields: Any) -> Any:
        return self.run.record(label, self.request(*topics, **fields), differs=differs)


def from_offset(offset: int, partition: int = 0, max_bytes: int = MIB, epoch: int = -1) -> FetchPartition:
    return FetchPartition(
        partition=partition, fetch_offset=offset, partition_max_bytes=max_bytes, current_leader_epoch=epoch
    )


@script(ApiKey.FETCH)
def records_fetched(run: ScriptRun) -> None:
    name = run.topic("t", 2)
    fetcher = Fetcher(run)
    fetcher.record("an empty log", fetcher.topic(name, from_offset(0)))
    fetcher.record("an empty log, with max_wait_ms", fetcher.topic(name, from_offset(0)), max_wait_ms=20)
    fetcher.record("an empty log, min_bytes=0", fetcher.topic(name, from_offset(0)), min_bytes=0, max_wait_ms=10_000)
    run.append(name, batch(3), batch(3, first_ms=EPOCH_MS + 10), batch(3, first_ms=EPOCH_MS + 20))
    for offset in (0, 1, 3, 8, 9):
        fetcher.record(f"from offset {offset}", fetcher.topic(name, from_offset(offset)))
    for offset in (10, -1, -2, 2**62):
        fetcher.record(f"from offset {offset}, which is out of range", fetcher.topic(name, from_offset(offset)))
    fetcher.record("with read_committed", fetcher.topic(name, from_offset(3)), isolation_level=1)
    fetcher.record("with read_committed, nothing to read", fetcher.topic(name, from_offset(9)), isolation_level=1)
    fetcher.record("max_bytes=0", fetcher.topic(name, from_offset(0)), max_bytes=0)
    fetcher.record("partition_max_bytes=0", fetcher.topic(name, from_offset(0, max_bytes=0)))
    fetcher.record(
        "negative partition_max_bytes",
        fetcher.topic(name, from_offset(0, max_bytes=-5)),
        differs="it is treated as zero",
    )
    fetcher.record("partition_max_bytes for one batch", fetcher.topic(name, from_offset(0, max_bytes=100)))
    fetcher.record("partition_max_bytes for two batches", fetcher.topic(name, from_offset(0, max_bytes=200)))
    run.append(name, batch(1), partition=1)
    both = fetcher.topic(name, from_offset(0), from_offset(0, 1))
    fetcher.record("two partitions", both)
    fetcher.record("two partitions in reverse order", fetcher.topic(name, from_offset(0, 1), from_offset(0)))
    fetcher.record("two partitions, max_bytes for one batch", both, max_bytes=1)
    fetcher.record("min_bytes not reached within max_wait_ms", both, min_bytes=MIB, max_wait_ms=20)
    fetcher.record(
        "an unknown isolation level",
        fetcher.topic(name, from_offset(0)),
        isolation_level=9,
        differs=SPECIFIC_ERROR,
    )
    fetcher.record("the same partition twice", fetcher.topic(name, from_offset(0), from_offset(3)))
    fetcher.record("the same topic twice", fetcher.topic(name, from_offset(0)), fetcher.topic(name, from_offset(0, 1)))


@script(ApiKey.FETCH)
def fetches_rejected(run: ScriptRun) -> None:
    name = run.topic("t")
    run.append(name, batch())
    fetcher = Fetcher(run)
    fetcher.record("an empty request")
    fetcher.record("a topic without partitions", fetcher.topic(name))
    fetcher.record("an unknown topic", fetcher.topic(run.name("nowhere"), from_offset(0), topic_id=UNKNOWN_TOPIC_ID))
    fetcher.record("a topic with an invalid name", fetcher.topic("../x", from_offset(0), topic_id=UNKNOWN_TOPIC_ID))
    fetcher.record("no name and no id", fetcher.topic("", from_offset(0), topic_id=ZERO_UUID))
    fetcher.record("an unknown partition", fetcher.topic(name, from_offset(0, 7)))
    fetcher.record("a negative partition", fetcher.topic(name, from_offset(0, -1)))
    fetcher.record(
        "one known and one unknown partition",
        fetcher.topic(name, from_offset(0), from_offset(0, 7)),
        max_wait_ms=20,
        min_bytes=MIB,
    )
    for epoch in (0, 5, -3):
        fetcher.record(f"leader epoch {epoch}", fetcher.topic(name, from_offset(0, epoch=epoch)))
    if run.version >= 12:
        for last, offset in ((0, 2), (0, 3), (0, 9), (3, 2), (-7, 2)):
            one = from_offset(offset)
            one.last_fetched_epoch = last
            fetcher.record(f"last fetched epoch {last} at offset {offset}", fetcher.topic(name, one))
    zstd = run.topic("zstd", compression_type="zstd")
    fetcher.record("a topic compressed with zstd", fetcher.topic(zstd, from_offset(0)))
    run.append(zstd, batch(codec=Codec.ZSTD))
    fetcher.record("a topic compressed with zstd, with records", fetcher.topic(zstd, from_offset(0)))


@script(ApiKey.FETCH)
def fetches_by_replicas(run: ScriptRun) -> None:
    name = run.topic("t")
    run.append(name, batch())
    fetcher = Fetcher(run)

    def by(replica_id: int) -> dict[str, Any]:
        if run.version < 15:
            return {"replica_id": replica_id}
        return {"replica_state": ReplicaState(replica_id=replica_id, replica_epoch=-1)}

    fetcher.record("a debugging consumer", fetcher.topic(name, from_offset(0)), **by(-2))
    fetcher.record("a broker that is not a replica", fetcher.topic(name, from_offset(0)), **by(7))
    fetcher.record(
        "a broker that is not a replica, with the leader epoch", fetcher.topic(name, from_offset(0, epoch=0)), **by(7)
    )


@script(ApiKey.FETCH)
def fetch_sessions(run: ScriptRun) -> None:
    if run.version < 7:
        return
    name = run.topic("t", 3)
    fetcher = Fetcher(run)
    run.append(name, batch())
    first = fetcher.topic(name, from_offset(0), from_offset(0, 1))
    session = fetcher.record("new session", first, session_epoch=0).session_id
    fetcher.record("an incremental fetch without changes", session_id=session, session_epoch=1, max_wait_ms=20)
    fetcher.record(
        "an incremental fetch from the log end",
        fetcher.topic(name, from_offset(3)),
        session_id=session,
        session_epoch=2,
        max_wait_ms=20,
    )
    fetcher.record("nothing has changed", session_id=session, session_epoch=3, max_wait_ms=20)
    run.append(name, batch(1), partition=1)
    fetcher.record("another partition has records", session_id=session, session_epoch=4)
    fetcher.record("it still has records", session_id=session, session_epoch=5)
    fetcher.record("the previous session epoch", session_id=session, session_epoch=5)
    fetcher.record("a future epoch", session_id=session, session_epoch=9)
    fetcher.record(
        "a third partition is added, the second forgotten",
        fetcher.topic(name, from_offset(0, 2)),
        forgotten_topics_data=[fetcher.forgotten(name, 1)],
        session_id=session,
        session_epoch=6,
        max_wait_ms=20,
    )
    fetcher.record(
        "an unknown partition is added",
        fetcher.topic(name, from_offset(0, 9)),
        session_id=session,
        session_epoch=7,
        max_wait_ms=20,
    )
    fetcher.record("an error is returned again", session_id=session, session_epoch=8, max_wait_ms=20)
    fetcher.record(
        "every partition is forgotten",
        forgotten_topics_data=[fetcher.forgotten(name, 0, 2, 9)],
        session_id=session,
        session_epoch=9,
        max_wait_ms=20,
    )
    fetcher.record("the session no longer exists", session_id=session, session_epoch=10)


@script(ApiKey.FETCH)
def fetch_sessions_rejected(run: ScriptRun) -> None:
    if run.version < 7:
        return
    name = run.topic("t")
    fetcher = Fetcher(run)
    one = fetcher.topic(name, from_offset(0))
    fetcher.record("an unknown session", one, session_id=123456, session_epoch=1)
    fetcher.record("session 0 and epoch 1", one, session_id=0, session_epoch=1)
    fetcher.record("an epoch below -1", one, session_epoch=-2)
    fetcher.record("a session without partitions", session_epoch=0)
    session = fetcher.record("new session", one, session_epoch=0).session_id
    again = fetcher.record("a new session that closes the first", one, session_id=session, session_epoch=0).session_id
    fetcher.record("the closed session", session_id=session, session_epoch=1)
    fetcher.record("close the second session", one, session_id=again, session_epoch=-1)
    fetcher.record("the second session after that", session_id=again, session_epoch=1)
    session = fetcher.record("a third session", one, session_epoch=0).session_id
    other = 12 if run.version >= 13 else 13
    request = fetcher.request(one, session_id=session, session_epoch=1)
    run.record("topic names in a session of topic ids, or the reverse", request, version=other)
