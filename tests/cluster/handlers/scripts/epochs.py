"""OffsetForLeaderEpoch."""

from __future__ import annotations

from cluster.handlers.scripts.running import script
from cluster.handlers.talk import Talk, batch
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
def where_epochs_end(talk: Talk) -> None:
    name = talk.topic("t", 2)
    talk.append(name, batch(3))
    for epoch in (0, 1, -1, -2, 2**31 - 1):
        talk.ask(f"epoch {epoch}", end_of(name, epoch))
    talk.ask("epoch 0 of an empty log", end_of(name, 0, partition=1))
    talk.ask("for a debugging consumer", end_of(name, 0, replica=-2))
    for current in (0, 1, -5):
        talk.ask(f"when the client thinks the epoch is {current}", end_of(name, 0, current=current))
    talk.ask("a topic that is not there", end_of(talk.name("nowhere"), 0))
    talk.ask("a topic with an illegal name", end_of("../x", 0))
    talk.ask("a partition that is not there", end_of(name, 0, partition=9))
    talk.ask("nothing", OffsetForLeaderEpochRequest(replica_id=-1))
    talk.ask("a topic without partitions", OffsetForLeaderEpochRequest(topics=[OffsetForLeaderTopic(topic=name)]))
    two = end_of(name, 0)
    two.topics += end_of(talk.name("nowhere"), 0).topics
    talk.ask("one that is there and one that is not", two, unordered={"topics"})
