"""OffsetForLeaderEpoch."""

from __future__ import annotations

from cluster.handlers.script_run import ScriptRun
from cluster.handlers.script_runner import script
from cluster.record_batches import batch
from strandline.protocol.apis import ApiKey
from strandline.protocol.messages.epochs import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)


def end_of(
    name: str, epoch: int, *, current: int = -1, partition: int = 0, replica: int = -1
) -> OffsetForLeaderEpochRequest:
    one = OffsetForLeaderPartition(partition=partition, current_leader_epoch=current, leader_epoch=epoch)
    return OffsetForLeaderEpochRequest(replica_id=replica, topics=[OffsetForLeaderTopic(topic=name, partitions=[one])])


@script(ApiKey.OFFSET_FOR_LEADER_EPOCH)
def end_offsets_of_epochs(run: ScriptRun) -> None:
    name = run.topic("t", 2)
    run.append(name, batch(3))
    for epoch in (0, 1, -1, -2, 2**31 - 1):
        run.record(f"epoch {epoch}", end_of(name, epoch))
    run.record("epoch 0 of an empty log", end_of(name, 0, partition=1))
    run.record("for a debugging consumer", end_of(name, 0, replica=-2))
    for current in (0, 1, -5):
        run.record(f"with current leader epoch {current}", end_of(name, 0, current=current))
    run.record("an unknown topic", end_of(run.name("nowhere"), 0))
    run.record("a topic with an invalid name", end_of("../x", 0))
    run.record("an unknown partition", end_of(name, 0, partition=9))
    run.record("an empty request", OffsetForLeaderEpochRequest(replica_id=-1))
    run.record("a topic without partitions", OffsetForLeaderEpochRequest(topics=[OffsetForLeaderTopic(topic=name)]))
    two = end_of(name, 0)
    two.topics += end_of(run.name("nowhere"), 0).topics
    run.record("one known, one unknown", two, unordered={"topics"})
