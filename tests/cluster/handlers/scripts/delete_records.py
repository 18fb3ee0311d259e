"""DeleteRecords, and what other APIs say of a log afterwards."""

from __future__ import annotations

import time

from cluster.handlers.scripts.epochs import end_of
from cluster.handlers.scripts.list_offsets import asked as offset_at
from cluster.handlers.scripts.running import script
from cluster.handlers.talk import EPOCH_MS, Talk, batch
from strandline.protocol.apis import ApiKey
from strandline.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from strandline.protocol.messages.topics import DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic


def before(name: str, offset: int, partition: int = 0) -> DeleteRecordsRequest:
    one = DeleteRecordsPartition(partition_index=partition, offset=offset)
    return DeleteRecordsRequest(topics=[DeleteRecordsTopic(name=name, partitions=[one])], timeout_ms=10_000)


@script(ApiKey.DELETE_RECORDS)
def records_deleted(talk: Talk) -> None:
    name = talk.topic("t", 2)
    talk.append(name, batch(3), batch(3))
    for offset in (0, 2, 1, 2, 7, -2, -(2**63), 2**62, 5, -1):
        talk.ask(f"before offset {offset}", before(name, offset))
        time.sleep(0.01)
    talk.ask("everything of an empty log", before(name, -1, partition=1))
    talk.ask("the same partition in the same place", before(name, -1))


@script(ApiKey.DELETE_RECORDS)
def what_is_left_of_a_log(talk: Talk) -> None:
    """Asked in other APIs, each in one version."""
    name = talk.topic("t")
    talk.append(name, batch(3), batch(3, first_ms=EPOCH_MS + 10), batch(3, first_ms=EPOCH_MS + 20))
    talk.ask("before offset 4", before(name, 4))
    for timestamp, label in ((-1, "latest"), (-2, "earliest"), (-3, "largest timestamp"), (-4, "earliest local")):
        talk.ask(f"the offset: {label}", offset_at(name, timestamp), version=8)
    for after_ms in (0, 10, 12, 20):
        talk.ask(f"the offset: {after_ms} ms after the first", offset_at(name, EPOCH_MS + after_ms), version=8)
    talk.ask("the end of epoch 0", end_of(name, 0), version=4)
    for offset in (0, 3, 4, 5):
        talk.ask(f"records from {offset}", fetched_from(name, offset), version=12)
    talk.ask("all of it", before(name, -1))
    talk.ask("then the offset: earliest", offset_at(name, -2), version=8)
    gone = "records that were deleted have no timestamps any more"
    talk.ask("then the offset: largest timestamp", offset_at(name, -3), version=8, differs=gone)
    talk.ask("then the end of epoch 0", end_of(name, 0), version=4)
    talk.ask("then records from 9", fetched_from(name, 9), version=12)
    talk.append(name, batch(1, first_ms=EPOCH_MS + 30))
    talk.ask("one more: earliest", offset_at(name, -2), version=8)
    talk.ask("one more: by time", offset_at(name, EPOCH_MS), version=8)


def fetched_from(name: str, offset: int) -> FetchRequest:
    wanted = FetchPartition(fetch_offset=offset, partition_max_bytes=1 << 20)
    return FetchRequest(topics=[FetchTopic(topic=name, partitions=[wanted])])


@script(ApiKey.DELETE_RECORDS)
def deletions_refused(talk: Talk) -> None:
    name = talk.topic("t")
    compacted = talk.topic("compacted", cleanup_policy="compact")
    both = talk.topic("both", cleanup_policy="compact,delete")
    talk.ask("nothing", DeleteRecordsRequest(timeout_ms=1000))
    talk.ask("a topic without partitions", DeleteRecordsRequest(topics=[DeleteRecordsTopic(name=name)]))
    talk.ask("a topic that is not there", before(talk.name("nowhere"), 0))
    talk.ask("a topic with an illegal name", before("../x", 0))
    talk.ask("a partition that is not there", before(name, 0, partition=5))
    talk.ask("a compacted topic", before(compacted, 0))
    talk.ask("a topic that is compacted and deleted", before(both, 0))
    two = before(name, 0)
    two.topics += before(talk.name("nowhere"), 0).topics
    talk.ask("one that is there and one that is not", two, unordered={"topics"})
    twice = before(name, 0)
    twice.topics[0].partitions *= 2
    talk.ask("the same partition twice", twice)
