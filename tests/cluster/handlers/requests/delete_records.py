"""DeleteRecords, and the responses of other APIs about the log afterwards."""

from __future__ import annotations

import time

from cluster.handlers.requests.epochs import end_of
from cluster.handlers.requests.list_offsets import offset_request as offset_at
from cluster.handlers.script_run import ScriptRun
from cluster.handlers.script_runner import script
from cluster.record_batches import EPOCH_MS, batch
from strandline.protocol.apis import ApiKey
from strandline.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from strandline.protocol.messages.topics import DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic


def delete_before(name: str, offset: int, partition: int = 0) -> DeleteRecordsRequest:
    one = DeleteRecordsPartition(partition_index=partition, offset=offset)
    return DeleteRecordsRequest(topics=[DeleteRecordsTopic(name=name, partitions=[one])], timeout_ms=10_000)


@script(ApiKey.DELETE_RECORDS)
def records_deleted(run: ScriptRun) -> None:
    name = run.topic("t", 2)
    run.append(name, batch(3), batch(3))
    for offset in (0, 2, 1, 2, 7, -2, -(2**63), 2**62, 5, -1):
        run.record(f"before offset {offset}", delete_before(name, offset))
        time.sleep(0.01)
    run.record("everything of an empty log", delete_before(name, -1, partition=1))
    run.record("the same partition in the same place", delete_before(name, -1))


@script(ApiKey.DELETE_RECORDS)
def log_after_deletion(run: ScriptRun) -> None:
    """In other APIs, each in one version."""
    name = run.topic("t")
    run.append(name, batch(3), batch(3, first_ms=EPOCH_MS + 10), batch(3, first_ms=EPOCH_MS + 20))
    run.record("before offset 4", delete_before(name, 4))
    for timestamp, label in ((-1, "latest"), (-2, "earliest"), (-3, "largest timestamp"), (-4, "earliest local")):
        run.record(f"the offset: {label}", offset_at(name, timestamp), version=8)
    for after_ms in (0, 10, 12, 20):
        run.record(f"the offset: {after_ms} ms after the first", offset_at(name, EPOCH_MS + after_ms), version=8)
    run.record("the end of epoch 0", end_of(name, 0), version=4)
    for offset in (0, 3, 4, 5):
        run.record(f"records from {offset}", fetched_from(name, offset), version=12)
    run.record("all of it", delete_before(name, -1))
    run.record("then the offset: earliest", offset_at(name, -2), version=8)
    differs = "the timestamps of deleted records are not considered"
    run.record("then the offset: largest timestamp", offset_at(name, -3), version=8, differs=differs)
    run.record("then the end of epoch 0", end_of(name, 0), version=4)
    run.record("then records from 9", fetched_from(name, 9), version=12)
    run.append(name, batch(1, first_ms=EPOCH_MS + 30))
    run.record("one more: earliest", offset_at(name, -2), version=8)
    run.record("one more: by time", offset_at(name, EPOCH_MS), version=8)


def fetched_from(name: str, offset: int) -> FetchRequest:
    wanted = FetchPartition(fetch_offset=offset, partition_max_bytes=1 << 20)
    return FetchRequest(topics=[FetchTopic(topic=name, partitions=[wanted])])


@script(ApiKey.DELETE_RECORDS)
def deletions_rejected(run: ScriptRun) -> None:
    name = run.topic("t")
    compacted = run.topic("compacted", cleanup_policy="compact")
    both = run.topic("both", cleanup_policy="compact,delete")
    run.record("an empty request", DeleteRecordsRequest(timeout_ms=1000))
    run.record("a topic without partitions", DeleteRecordsRequest(topics=[DeleteRecordsTopic(name=name)]))
    run.record("an unknown topic", delete_before(run.name("nowhere"), 0))
    run.record("a topic with an invalid name", delete_before("../x", 0))
    run.record("an unknown partition", delete_before(name, 0, partition=5))
    run.record("a compacted topic", delete_before(compacted, 0))
    run.record("a topic that is compacted and deleted", delete_before(both, 0))
    two = delete_before(name, 0)
    two.topics += delete_before(run.name("nowhere"), 0).topics
    run.record("one known, one unknown", two, unordered={"topics"})
    twice = delete_before(name, 0)
    twice.topics[0].partitions *= 2
    run.record("the same partition twice", twice)
