"""ListOffsets: special timestamps, and timestamps in and out of order."""

from __future__ import annotations

from cluster.handlers.script_run import SPECIFIC_ERROR, ScriptRun
from cluster.handlers.script_runner import script
from cluster.record_batches import EPOCH_MS, batch
from strandline.protocol.apis import ApiKey
from strandline.protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from strandline.records.compression import Codec

SPECIALS = {
    -1: "latest",
    -2: "earliest",
    -3: "largest timestamp",
    -4: "earliest local",
    -5: "latest tiered",
    -6: "earliest pending upload",
    -7: "an unknown special timestamp",
    -(2**63): "the least timestamp",
}


def offset_request(
    name: str, timestamp: int, *, partition: int = 0, epoch: int = -1, replica: int = -1, times: int = 1
) -> ListOffsetsRequest:
    one = ListOffsetsPartition(partition_index=partition, current_leader_epoch=epoch, timestamp=timestamp)
    return ListOffsetsRequest(replica_id=replica, topics=[ListOffsetsTopic(name=name, partitions=[one] * times)])


@script(ApiKey.LIST_OFFSETS)
def offsets_of_an_empty_log(run: ScriptRun) -> None:
    name = run.topic("t")
    for timestamp, label in SPECIALS.items():
        run.record(label, offset_request(name, timestamp))
    run.record("by time", offset_request(name, EPOCH_MS))


@script(ApiKey.LIST_OFFSETS)
def offsets_of_a_log(run: ScriptRun) -> None:
    name = run.topic("t")
    run.append(name, batch(3), batch(3, first_ms=EPOCH_MS + 100), batch(1, first_ms=EPOCH_MS + 50))
    for timestamp, label in SPECIALS.items():
        run.record(label, offset_request(name, timestamp))
    for after_ms in (-1000, 0, 1, 3, 60, 102, 103):
        run.record(f"by time, {after_ms} ms after the first", offset_request(name, EPOCH_MS + after_ms))
    run.record("at time 0", offset_request(name, 0))
    run.record("latest for a debugging consumer", offset_request(name, -1, replica=-2))
    run.record("by time for a debugging consumer", offset_request(name, EPOCH_MS, replica=-2))
    run.record("latest for a replica", offset_request(name, -1, replica=1))
    if run.version >= 2:
        request = offset_request(name, -1)
        request.isolation_level = 1
        run.record("latest with read_committed", request)
        request = offset_request(name, EPOCH_MS + 3)
        request.isolation_level = 1
        run.record("by time with read_committed", request)
        request = offset_request(name, -1)
        request.isolation_level = 7
        run.record("an unknown isolation level", request, differs=SPECIFIC_ERROR)


@script(ApiKey.LIST_OFFSETS)
def offsets_with_unordered_timestamps(run: ScriptRun) -> None:
    name = run.topic("t")
    for after_ms in (50, 10, 70, 0, 70, 60):
        run.append(name, batch(2, first_ms=EPOCH_MS + after_ms, codec=Codec.GZIP if after_ms == 70 else Codec.NONE))
    for after_ms in (0, 11, 12, 51, 52, 60, 71, 72):
        run.record(f"{after_ms} ms after the least", offset_request(name, EPOCH_MS + after_ms))
    run.record("largest timestamp", offset_request(name, -3))
    run.append(run.topic("timeless"), batch(2, first_ms=-1))
    run.record("records without a timestamp: at 0", offset_request(run.name("timeless"), 0))
    run.record("records without a timestamp: the largest", offset_request(run.name("timeless"), -3))


@script(ApiKey.LIST_OFFSETS)
def list_offsets_rejected(run: ScriptRun) -> None:
    name = run.topic("t")
    run.append(name, batch())
    run.record("an unknown topic", offset_request(run.name("nowhere"), -1))
    run.record("a topic with an invalid name", offset_request("../x", -1))
    run.record("an unknown partition", offset_request(name, -1, partition=7))
    run.record("a negative partition", offset_request(name, -1, partition=-1))
    run.record("the current leader epoch", offset_request(name, -1, epoch=0))
    run.record("a future leader epoch", offset_request(name, -1, epoch=5))
    run.record("a negative leader epoch", offset_request(name, -1, epoch=-5))
    run.record("the same partition twice", offset_request(name, -1, times=2))
    run.record("an empty request", ListOffsetsRequest(replica_id=-1))
    run.record("a topic without partitions", offset_request(name, -1, times=0))
    both = offset_request(name, -1)
    both.topics += offset_request(run.name("nowhere"), -1).topics
    run.record("one known, one unknown", both, unordered={"topics"})
    twice = offset_request(name, -1)
    twice.topics += offset_request(name, -2).topics
    run.record("the same topic twice", twice, unordered={"topics"})
