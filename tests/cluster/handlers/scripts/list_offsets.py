"""ListOffsets: the special timestamps, and times in and out of order."""

from __future__ import annotations

from cluster.handlers.scripts.running import script
from cluster.handlers.talk import EPOCH_MS, Talk, batch
from strandline.protocol.apis import ApiKey
from strandline.protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from strandline.records.compression import Codec

NAMED = "an error that has a name is told by it"
SPECIALS = {
    -1: "latest",
    -2: "earliest",
    -3: "largest timestamp",
    -4: "earliest local",
    -5: "latest tiered",
    -6: "earliest pending upload",
    -7: "a special that nobody knows",
    -(2**63): "the least timestamp",
}


def asked(
    name: str, timestamp: int, *, partition: int = 0, epoch: int = -1, replica: int = -1, times: int = 1
) -> ListOffsetsRequest:
    one = ListOffsetsPartition(partition_index=partition, current_leader_epoch=epoch, timestamp=timestamp)
    return ListOffsetsRequest(replica_id=replica, topics=[ListOffsetsTopic(name=name, partitions=[one] * times)])


@script(ApiKey.LIST_OFFSETS)
def offsets_of_an_empty_log(talk: Talk) -> None:
    name = talk.topic("t")
    for timestamp, label in SPECIALS.items():
        talk.ask(label, asked(name, timestamp))
    talk.ask("by time", asked(name, EPOCH_MS))


@script(ApiKey.LIST_OFFSETS)
def offsets_of_a_log(talk: Talk) -> None:
    name = talk.topic("t")
    talk.append(name, batch(3), batch(3, first_ms=EPOCH_MS + 100), batch(1, first_ms=EPOCH_MS + 50))
    for timestamp, label in SPECIALS.items():
        talk.ask(label, asked(name, timestamp))
    for after_ms in (-1000, 0, 1, 3, 60, 102, 103):
        talk.ask(f"by time, {after_ms} ms after the first", asked(name, EPOCH_MS + after_ms))
    talk.ask("at time 0", asked(name, 0))
    talk.ask("latest for a debugging consumer", asked(name, -1, replica=-2))
    talk.ask("by time for a debugging consumer", asked(name, EPOCH_MS, replica=-2))
    talk.ask("latest for a replica", asked(name, -1, replica=1))
    if talk.version >= 2:
        request = asked(name, -1)
        request.isolation_level = 1
        talk.ask("latest that is stable", request)
        request = asked(name, EPOCH_MS + 3)
        request.isolation_level = 1
        talk.ask("by time among what is stable", request)
        request = asked(name, -1)
        request.isolation_level = 7
        talk.ask("an isolation level that does not exist", request, differs=NAMED)


@script(ApiKey.LIST_OFFSETS)
def offsets_where_times_are_not_in_order(talk: Talk) -> None:
    name = talk.topic("t")
    for after_ms in (50, 10, 70, 0, 70, 60):
        talk.append(name, batch(2, first_ms=EPOCH_MS + after_ms, codec=Codec.GZIP if after_ms == 70 else Codec.NONE))
    for after_ms in (0, 11, 12, 51, 52, 60, 71, 72):
        talk.ask(f"{after_ms} ms after the least", asked(name, EPOCH_MS + after_ms))
    talk.ask("largest timestamp", asked(name, -3))
    talk.append(talk.topic("timeless"), batch(2, first_ms=-1))
    talk.ask("records without a timestamp: at 0", asked(talk.name("timeless"), 0))
    talk.ask("records without a timestamp: the largest", asked(talk.name("timeless"), -3))


@script(ApiKey.LIST_OFFSETS)
def offsets_refused(talk: Talk) -> None:
    name = talk.topic("t")
    talk.append(name, batch())
    talk.ask("a topic that is not there", asked(talk.name("nowhere"), -1))
    talk.ask("a topic with an illegal name", asked("../x", -1))
    talk.ask("a partition that is not there", asked(name, -1, partition=7))
    talk.ask("a negative partition", asked(name, -1, partition=-1))
    talk.ask("the right leader epoch", asked(name, -1, epoch=0))
    talk.ask("a leader epoch to come", asked(name, -1, epoch=5))
    talk.ask("a leader epoch below zero", asked(name, -1, epoch=-5))
    talk.ask("the same partition twice", asked(name, -1, times=2))
    talk.ask("nothing", ListOffsetsRequest(replica_id=-1))
    talk.ask("a topic without partitions", asked(name, -1, times=0))
    both = asked(name, -1)
    both.topics += asked(talk.name("nowhere"), -1).topics
    talk.ask("one that is there and one that is not", both, unordered={"topics"})
    twice = asked(name, -1)
    twice.topics += asked(name, -2).topics
    talk.ask("the same topic twice", twice, unordered={"topics"})
